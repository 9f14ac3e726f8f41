"""Values as the administration API writes them: ISO 8601 durations and typed values of rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from pairbus.broker.entities.errors import ArgumentError

MAX_DURATION = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477580)
"""The service's maximum, ``P10675199DT2H48M5.4775807S``: .NET's ``TimeSpan.MaxValue``."""

_NEARLY_MAX = timedelta(days=10675199)


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A value of a rule with its XML schema type, kept as it was written.

    ``type`` is the local name of the XML schema type (``string``, ``int``, ``long``, ``double``,
    ``boolean``, ``dateTime``, ``duration``, …) and ``text`` its lexical form, so that a value
    is returned exactly; :attr:`value` is the Python value that filters use.
    """

    type: str
    text: str

    @property
    def value(self) -> Scalar:
        """The value as a Python object; ArgumentError when the text does not fit the type."""
        return parse_typed(self.type, self.text)

    @classmethod
    def of(cls, value: object) -> TypedValue:
        """A Python value with its XML schema type; a value of another type becomes a string."""
        match value:
            case bool():
                return cls("boolean", str(value).lower())
            case int():
                return cls("long", str(int(value)))
            case float():
                return cls("double", repr(float(value)))
            case datetime():
                return cls("dateTime", value.isoformat())
        return cls("string", str(value))


Scalar: TypeAlias = "str | int | float | bool | datetime | timedelta | None"
Pairs: TypeAlias = tuple[tuple[str, TypedValue], ...]

INT_TYPES = frozenset(
    {"int", "long", "short", "byte", "unsignedInt", "unsignedLong", "unsignedShort"}
    | {"unsignedByte", "integer"}
)
FLOAT_TYPES = frozenset({"double", "float", "decimal"})


def parse_typed(type_name: str, text: str) -> Scalar:
    """The Python value of *text* read as the XML schema type *type_name*."""
    try:
        if type_name in INT_TYPES:
            number = int(text)
            if not -(1 << 63) <= number < 1 << 64:
                raise ValueError(text)
            return number
        if type_name in FLOAT_TYPES:
            return float(text)
        if type_name == "boolean":
            return parse_boolean(text)
        if type_name == "dateTime":
            moment = datetime.fromisoformat(_trim_fraction(text.strip()))
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        if type_name == "duration":
            return parse_duration(text)
        if type_name in ("string", "guid", "char", "anyURI"):
            return text
    except (ValueError, KeyError, OverflowError):
        raise ArgumentError(f"'{text[:64]}' is not a value of type {type_name}.") from None
    raise ArgumentError(f"The type '{type_name[:64]}' is not supported as a value of a rule.")


def parse_boolean(text: str) -> bool:
    """The value of a boolean of XML schema; KeyError if the text is none."""
    return {"true": True, "1": True, "false": False, "0": False}[text.strip().lower()]


def _trim_fraction(text: str) -> str:
    """.NET writes seven digits of a second and more; Python keeps six."""
    return re.sub(r"(\.\d{6})\d+", r"\1", text)


_DURATION = re.compile(
    r"(-)?P(?:(\d{1,9})Y)?(?:(\d{1,9})M)?(?:(\d{1,9})W)?(?:(\d{1,9})D)?"
    r"(?:T(?:(\d{1,10})H)?(?:(\d{1,12})M)?(?:(\d{1,15})(?:\.(\d{1,12}))?S)?)?",
    re.ASCII,
)


def parse_duration(text: str) -> timedelta:
    """An ISO 8601 duration as a timedelta, capped at the service's maximum."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or text.strip().endswith(("P", "T")):
        raise ArgumentError(f"'{text[:64]}' is not a duration in ISO 8601 form.")
    sign, *numbers, fraction = match.groups()
    years, months, weeks, days, hours, minutes, seconds = (int(number or 0) for number in numbers)
    try:
        value = timedelta(
            days=365 * years + 30 * months + 7 * weeks + days,
            seconds=3600 * hours + 60 * minutes + seconds,
            microseconds=int((fraction or "0")[:6].ljust(6, "0")),
        )
    except OverflowError:
        raise ArgumentError(f"The duration '{text[:64]}' is out of range.") from None
    if sign:
        return -value
    # A client that reads the maximum and writes it back loses some of its last digits.
    return MAX_DURATION if value >= _NEARLY_MAX else value


def format_duration(value: timedelta) -> str:
    """A timedelta as the ISO 8601 duration that the service writes."""
    if value >= MAX_DURATION:
        return "P10675199DT2H48M5.4775807S"
    sign = "-" if value < timedelta() else ""
    value = abs(value)
    hours, rest = divmod(value.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f".{value.microseconds:06d}".rstrip("0") if value.microseconds else ""
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    time += f"{seconds}{fraction}S" if seconds or fraction else ""
    date = f"{value.days}D" if value.days else ""
    if not date and not time:
        return "PT0S"
    return f"{sign}P{date}" + (f"T{time}" if time else "")
