"""Reads, compares and calculates values of the SQL filter language.

The domain is small: None (null, missing, unknown), bool, int, float, str, bytes, UUID, datetime
and timedelta. AMQP integers of all widths are one type, as are floats, and an integer is converted
to a float where the two are combined: the promotions of C#, which the service follows. Types that
C# cannot compare or add raise :class:`FilterError`, and the message is dead-lettered or dropped, as
the subscription is configured. A string can be compared with a GUID, which has no literal form.
"""

from __future__ import annotations

import functools
import math
import operator as op
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from pairbus.amqp.types import Described, Symbol, Timestamp, ULong
from pairbus.broker.entities.errors import ArgumentError

Value: TypeAlias = bool | int | float | str | bytes | uuid.UUID | datetime | timedelta | None

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICKS_AT_EPOCH = 621_355_968_000_000_000
_LOWEST, _HIGHEST = -(1 << 63), (1 << 64) - 1
MAX_STRING = 65536


class FilterError(ArgumentError):
    """A rule could not be evaluated on this message; the text is the reason."""


def read(raw: Any) -> Value:
    """Convert an AMQP value."""
    kind = type(raw)
    if raw is None or kind is str or kind is int or kind is bool or kind is float:
        return raw  # type: ignore[no-any-return]
    if isinstance(raw, Timestamp):
        try:
            return _EPOCH + timedelta(milliseconds=int(raw))
        except OverflowError:
            raise FilterError("A time is out of range.") from None
    if isinstance(raw, int):
        return int(raw)
    if isinstance(raw, float):
        return float(raw)
    if isinstance(raw, str):
        return str(raw)
    if isinstance(raw, datetime | timedelta | uuid.UUID):
        return raw
    if kind is bytes:
        return bytes(raw)
    if isinstance(raw, Described):
        return _read_described(raw)
    raise FilterError(f"A property of type {kind.__name__} cannot be used in a rule.")


def _read_described(raw: Described) -> Value:
    try:
        match raw.descriptor:
            case "com.microsoft:timespan":
                return timedelta(microseconds=raw.value // 10)
            case "com.microsoft:datetime-offset":
                return _EPOCH + timedelta(microseconds=(raw.value - _TICKS_AT_EPOCH) // 10)
            case "com.microsoft:uri":
                return str(raw.value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise FilterError("A property of a described type cannot be used in a rule.")


def write(value: Value) -> Any:
    """The AMQP form of a value that a rule computed."""
    if isinstance(value, datetime):
        return Timestamp((value - _EPOCH) // timedelta(milliseconds=1))
    if isinstance(value, timedelta):
        ticks = value // timedelta(microseconds=1) * 10
        return Described(Symbol("com.microsoft:timespan"), ticks)
    if type(value) is int and value >= 1 << 63:
        return ULong(value)
    return value


def text_of(value: Value) -> str | None:
    """The text of a value, for a concatenation or a text property."""
    match value:
        case None | str():
            return value
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case bytes():
            raise FilterError("Binary has no text.")
        case _:
            return str(value)


def type_name(value: Value) -> str:
    """The name of a value's type, for errors, which do not contain the value itself."""
    return type(value).__name__


def is_same(left: Value, right: Value) -> bool:
    """Whether two values are equal; values of different types are not."""
    pair = None if left is None or right is None else _align(left, right)
    return pair is not None and bool(pair[0] == pair[1])


_OPERATORS = {"=": op.eq, "<>": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}


def compare(operator: str, left: Value, right: Value) -> bool | None:
    """The result of a comparison operator; None when a side is unknown.

    Raises:
        FilterError: values of these types cannot be compared, or have no order.
    """
    if left is None or right is None:
        return None
    pair = _align(left, right)
    if operator in ("=", "<>"):
        if pair is None:
            raise FilterError(f"Cannot compare {type_name(left)} with {type_name(right)}.")
    elif pair is None or isinstance(pair[0], bool | bytes | uuid.UUID):
        raise FilterError(f"Cannot order {type_name(left)} and {type_name(right)}.")
    return bool(_OPERATORS[operator](*pair))


def _align(left: Value, right: Value) -> tuple[Any, Any] | None:
    """Both values in a common type in which they can be compared, or None."""
    a, b = type(left), type(right)
    if a is b:
        return left, right
    if a in (int, float) and b in (int, float):
        return left, right  # Python compares them exactly
    if a is uuid.UUID and b is str:
        return str(left), str(right).lower()
    if a is str and b is uuid.UUID:
        return str(left).lower(), str(right)
    return None


def sign(operator: str, value: Value) -> Value:
    """A value with a plus or minus in front."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise FilterError(f"Cannot put a sign before {type_name(value)}.")
    return _bounded(-value if operator == "-" else value)


def calculate(operator: str, left: Value, right: Value) -> Value:
    """The result of an arithmetic operator; None when a side is unknown."""
    if left is None or right is None:
        return None
    if operator == "+" and (isinstance(left, str) or isinstance(right, str)):
        return _bounded((text_of(left) or "") + (text_of(right) or ""))
    if _is_number(left) and _is_number(right):
        return _bounded(_number(operator, left, right))  # type: ignore[arg-type]
    try:
        match operator, left, right:
            case "+", datetime() | timedelta(), timedelta():
                return left + right
            case "+", timedelta(), datetime():
                return right + left
            case "-", datetime(), datetime() | timedelta():
                return left - right
            case "-", timedelta(), timedelta():
                return left - right
    except OverflowError:
        raise FilterError("The result of an operation is out of range.") from None
    raise FilterError(
        f"Operator '{operator}' does not apply to {type_name(left)} and {type_name(right)}."
    )


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {"+": op.add, "-": op.sub, "*": op.mul}


def _number(operator: str, left: float, right: float) -> int | float:
    if operator in _ARITHMETIC:
        return _ARITHMETIC[operator](left, right)
    if isinstance(left, int) and isinstance(right, int):
        if right == 0:
            raise FilterError("Division by zero.")
        quotient = abs(left) // abs(right)
        if operator == "/":  # rounds towards zero, and the remainder has the dividend's sign
            return quotient if (left < 0) == (right < 0) else -quotient
        rest = abs(left) - quotient * abs(right)
        return -rest if left < 0 else rest
    a, b = float(left), float(right)
    if operator == "%":
        return math.nan if b == 0 or math.isinf(a) or math.isnan(a) else math.fmod(a, b)
    if b == 0:
        if a == 0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _bounded(value: Value) -> Value:
    if isinstance(value, int) and not _LOWEST <= value <= _HIGHEST:
        raise FilterError("The result of an operation does not fit into 64 bits.")
    if isinstance(value, str) and len(value) > MAX_STRING:
        raise FilterError("The result of an operation is too long.")
    return value


@functools.lru_cache(maxsize=256)
def like_pattern(pattern: str, escape: str | None = None) -> re.Pattern[str]:
    """A pattern of LIKE, for `fullmatch`: ``%`` is any text, ``_`` any one character.

    Both can be escaped. The parts between the ``%`` are searched from left to right without
    backtracking, so that no pattern makes it slow.
    """
    parts: list[list[str]] = [[]]  # of single characters, as regular expressions
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                raise FilterError("The pattern of LIKE ends with its escape character.")
            parts[-1].append(re.escape(following))
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append("." if character == "_" else re.escape(character))
    first, *middle = map("".join, parts)
    if middle:
        last = middle.pop()
        first += "".join(f"(?>.*?{part})" for part in middle)
        first += f".{{{len(parts[-1])},}}+(?<={last})"
    return re.compile(first, re.DOTALL)
