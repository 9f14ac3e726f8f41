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

_u16 = struct.Struct(">H").unpack_from
_u32 = struct.Struct(">I").unpack_from
_u64 = struct.Struct(">Q").unpack_from
_i16 = struct.Struct(">h").unpack_from
_i32 = struct.Struct(">i").unpack_from
_i64 = struct.Struct(">q").unpack_from
_f32 = struct.Struct(">f").unpack_from
_f64 = struct.Struct(">d").unpack_from
_int_new = int.__new__
_str_new = str.__new__
_object_new = object.__new__
_object_set = object.__setattr__


def unknown(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    """Refuse a format code that is not assigned."""
    raise decode_error(f"unknown format code 0x{buf[pos - 1]:02x}")


def _null(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return None, pos


def _true(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return True, pos


def _false(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return False, pos


def _uint0(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return _int_new(UInt, 0), pos


def _ulong0(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return _int_new(ULong, 0), pos


def _list0(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return [], pos


def _ubyte(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return _int_new(UByte, buf[pos]), pos + 1


def _byte(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    value = buf[pos]
    return _int_new(Byte, value - 256 if value > 127 else value), pos + 1


def _smalluint(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return _int_new(UInt, buf[pos]), pos + 1


def _smallulong(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return _int_new(ULong, buf[pos]), pos + 1


def _smallint(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    value = buf[pos]
    return _int_new(Int, value - 256 if value > 127 else value), pos + 1


def _smalllong(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    value = buf[pos]
    return (value - 256 if value > 127 else value), pos + 1


def _boolean(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    value = buf[pos]
    if value > 1:
        raise decode_error(f"a boolean of 0x{value:02x}")
    return value == 1, pos + 1


def _ushort(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return _int_new(UShort, _u16(buf, pos)[0]), pos + 2


def _short(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return _int_new(Short, _i16(buf, pos)[0]), pos + 2


def _uint(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return _int_new(UInt, _u32(buf, pos)[0]), pos + 4


def _int(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return _int_new(Int, _i32(buf, pos)[0]), pos + 4


def _float(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return Float(_f32(buf, pos)[0]), pos + 4


def _char(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    point = _u32(buf, pos)[0]
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise decode_error(f"not a Unicode character: 0x{point:x}")
    return _str_new(Char, chr(point)), pos + 4


def _ulong(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return _int_new(ULong, _u64(buf, pos)[0]), pos + 8


def _long(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return _i64(buf, pos)[0], pos + 8


def _double(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return _f64(buf, pos)[0], pos + 8


def _timestamp(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return _int_new(Timestamp, _i64(buf, pos)[0]), pos + 8


def _take(buf: bytes, pos: int, width: int) -> bytes:
    end = pos + width
    if end > len(buf):
        raise decode_error("the value is longer than its buffer")
    return buf[pos:end]


def _decimal32(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return Decimal32(_take(buf, pos, 4)), pos + 4


def _decimal64(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return Decimal64(_take(buf, pos, 8)), pos + 8


def _decimal128(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return Decimal128(_take(buf, pos, 16)), pos + 16


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


def _vbin32(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    start = pos + 4
    end = start + _u32(buf, pos)[0]
    if end > len(buf):
        raise decode_error("binary longer than its buffer")
    return buf[start:end], end


def _str8(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    start = pos + 1
    end = start + buf[pos]
    if end > len(buf):
        raise decode_error("string longer than its buffer")
    return buf[start:end].decode(), end


def _str32(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    start = pos + 4
    end = start + _u32(buf, pos)[0]
    if end > len(buf):
        raise decode_error("string longer than its buffer")
    return buf[start:end].decode(), end


def _sym8(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    start = pos + 1
    end = start + buf[pos]
    if end > len(buf):
        raise decode_error("symbol longer than its buffer")
    return _str_new(Symbol, buf[start:end], "ascii"), end


def _sym32(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    start = pos + 4
    end = start + _u32(buf, pos)[0]
    if end > len(buf):
        raise decode_error("symbol longer than its buffer")
    return _str_new(Symbol, buf[start:end], "ascii"), end


PRIMITIVES: dict[int, Decoder] = {
    0x40: _null, 0x41: _true, 0x42: _false, 0x43: _uint0, 0x44: _ulong0,
    0x45: _list0, 0x50: _ubyte, 0x51: _byte, 0x52: _smalluint, 0x53: _smallulong,
    0x54: _smallint, 0x55: _smalllong, 0x56: _boolean, 0x60: _ushort, 0x61: _short,
    0x70: _uint, 0x71: _int, 0x72: _float, 0x73: _char, 0x74: _decimal32, 0x80: _ulong,
    0x81: _long, 0x82: _double, 0x83: _timestamp, 0x84: _decimal64, 0x94: _decimal128,
    0x98: _uuid, 0xA0: _vbin8, 0xA1: _str8, 0xA3: _sym8, 0xB0: _vbin32, 0xB1: _str32,
    0xB3: _sym32,
}  # fmt: skip
"""By format code."""
