"""Reads entities from a file in the form of the official emulator's `Config.json`.

    {"UserConfig": {"Namespaces": [{"Name": "contoso",
        "Queues": [{"Name": "orders", "Properties": {"LockDuration": "PT1M"}}],
        "Topics": [{"Name": "events", "Subscriptions": [{"Name": "all", "Rules": []}]}]}]}}

A namespace may also have ``"Tier": "Standard"`` or ``"Premium"``, and ``"Limits"`` with
``CreditsPerSecond``, ``IdleLinkTimeout`` and ``IdleConnectionTimeout`` (seconds); 0 switches one
off.

The whole file is checked before any entity is created; an error names its place in the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pairbus.broker.entities.errors import BrokerError
from pairbus.broker.entities.model import (
    CorrelationFilter,
    FalseFilter,
    QueueDescription,
    RuleDescription,
    RuleFilter,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
    TypedValue,
)
from pairbus.broker.entities.model_properties import camel_case, columns
from pairbus.broker.entities.model_rules import CORRELATION_FIELDS
from pairbus.broker.filters.compiled import check_rule
from pairbus.broker.settings import BrokerStartError

_LIMITS = {
    "CreditsPerSecond": "credits_per_second",
    "IdleLinkTimeout": "idle_link_timeout",
    "IdleConnectionTimeout": "idle_connection_timeout",
}
D = TypeVar("D", QueueDescription, TopicDescription, SubscriptionDescription)


@dataclass(frozen=True, slots=True)
class DeclaredSubscription:
    """A subscription and its rules; None for the default rule."""

    description: SubscriptionDescription
    rules: tuple[RuleDescription, ...] | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """The entities that a file declares for one namespace."""

    queues: tuple[QueueDescription, ...] = ()
    topics: tuple[TopicDescription, ...] = ()
    subscriptions: tuple[DeclaredSubscription, ...] = ()
    tier: str | None = None
    limits: Mapping[str, float] = field(default_factory=dict)


class ConfigError(BrokerStartError):
    """The file cannot be used; the text names the place and the reason."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")


def load(source: Mapping[str, Any] | str | Path, namespace: str) -> Declared:
    """Return the entities that a file, or its content, declares for `namespace`.

    If the file has only one namespace, its name is ignored.

    Raises:
        ConfigError: The file cannot be read, or something in it is wrong.
    """
    place = "entities"
    content: Any = source
    if isinstance(source, str | Path):
        place = str(source)
        try:
            content = json.loads(Path(source).read_text(encoding="utf-8"))
        except OSError as exc:
            raise ConfigError(place, f"cannot be read: {exc.strerror}") from exc
        except ValueError as exc:
            raise ConfigError(place, f"is not JSON: {exc}") from exc
    user = _get(content, "UserConfig", Mapping, place, required=False) or content
    if not isinstance(user, Mapping):
        raise ConfigError(place, "must be an object")
    if "Namespaces" not in user and ("Queues" in user or "Topics" in user):
        return _namespace(user, place)
    namespaces = _get(user, "Namespaces", list, place) or []
    named = [n for n in namespaces if isinstance(n, Mapping) and _is(n.get("Name"), namespace)]
    chosen = named or (namespaces if len(namespaces) == 1 else [])
    if len(chosen) != 1:
        raise ConfigError(place, f"declares no namespace {namespace!r}")
    return _namespace(chosen[0], place)


def _namespace(content: Any, place: str) -> Declared:
    names: set[str] = set()
    queues = [
        _entity(QueueDescription, (), item, where, names)
        for item, where in _items(content, "Queues", place)
    ]
    topics: list[TopicDescription] = []
    subscriptions: list[DeclaredSubscription] = []
    for item, where in _items(content, "Topics", place):
        topic = _entity(TopicDescription, (), item, where, names)
        topics.append(topic)
        for inner, inside in _items(item, "Subscriptions", where):
            description = _entity(SubscriptionDescription, (topic.name,), inner, inside, names)
            rules = tuple(_rule(rule, spot) for rule, spot in _items(inner, "Rules", inside))
            if len({rule.name.lower() for rule in rules}) < len(rules):
                raise ConfigError(f"{inside}.Rules", "two rules have the same name")
            subscriptions.append(DeclaredSubscription(description, rules or None))
    tier = _get(content, "Tier", str, place, required=False)
    if tier is not None and tier.lower() not in ("standard", "premium"):
        raise ConfigError(f"{place}.Tier", f"{tier!r} is not a tier: use Standard or Premium")
    return Declared(
        tuple(queues), tuple(topics), tuple(subscriptions), tier, _limits(content, place)
    )


def _limits(content: Any, place: str) -> dict[str, float]:
    """The limits of the namespace; 0 switches one off."""
    found: dict[str, float] = {}
    for key, value in (_get(content, "Limits", Mapping, place, required=False) or {}).items():
        if key not in _LIMITS:
            raise ConfigError(f"{place}.Limits", f"{key} is not a limit: use {', '.join(_LIMITS)}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf:
            raise ConfigError(f"{place}.Limits.{key}", "must be a number, 0 or more")
        found[_LIMITS[key]] = value
    return found


def _entity(
    make: Callable[..., D], before: tuple[str, ...], item: Any, where: str, names: set[str]
) -> D:
    """The described entity, whose path is not in *names* yet and is added."""
    start = make(*before, _get(item, "Name", str, where))
    if start.path.lower() in names:
        raise ConfigError(where, f"the name {start.name!r} is used twice")
    names.add(start.path.lower())
    known = columns(type(start))
    values: dict[str, Any] = {}
    for key, value in (_get(item, "Properties", Mapping, where, required=False) or {}).items():
        column = known.get(key)
        if column is None or not column.property.in_config:
            raise ConfigError(f"{where}.Properties", f"{key} is not a property of this entity")
        try:
            values[column.field] = column.property.from_json(key, value)
        except BrokerError as exc:
            raise ConfigError(f"{where}.Properties", _text(exc)) from None
    try:
        return replace(start, **values).validated()
    except BrokerError as exc:
        raise ConfigError(where, _text(exc)) from None


_CORRELATION = {camel_case(name): name for name in CORRELATION_FIELDS} | {"Subject": "label"}


def _rule(item: Any, where: str) -> RuleDescription:
    name = _get(item, "Name", str, where)
    properties = _get(item, "Properties", Mapping, where, required=False) or {}
    inside = f"{where}.Properties"
    kind = str(properties.get("FilterType", "")).lower().removesuffix("filter")
    action = None
    wanted = _get(properties, "Action", Mapping, inside, required=False)
    if wanted:
        action = SqlAction(_get(wanted, "SqlExpression", str, f"{inside}.Action"))
    chosen: RuleFilter
    if kind == "correlation" or (not kind and "CorrelationFilter" in properties):
        chosen = _correlation(
            _get(properties, "CorrelationFilter", Mapping, inside), f"{inside}.CorrelationFilter"
        )
    elif kind == "sql" or (not kind and "SqlFilter" in properties):
        sql = _get(properties, "SqlFilter", Mapping, inside)
        chosen = SqlFilter(_get(sql, "SqlExpression", str, f"{inside}.SqlFilter"))
    elif kind in {"", "true"}:
        chosen = TrueFilter()
    elif kind == "false":
        chosen = FalseFilter()
    else:
        raise ConfigError(f"{inside}.FilterType", "must be Correlation, Sql, True or False")
    try:
        return check_rule(RuleDescription(name, chosen, action))
    except BrokerError as exc:
        raise ConfigError(where, _text(exc)) from None


def _correlation(content: Mapping[str, Any], where: str) -> CorrelationFilter:
    values: dict[str, Any] = {}
    pairs: list[tuple[str, TypedValue]] = []
    for key in content:
        if key == "Properties":
            found = _get(content, key, Mapping, where, required=False) or {}
            pairs = [(str(k), TypedValue.of(v)) for k, v in found.items()]
        elif key in _CORRELATION:
            values[_CORRELATION[key]] = _get(content, key, str, where, required=False)
        else:
            raise ConfigError(where, f"{key} is not a property of a correlation filter")
    return CorrelationFilter(**values, properties=tuple(pairs))


def _items(content: Any, key: str, place: str) -> list[tuple[Any, str]]:
    found = _get(content, key, list, place, required=False) or []
    return [(item, f"{place}: {key}[{number}]") for number, item in enumerate(found)]


def _get(content: Any, key: str, kind: type, place: str, *, required: bool = True) -> Any:
    if not isinstance(content, Mapping):
        raise ConfigError(place, "must be an object")
    value = content.get(key)
    if value is None and not required:
        return None
    if not isinstance(value, kind):
        shown = "a string" if kind is str else "a list" if kind is list else "an object"
        raise ConfigError(f"{place}.{key}", f"must be {shown}")
    return value


def _is(value: Any, name: str) -> bool:
    return isinstance(value, str) and value.lower() == name.lower()


def _text(exc: Exception) -> str:
    return str(exc).rstrip(".")
