"""From bytes to values: a table of 256 functions on bytes and offset.

Every function takes (buffer, position after the format code, depth) and gives (value, position
after the value). Buffers are as long as what they hold, so reading past the end shows as an
IndexError, a struct.error or an end that lies beyond the buffer; all become a ProtocolError at the
entry points. A hostile sender can neither nest deeper than MAX_DEPTH nor claim more elements than
it sent bytes for: each element of a list or map takes at least one byte, and elements that take
none (an array of `true`) are bounded in number and share their memory.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from pairbus.amqp.errors import ProtocolError, decode_error
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
    Pairs,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

MAX_DEPTH = 64
"""How deep lists, maps, arrays and descriptors may nest."""

MAX_EMPTY_ELEMENTS = 255
"""How many elements without a byte of their own (null, true, false, 0, empty list) an array may
claim; the bound that keeps a few bytes from becoming gigabytes."""

Decoder = Callable[[bytes, int, int], tuple[Any, int]]

# What a malformed buffer raises on the way; entry points turn all of it into ProtocolError.
MALFORMED = (IndexError, struct.error, UnicodeDecodeError)

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


def _unknown(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
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
        raise decode_error(f"no Unicode character: 0x{point:x}")
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
    # A request settles a thousand of these; UUID's own constructor checks what is sure here.
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


def _elements(buf: bytes, pos: int, end: int, count: int, depth: int) -> list[Any]:
    if end > len(buf):
        raise decode_error("compound value longer than its buffer")
    if count > end - pos:
        raise decode_error("more elements than bytes")
    depth += 1
    if depth > MAX_DEPTH:
        raise decode_error(f"nested deeper than {MAX_DEPTH}")
    table = DECODERS
    values: list[Any] = []
    append = values.append
    for _ in range(count):
        code = buf[pos]
        pos += 1
        if code == 0x40:  # most fields of most lists are null
            append(None)
        else:
            value, pos = table[code](buf, pos, depth)
            append(value)
    if pos != end:
        raise decode_error("size and content of a compound value disagree")
    return values


def _list8(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end = pos + 1 + buf[pos]
    return _elements(buf, pos + 2, end, buf[pos + 1], depth), end


def _list32(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end = pos + 4 + _u32(buf, pos)[0]
    return _elements(buf, pos + 8, end, _u32(buf, pos + 4)[0], depth), end


def _mapping(values: list[Any]) -> Any:
    if len(values) % 2:
        raise decode_error("a map with a key that has no value")
    keys = values[::2]
    try:
        result = dict(zip(keys, values[1::2], strict=True))
    except TypeError:  # a list or a map as a key
        return Pairs(zip(keys, values[1::2], strict=True))
    if len(result) != len(keys):  # int 1 and long 1 are two keys in AMQP and one in Python
        return Pairs(zip(keys, values[1::2], strict=True))
    return result


def _map8(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end = pos + 1 + buf[pos]
    return _mapping(_elements(buf, pos + 2, end, buf[pos + 1], depth)), end


def _map32(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end = pos + 4 + _u32(buf, pos)[0]
    return _mapping(_elements(buf, pos + 8, end, _u32(buf, pos + 4)[0], depth)), end


def _array(buf: bytes, pos: int, end: int, count: int, depth: int) -> Array:
    if end > len(buf):
        raise decode_error("array longer than its buffer")
    depth += 1
    descriptors: list[Any] = []
    while buf[pos] == 0:
        depth += 1
        if depth > MAX_DEPTH:
            break
        descriptor, pos = DECODERS[buf[pos + 1]](buf, pos + 2, depth)
        descriptors.append(descriptor)
    if depth > MAX_DEPTH:
        raise decode_error(f"nested deeper than {MAX_DEPTH}")
    code = buf[pos]
    pos += 1
    decoder = DECODERS[code]
    if decoder is _unknown:
        raise decode_error(f"unknown format code 0x{code:02x}")
    if code in EMPTY_CODES:
        if count > MAX_EMPTY_ELEMENTS:
            raise decode_error(f"an array of {count} elements without content")
        items = _empty_items(code, count)
    else:
        if count > end - pos:
            raise decode_error("more elements than bytes")
        values: list[Any] = []
        for _ in range(count):
            value, pos = decoder(buf, pos, depth)
            values.append(value)
        items = tuple(values)
    if pos != end:
        raise decode_error("size and content of an array disagree")
    for descriptor in reversed(descriptors):
        items = tuple(Described(descriptor, item) for item in items)
    return Array(items, code, tuple(descriptors))


_EMPTY: dict[tuple[int, int], tuple[Any, ...]] = {}


def _empty_items(code: int, count: int) -> tuple[Any, ...]:
    """The elements that take no bytes: one tuple per code and count, shared by all arrays."""
    items = _EMPTY.get((code, count))
    if items is None:
        items = _EMPTY[code, count] = (DECODERS[code](b"", 0, 0)[0],) * count
    return items


def _array8(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end = pos + 1 + buf[pos]
    return _array(buf, pos + 2, end, buf[pos + 1], depth), end


def _array32(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end = pos + 4 + _u32(buf, pos)[0]
    return _array(buf, pos + 8, end, _u32(buf, pos + 4)[0], depth), end


def _described(buf: bytes, pos: int, depth: int) -> tuple[Any, int]:
    depth += 1
    if depth > MAX_DEPTH:
        raise decode_error(f"nested deeper than {MAX_DEPTH}")
    descriptor, pos = DECODERS[buf[pos]](buf, pos + 1, depth)
    value, pos = DECODERS[buf[pos]](buf, pos + 1, depth)
    return Described(descriptor, value), pos


EMPTY_CODES = frozenset({0x40, 0x41, 0x42, 0x43, 0x44, 0x45})
"""Format codes of values that consist of their format code alone."""

DECODERS: list[Decoder] = [_unknown] * 256
for _code, _decoder in {
    0x00: _described, 0x40: _null, 0x41: _true, 0x42: _false, 0x43: _uint0, 0x44: _ulong0,
    0x45: _list0, 0x50: _ubyte, 0x51: _byte, 0x52: _smalluint, 0x53: _smallulong,
    0x54: _smallint, 0x55: _smalllong, 0x56: _boolean, 0x60: _ushort, 0x61: _short,
    0x70: _uint, 0x71: _int, 0x72: _float, 0x73: _char, 0x74: _decimal32, 0x80: _ulong,
    0x81: _long, 0x82: _double, 0x83: _timestamp, 0x84: _decimal64, 0x94: _decimal128,
    0x98: _uuid, 0xA0: _vbin8, 0xA1: _str8, 0xA3: _sym8, 0xB0: _vbin32, 0xB1: _str32,
    0xB3: _sym32, 0xC0: _list8, 0xC1: _map8, 0xD0: _list32, 0xD1: _map32, 0xE0: _array8,
    0xF0: _array32,
}.items():  # fmt: skip
    DECODERS[_code] = _decoder


def decode(buf: bytes, pos: int = 0) -> tuple[Any, int]:
    """Decode the value at `pos`; gives it and the position after it.

    Raises:
        ProtocolError: the bytes are no AMQP value (`amqp:decode-error`).
    """
    try:
        return DECODERS[buf[pos]](buf, pos + 1, 0)
    except ProtocolError:
        raise
    except MALFORMED as exc:
        raise decode_error("the value is cut short or malformed") from exc


# The upper half of a format code says how long the value is (part 1, section 1.2.1).
_FIXED = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}


def skip(buf: bytes, pos: int = 0) -> int:
    """The position after the value at `pos`, without decoding it.

    Raises:
        ProtocolError: the value is cut short (`amqp:decode-error`).
    """
    try:
        for _ in range(MAX_DEPTH):
            code = buf[pos]
            pos += 1
            if code != 0:
                break
            pos = skip_plain(buf, pos, buf[pos])
        else:
            raise decode_error(f"nested deeper than {MAX_DEPTH}")
        return skip_plain(buf, pos - 1, code)
    except MALFORMED as exc:
        raise decode_error("the value is cut short") from exc


def skip_plain(buf: bytes, pos: int, code: int) -> int:
    """`skip` for a value with format code `code` at `pos` that has no descriptor."""
    if DECODERS[code] is _unknown or code == 0:
        raise decode_error(f"unknown format code 0x{code:02x}")
    kind = code >> 4
    if kind in (0xA, 0xC, 0xE):
        end = pos + 2 + buf[pos + 1]
    elif kind in (0xB, 0xD, 0xF):
        end = pos + 5 + int(_u32(buf, pos + 1)[0])
    else:
        end = pos + 1 + _FIXED[kind]
    if end > len(buf):
        raise decode_error("the value is longer than its buffer")
    return end
