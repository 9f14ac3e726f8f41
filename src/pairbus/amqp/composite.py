"""Composite types: described lists with named, typed fields (part 1, section 1.4).

A composite is a dataclass whose fields stand in the order of the specification. All fields are
always written, trailing nulls included: azure-servicebus 7.14.3 reads them without checking their
number.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from pairbus.amqp.decoder import decode
from pairbus.amqp.encoder import (
    ENCODERS,
    encode,
    encode_compound,
    encode_map,
    encode_symbol,
    encode_ulong,
)
from pairbus.amqp.errors import INVALID_FIELD, ProtocolError, decode_error
from pairbus.amqp.types import Array, Described, Symbol, Timestamp, UByte, UInt, ULong, UShort


@dataclass(slots=True)
class Composite:
    """Base of all composite types."""

    CODE: ClassVar[int]
    NAME: ClassVar[str]
    PLAN: ClassVar[_Plan]

    def encode(self) -> bytes:
        """Return the described list, with every field."""
        plan = self.PLAN
        parts = []
        for name, encoder in plan.encoders:
            value = getattr(self, name)
            parts.append(b"\x40" if value is None else encoder(value))
        if not parts:
            return plan.prefix + b"\x45"
        return plan.prefix + encode_compound(0xC0, 0xD0, len(parts), b"".join(parts))

    @classmethod
    def from_list(cls, values: object) -> Self:
        """Return the composite of a decoded list; missing and null fields get their defaults."""
        if not isinstance(values, list):
            raise decode_error(f"{cls.NAME} is not a list")
        plan = cls.PLAN
        checks = plan.checks
        if len(values) > len(checks):
            raise decode_error(f"{cls.NAME} has {len(values)} fields")
        arguments = plan.defaults.copy()
        index = 0
        try:
            for index, value in enumerate(values):
                if value is not None:
                    arguments[index] = checks[index](value)
        except (TypeError, ValueError) as exc:
            raise ProtocolError(
                INVALID_FIELD, f"{cls.NAME}.{plan.names[index]} has a wrong type"
            ) from exc
        for index in plan.mandatory:
            if index >= len(values) or values[index] is None:
                raise ProtocolError(INVALID_FIELD, f"{cls.NAME}.{plan.names[index]} is missing")
        return cls(*arguments)


class _Plan:
    """How to encode and check the fields of one class, computed once."""

    __slots__ = ("checks", "defaults", "encoders", "mandatory", "names", "prefix")

    def __init__(self, kind: type[Composite], code: int, wire: str) -> None:
        wires = wire.split()
        types = [_TYPES[one.rstrip("!")] for one in wires]
        self.names = [field.name for field in fields(kind)]
        self.prefix = b"\x00" + encode_ulong(code)
        self.encoders = [
            (name, encoder) for name, (encoder, _) in zip(self.names, types, strict=True)
        ]
        self.checks = [check for _, check in types]
        self.mandatory = [index for index, one in enumerate(wires) if one.endswith("!")]
        self.defaults = [None if f.default is MISSING else f.default for f in fields(kind)]


_by_code: dict[int, type[Composite]] = {}
_by_name: dict[str, type[Composite]] = {}


_C = TypeVar("_C", bound=Composite)


@dataclass_transform(field_specifiers=(field,))
def composite(code: int, name: str, wire: str = "") -> Callable[[type[_C]], type[_C]]:
    """Make a composite of a class, and make it known to `compose` by its code and its symbol.

    Args:
        code: The numeric descriptor.
        name: The symbolic descriptor.
        wire: The AMQP type of each field, with `!` if the field is mandatory and `*` if it may be
            one value or an array of values.
    """

    def make(kind: type[_C]) -> type[_C]:
        made = dataclass(slots=True)(kind)
        made.CODE, made.NAME, made.PLAN = code, name, _Plan(made, code, wire)
        _by_code[code] = _by_name[name] = made
        return made

    return make


def compose(value: object) -> Any:
    """Return the composite of a decoded described value; any other value is returned as it is."""
    if isinstance(value, Described):
        descriptor = value.descriptor
        if isinstance(descriptor, int):
            kind = _by_code.get(descriptor)
        else:
            kind = _by_name.get(descriptor) if isinstance(descriptor, str) else None
        if kind is not None:
            return kind.from_list(value.value)
    return value


def decode_composite(buf: bytes, pos: int = 0) -> tuple[Any, int]:
    """Decode the value at `pos`; a known composite becomes its class."""
    value, pos = decode(buf, pos)
    return compose(value), pos


def _encode_any(value: Any) -> bytes:
    return value.encode() if isinstance(value, Composite) else encode(value)


def _encode_symbols(value: Any) -> bytes:
    if isinstance(value, str):
        return encode_symbol(value)
    return encode(Array((Symbol(item) for item in value), 0xB3))


def _encode_fields(value: dict[Any, Any]) -> bytes:
    """Encode a map whose keys are symbols (part 2, section 2.8.13)."""
    return encode_map(
        {Symbol(key) if type(key) is str else key: item for key, item in value.items()}
    )


def _exactly(*kinds: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError(type(value).__name__)
        return value

    return check


def _number(kind: type[int]) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if type(value) is not kind:
            raise TypeError(type(value).__name__)
        return int(value)

    return check


def _symbols(value: Any) -> Any:
    if isinstance(value, Array):
        if all(type(item) is Symbol for item in value.items):
            return list(value.items)
    elif type(value) is Symbol:
        return [value]
    raise TypeError(type(value).__name__)


def _composite(*names: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        value = compose(value)
        if not isinstance(value, Composite) or value.NAME not in names:
            raise TypeError(type(value).__name__)
        return value

    return check


_NUMBERS = {"ubyte": UByte, "ushort": UShort, "uint": UInt, "ulong": ULong}
_EXACT = {
    "boolean": bool, "timestamp": Timestamp, "binary": bytes, "string": str, "symbol": Symbol,
    "map": dict,
}  # fmt: skip
_TYPES: dict[str, tuple[Callable[[Any], bytes], Callable[[Any], Any]]] = {
    **{name: (ENCODERS[kind], _number(kind)) for name, kind in _NUMBERS.items()},
    **{name: (ENCODERS[kind], _exactly(kind)) for name, kind in _EXACT.items()},
    "any": (_encode_any, compose),
    "error": (_encode_any, _composite("amqp:error:list")),
    "source": (_encode_any, _composite("amqp:source:list")),
    "target": (_encode_any, _composite("amqp:target:list", "amqp:coordinator:list")),
    "symbol*": (_encode_symbols, _symbols),
    "fields": (_encode_fields, _exactly(dict)),
    "id": (encode, _exactly(ULong, uuid.UUID, bytes, str)),
}
"""How a field is encoded and checked, by its AMQP type."""
