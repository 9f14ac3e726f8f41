"""Properties of entities: type, default, limit, and the XML and JSON form.

The rows themselves are in :mod:`~pairbus.broker.entities.model_table`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import unquote, urlsplit

from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model_rules import AuthorizationRule
from pairbus.broker.entities.model_values import format_duration, parse_boolean, parse_duration

T = TypeVar("T")


class EntityStatus(enum.StrEnum):
    """Which operations an entity accepts."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def can_send(self) -> bool:
        """Whether messages may be sent to the entity."""
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def can_receive(self) -> bool:
        """Whether messages may be received from the entity."""
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


class AvailabilityStatus(enum.StrEnum):
    """Whether the service can serve the entity; the broker always can."""

    AVAILABLE = "Available"


# --- types ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ValueType(Generic[T]):
    """How a value is written as text; ``parse`` raises ValueError or ArgumentError."""

    description: str
    json: type
    parse: Callable[[str], T]
    format: Callable[[T], str] = str


def _parse_integer(text: str) -> int:
    if len(text.strip()) > 20:
        raise ValueError(text)
    return int(text)


def _parse_path(text: str) -> str | None:
    """A forwarding target: clients send either the path or the whole address."""
    text = text.strip()
    return (unquote(urlsplit(text).path).strip("/") if "://" in text else text) or None


def _parse_status(text: str) -> EntityStatus:
    return {status.lower(): status for status in EntityStatus}[text.strip().lower()]


def _structured(value: object) -> Any:
    raise ValueError(value)


def _text(value: str | None) -> str:
    return value or ""


BOOLEAN = ValueType("true or false", bool, parse_boolean, lambda value: str(value).lower())
INTEGER = ValueType("a whole number", int, _parse_integer)
DURATION = ValueType("a duration in ISO 8601 form", str, parse_duration, format_duration)
TEXT: ValueType[str | None] = ValueType("a string", str, lambda text: text or None, _text)
PATH: ValueType[str | None] = ValueType("the path of an entity", str, _parse_path, _text)
STATUS = ValueType(f"one of {', '.join(EntityStatus)}", str, _parse_status)
AVAILABILITY = ValueType("an availability status", str, AvailabilityStatus)
AUTHORIZATION_RULES: ValueType[tuple[AuthorizationRule, ...]] = ValueType(
    "a list of authorization rules", list, _structured, _structured
)
"""Structured: the XML reader and writer have functions of their own for this type."""


# --- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerElement:
    """An XML element that the broker writes and no client sets.

    Its text is ``constant``, or the fields of the entity's runtime properties; with several
    fields, each becomes a child element.
    """

    xml: str
    fields: tuple[str, ...] = ()
    constant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Property(Generic[T]):
    """One row of the table.

    Attributes:
        type: How the value is read and written.
        default: The service's value if the client gives none.
        limit: The values that the service accepts, as a text that completes "must be …".
        accepts: Whether a value is one of them; it may raise an error of its own. None accepts
            all of the type.
        xml: The name in XML and JSON, if it is not the field's name in camel case.
        is_fixed: Set at creation; an update cannot change it.
        is_kept: An update without it keeps the value; other properties return to their default.
        is_read_only: Written by the broker, ignored in requests.
        since: The first version of the administration API that has it.
        in_config: Whether ``Config.json`` may set it.
        note: For the coverage page, if the broker stores the value without acting on it.
    """

    type: ValueType[T]
    default: T
    limit: str = ""
    accepts: Callable[[T], bool] | None = None
    xml: str = ""
    is_fixed: bool = False
    is_kept: bool = False
    is_read_only: bool = False
    since: str = ""
    in_config: bool = True
    note: str = ""

    def field(self, *followed_by: ServerElement) -> T:
        """A dataclass field for this row; the elements follow it in the XML."""
        return dataclasses.field(
            default=self.default, metadata={"property": self, "followed_by": followed_by}
        )

    def check(self, name: str, value: T) -> None:
        """Raise ArgumentError if the value is outside the limit."""
        if self.accepts is not None and not self.accepts(value):
            raise ArgumentError(f"{name} must be {self.limit}.")

    def parse(self, name: str, text: str) -> T:
        """Parse a value; ArgumentError if the text is not of the type."""
        try:
            return self.type.parse(text)
        except (ValueError, KeyError, ArgumentError):
            raise ArgumentError(f"{name}: '{text[:64]}' is not {self.type.description}.") from None

    def from_json(self, name: str, value: Any) -> T:
        """Convert a JSON value; ArgumentError if it is not of the type."""
        if type(value) is not self.type.json:
            raise ArgumentError(f"{name} must be {self.type.description}.")
        return self.parse(name, str(value))


@dataclass(frozen=True, slots=True)
class Column:
    """A property as a field of one description class."""

    field: str
    xml: str
    property: Property[Any]
    followed_by: tuple[ServerElement, ...]


def columns(description: type[Any]) -> Mapping[str, Column]:
    """The properties of a description class by XML name, in the order of the XML."""
    found = [
        Column(f.name, f.metadata["property"].xml or camel_case(f.name), **f.metadata)
        for f in dataclasses.fields(description)
        if f.metadata
    ]
    return {column.xml: column for column in found}


def camel_case(name: str) -> str:
    """A field's name as XML and JSON write it: ``lock_duration`` is ``LockDuration``."""
    return "".join(word.capitalize() for word in name.split("_"))
