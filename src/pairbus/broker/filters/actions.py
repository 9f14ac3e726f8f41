"""SQL actions: the changes of a rule to the copy of a message that it accepts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pairbus.amqp.types import Byte, Float, Int, Long, Short, UByte, UInt, ULong, UShort
from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model import SqlAction
from pairbus.broker.filters.ast import Remove, Set, SystemProperty, UserProperty
from pairbus.broker.filters.message_view import (
    TEXT_PROPERTIES,
    MessageView,
    find_property,
    is_named,
)
from pairbus.broker.filters.parser import parse_statements
from pairbus.broker.filters.values import FilterError, Value, text_of, type_name, write

SETTABLE = (TEXT_PROPERTIES - {"dead_letter_source"}) | {
    "time_to_live",
    "scheduled_enqueue_time_utc",
}
_FLOAT_MAX = 3.4028234663852886e38
_SIZED = (Byte, Short, Int, Long, UByte, UShort, UInt, ULong)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes to a copy of a message; values have AMQP types, None in *system* clears one.

    Attributes:
        properties: all application properties after the change, or None if they do not change.
        system: system properties by their names in MessageView: text, except ``time_to_live``
            (timedelta) and ``scheduled_enqueue_time_utc`` (datetime).
    """

    properties: dict[str, Any] | None = None
    system: dict[str, str | timedelta | datetime | None] = field(default_factory=dict)


Action = Callable[[MessageView], Changes]


class _Draft:
    """The message after the statements that were executed so far."""

    def __init__(self, view: MessageView) -> None:
        self._view = view
        self._is_copied = False
        self.properties: Mapping[str, Any] = view.properties
        self.changed: dict[str, str | timedelta | datetime | None] = {}

    def system(self, name: str) -> Any:
        return self.changed[name] if name in self.changed else self._view.system(name)

    def own_properties(self) -> dict[str, Any]:
        if not self._is_copied:
            self.properties = dict(self.properties)
            self._is_copied = True
        assert isinstance(self.properties, dict)
        return self.properties

    def changes(self) -> Changes:
        return Changes(self.own_properties() if self._is_copied else None, self.changed)


_Step = Callable[[_Draft], None]


def compile_action(description: SqlAction) -> Action:
    """A function that returns the changes to a message; it may raise FilterError."""
    steps = tuple(
        _set(statement) if isinstance(statement, Set) else _remove(statement)
        for statement in parse_statements(description.sql_expression, description.parameters)
    )

    def act(view: MessageView) -> Changes:
        draft = _Draft(view)
        for step in steps:
            step(draft)
        return draft.changes()

    return act


def _set(statement: Set) -> _Step:
    target, source = statement.target, statement.value
    if isinstance(target, SystemProperty):
        name = _settable(target)
        return lambda draft: draft.changed.__setitem__(name, _system(name, source.evaluate(draft)))
    if isinstance(source, UserProperty):
        return lambda draft: _copy(draft, target.name, source.name)
    return lambda draft: _store(draft, target.name, source.evaluate(draft))


def _copy(draft: _Draft, target: str, source: str) -> None:
    """Set a property from another one, with the same AMQP type."""
    _, raw = find_property(draft.properties, source)
    _put(draft, target, raw)


def _store(draft: _Draft, name: str, value: Value) -> None:
    found, existing = find_property(draft.properties, name)
    _put(draft, name, _like_existing(existing, value) if found else write(value))


def _put(draft: _Draft, name: str, raw: Any) -> None:
    properties = draft.own_properties()
    for key in properties:
        if is_named(key, name.lower()):
            name = key
            break
    properties[name] = raw


def _like_existing(existing: Any, value: Value) -> Any:
    """The value in the AMQP type of the existing property, if it fits."""
    if isinstance(existing, _SIZED) and type(value) is int:
        try:
            return type(existing)(value)
        except ValueError:
            return write(value)
    if isinstance(existing, float) and (type(value) is int or type(value) is float):
        number = float(value)
        fits = not math.isfinite(number) or abs(number) <= _FLOAT_MAX
        return Float(number) if isinstance(existing, Float) and fits else number
    if type(existing) is str and value is not None and not isinstance(value, bytes):
        return text_of(value)
    return write(value)


def _settable(target: SystemProperty) -> str:
    if target.canonical is None:
        raise ArgumentError(f"The system property '{target.name}' does not exist.")
    if target.canonical not in SETTABLE:
        raise ArgumentError(f"The system property '{target.name}' cannot be changed.")
    return target.canonical


def _system(name: str, value: Value) -> str | timedelta | datetime | None:
    if value is None:
        return None
    if name in TEXT_PROPERTIES:
        text = text_of(value)
        if text is not None and len(text) > 128 and name in _IDS:
            raise FilterError(f"The value for {name} is longer than 128 characters.")
        if text is not None and name == "content_type" and not text.isascii():
            raise FilterError("The value for content_type has characters that are not ASCII.")
        return text
    wanted = timedelta if name == "time_to_live" else datetime
    if not isinstance(value, wanted):
        raise FilterError(f"{name} cannot be set to {type_name(value)}.")
    return value


_IDS = frozenset({"message_id", "session_id", "reply_to_session_id", "partition_key"})


def _remove(statement: Remove) -> _Step:
    target = statement.target
    if isinstance(target, SystemProperty):
        name = _settable(target)
        return lambda draft: draft.changed.__setitem__(name, None)
    folded = target.name.lower()

    def remove(draft: _Draft) -> None:
        for key in list(draft.properties):
            if is_named(key, folded):
                del draft.own_properties()[key]

    return remove
