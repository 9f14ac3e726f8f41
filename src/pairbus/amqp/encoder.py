"""From values to bytes: the shortest form of each value, chosen by its Python type."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Pairs,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Uuids,
)

Encoder = Callable[[Any], bytes]

_u32 = struct.Struct(">I").pack
_BYTES = [bytes((n,)) for n in range(256)]


def _pack(code: int, layout: str) -> Encoder:
    pack = struct.Struct(">B" + layout).pack
    return lambda value: pack(code, value)


_uint_long = _pack(0x70, "I")
_ulong_long = _pack(0x80, "Q")
_int_long = _pack(0x71, "i")
_long_long = _pack(0x81, "q")


def encode_uint(value: int) -> bytes:
    """Encode a uint in its shortest form."""
    if value == 0:
        return b"\x43"
    return b"\x52" + _BYTES[value] if 0 < value < 256 else _uint_long(value)


def encode_ulong(value: int) -> bytes:
    """Encode a ulong in its shortest form."""
    if value == 0:
        return b"\x44"
    return b"\x53" + _BYTES[value] if 0 < value < 256 else _ulong_long(value)


def _int(value: int) -> bytes:
    return b"\x54" + _BYTES[value & 0xFF] if -128 <= value <= 127 else _int_long(value)


def _long(value: int) -> bytes:
    return b"\x55" + _BYTES[value & 0xFF] if -128 <= value <= 127 else _long_long(value)


def encode_bool(value: bool) -> bytes:
    """Encode a boolean in its shortest form."""
    return b"\x41" if value else b"\x42"


def encode_binary(value: bytes) -> bytes:
    """Encode a binary in its shortest form."""
    size = len(value)
    return b"\xa0" + _BYTES[size] + value if size < 256 else b"\xb0" + _u32(size) + value


def encode_string(value: str) -> bytes:
    """Encode a string in its shortest form."""
    raw = value.encode()
    size = len(raw)
    return b"\xa1" + _BYTES[size] + raw if size < 256 else b"\xb1" + _u32(size) + raw


def encode_symbol(value: str) -> bytes:
    """Encode a symbol in its shortest form."""
    raw = value.encode("ascii")
    size = len(raw)
    return b"\xa3" + _BYTES[size] + raw if size < 256 else b"\xb3" + _u32(size) + raw


def encode_compound(code8: int, code32: int, count: int, body: bytes) -> bytes:
    """Encode a list or a map whose elements are already encoded."""
    size = len(body)
    if size < 255 and count < 256:
        return bytes((code8, size + 1, count)) + body
    return _BYTES[code32] + _u32(size + 4) + _u32(count) + body


def _list(values: Sequence[Any]) -> bytes:
    if not values:
        return b"\x45"
    return encode_compound(0xC0, 0xD0, len(values), b"".join([encode(v) for v in values]))


def encode_map(values: dict[Any, Any]) -> bytes:
    """Encode a map, in the order of the dict."""
    return _pairs(values.items())


def _pairs(pairs: Any) -> bytes:
    parts = []
    for key, value in pairs:
        parts.append(encode(key))
        parts.append(encode(value))
    return encode_compound(0xC1, 0xD1, len(parts), b"".join(parts))


def _char(value: str) -> bytes:
    return b"\x73" + _u32(ord(value))


def _described(value: Described) -> bytes:
    return b"\x00" + encode(value.descriptor) + encode(value.value)


def _array(value: Array) -> bytes:
    raw = value.raw
    if raw is not None:
        return encode_compound(0xE0, 0xF0, len(value), raw)
    items: Sequence[Any] = value.items
    constructor = b""
    while items and isinstance(items[0], Described):
        constructor += b"\x00" + encode(items[0].descriptor)
        items = [item.value for item in items]
    code = value.code
    element: Encoder = _nothing
    if items:
        code, element = _ELEMENTS[_known(type(items[0]), _ELEMENTS)]
    body = constructor + _BYTES[code] + b"".join([element(item) for item in items])
    return encode_compound(0xE0, 0xF0, len(items), body)


def _sized32(raw: bytes) -> bytes:
    return _u32(len(raw)) + raw


def _element(layout: str) -> Encoder:
    return struct.Struct(">" + layout).pack


def _compound(code32: int) -> Encoder:
    """Return an encoder for a compound element with four-byte size and count."""

    def element(value: Any) -> bytes:
        raw = encode(value)
        if raw == b"\x45":
            return b"\x00\x00\x00\x04\x00\x00\x00\x00"
        if raw[0] == code32:
            return raw[1:]
        return _u32(len(raw) + 1) + _u32(raw[2]) + raw[3:]  # from one-byte size and count

    return element


def _nothing(value: Any) -> bytes:
    return b""


_ELEMENTS: dict[type, tuple[int, Encoder]] = {
    type(None): (0x40, _nothing), bool: (0x56, _element("?")), UByte: (0x50, _element("B")),
    Byte: (0x51, _element("b")), UShort: (0x60, _element("H")), Short: (0x61, _element("h")),
    UInt: (0x70, _element("I")), Int: (0x71, _element("i")), Float: (0x72, _element("f")),
    Char: (0x73, lambda c: _u32(ord(c))), Decimal32: (0x74, bytes), ULong: (0x80, _element("Q")),
    int: (0x81, _element("q")), float: (0x82, _element("d")), Timestamp: (0x83, _element("q")),
    Decimal64: (0x84, bytes), Decimal128: (0x94, bytes), uuid.UUID: (0x98, lambda u: u.bytes),
    bytes: (0xB0, _sized32), str: (0xB1, lambda s: _sized32(s.encode())),
    Symbol: (0xB3, lambda s: _sized32(s.encode("ascii"))), list: (0xD0, _compound(0xD0)),
    tuple: (0xD0, _compound(0xD0)), dict: (0xD1, _compound(0xD1)), Pairs: (0xD1, _compound(0xD1)),
    Array: (0xF0, _compound(0xF0)),
}  # fmt: skip
"""The format code of an array by the type of its elements, and how an element is written."""

ENCODERS: dict[type, Encoder] = {
    type(None): lambda value: b"\x40", bool: encode_bool, UByte: lambda v: b"\x50" + _BYTES[v],
    Byte: lambda v: b"\x51" + _BYTES[v & 0xFF], UShort: _pack(0x60, "H"), Short: _pack(0x61, "h"),
    UInt: encode_uint, Int: _int, ULong: encode_ulong, int: _long, Long: _long,
    Timestamp: _pack(0x83, "q"), Float: _pack(0x72, "f"), float: _pack(0x82, "d"), Char: _char,
    Decimal32: lambda v: b"\x74" + v, Decimal64: lambda v: b"\x84" + v,
    Decimal128: lambda v: b"\x94" + v, uuid.UUID: lambda v: b"\x98" + v.bytes,
    bytes: encode_binary, bytearray: encode_binary, memoryview: lambda v: encode_binary(bytes(v)),
    str: encode_string, Symbol: encode_symbol, list: _list, tuple: _list, dict: encode_map,
    Pairs: _pairs, Array: _array, Uuids: _array, Described: _described,
}  # fmt: skip
"""How a value is written, by its type; a subclass is written as its nearest base."""


def _known(kind: type, table: dict[type, Any]) -> type:
    for base in kind.__mro__:
        if base in table:
            return base
    raise TypeError(f"{kind.__name__} has no AMQP type")


def encode(value: Any) -> bytes:
    """Encode a value in the shortest form of its AMQP type.

    Raises:
        TypeError: the Python type has no AMQP type.
        ValueError, struct.error: the value does not fit its AMQP type.
    """
    encoder = ENCODERS.get(type(value))
    if encoder is None:
        encoder = ENCODERS[_known(type(value), ENCODERS)]
    return encoder(value)
