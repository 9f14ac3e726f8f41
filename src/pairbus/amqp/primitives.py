"""Decoders of the primitive types: numbers, text, bytes and the like.

Every function takes (buffer, position after the format code, depth) and returns (value,
position after the value). `pairbus.amqp.decoder` explains how malformed bytes are handled.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from pairbus.amqp.errors import decode_error
from pairbus.amqp.types import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

Decoder = Callable[[bytes, int, int], tuple[Any, int]]

_u32 = struct.Struct(">I").unpack_from
_f32 = struct.Struct(">f").unpack_from
_int_new = int.__new__
_str_new = str.__new__
_object_new = object.__new__
_object_set = object.__setattr__


def unknown(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    """Refuse a format code that is not assigned."""
    raise decode_error(f"unknown format code 0x{buf[pos - 1]:02x}")


def _constant(value: Any) -> Decoder:
    """The decoder of a format code that is the whole value."""
    return lambda buf, pos, depth: (value, pos)


def _list0(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return [], pos


def _small(kind: type[int]) -> Decoder:
    """The decoder of an unsigned integer of one byte."""
    return lambda buf, pos, depth: (_int_new(kind, buf[pos]), pos + 1)


def _integer(kind: type[int], layout: str) -> Decoder:
    """The decoder of an integer with a class of its own in `pairbus.amqp.types`."""
    unpack, width = struct.Struct(layout).unpack_from, struct.calcsize(layout)
    return lambda buf, pos, depth: (_int_new(kind, unpack(buf, pos)[0]), pos + width)


def _plain(layout: str) -> Decoder:
    """The decoder of a number that a plain `int` or `float` stands for."""
    unpack, width = struct.Struct(layout).unpack_from, struct.calcsize(layout)
    return lambda buf, pos, depth: (unpack(buf, pos)[0], pos + width)


def _boolean(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    value = buf[pos]
    if value > 1:
        raise decode_error(f"a boolean of 0x{value:02x}")
    return value == 1, pos + 1


def _float(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return Float(_f32(buf, pos)[0]), pos + 4


def _char(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    point = _u32(buf, pos)[0]
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise decode_error(f"not a Unicode character: 0x{point:x}")
    return _str_new(Char, chr(point)), pos + 4


def _take(buf: bytes, pos: int, width: int) -> bytes:
    end = pos + width
    if end > len(buf):
        raise decode_error("the value is longer than its buffer")
    return buf[pos:end]


def _decimal(kind: type[Decimal32 | Decimal64 | Decimal128]) -> Decoder:
    width = kind.WIDTH
    return lambda buf, pos, depth: (kind(_take(buf, pos, width)), pos + width)


def _uuid(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    # A request settles up to a thousand of these, and the checks of UUID's constructor would
    # be redundant.
    value = _object_new(uuid.UUID)
    _object_set(value, "int", int.from_bytes(_take(buf, pos, 16), "big"))
    _object_set(value, "is_safe", uuid.SafeUUID.unknown)
    return value, pos + 16


def _vbin8(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    start = pos + 1
    end = start + buf[pos]
    if end > len(buf):
        raise decode_error("binary longer than its buffer")
    return buf[start:end], end


def _str8(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    start = pos + 1
    end = start + buf[pos]
    if end > len(buf):
        raise decode_error("string longer than its buffer")
    return buf[start:end].decode(), end


def _sym8(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    start = pos + 1
    end = start + buf[pos]
    if end > len(buf):
        raise decode_error("symbol longer than its buffer")
    return _str_new(Symbol, buf[start:end], "ascii"), end


def _long(convert: Callable[[bytes], Any]) -> Decoder:
    """The decoder of text or bytes with a size of four bytes."""

    def decode(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
        start = pos + 4
        end = start + _u32(buf, pos)[0]
        if end > len(buf):
            raise decode_error("the value is longer than its buffer")
        return convert(buf[start:end]), end

    return decode


PRIMITIVES: dict[int, Decoder] = {
    0x40: _constant(None), 0x41: _constant(True), 0x42: _constant(False),
    0x43: _constant(UInt(0)), 0x44: _constant(ULong(0)), 0x45: _list0, 0x50: _small(UByte),
    0x51: _integer(Byte, ">b"), 0x52: _small(UInt), 0x53: _small(ULong),
    0x54: _integer(Int, ">b"), 0x55: _plain(">b"), 0x56: _boolean, 0x60: _integer(UShort, ">H"),
    0x61: _integer(Short, ">h"), 0x70: _integer(UInt, ">I"), 0x71: _integer(Int, ">i"),
    0x72: _float, 0x73: _char, 0x74: _decimal(Decimal32), 0x80: _integer(ULong, ">Q"),
    0x81: _plain(">q"), 0x82: _plain(">d"), 0x83: _integer(Timestamp, ">q"),
    0x84: _decimal(Decimal64), 0x94: _decimal(Decimal128), 0x98: _uuid, 0xA0: _vbin8,
    0xA1: _str8, 0xA3: _sym8, 0xB0: _long(bytes),
    0xB1: _long(bytes.decode), 0xB3: _long(lambda raw: _str_new(Symbol, raw, "ascii")),
}  # fmt: skip
"""By format code."""
