"""From bytes to values: a table of 256 functions on bytes and offset.

Every function takes (buffer, position after the format code, depth) and returns (value, position
after the value). A buffer ends with its content, so reading past the end causes an IndexError, a
struct.error or an end position beyond the buffer; all become a ProtocolError at the entry points.

A hostile sender can neither nest deeper than MAX_DEPTH nor claim more elements than it sent bytes
for: each element of a list or map takes at least one byte, and elements that take none (an array of
`true`) are bounded in number and share their memory.
"""

from __future__ import annotations

import struct
from typing import Any

from pairbus.amqp.errors import ProtocolError, decode_error
from pairbus.amqp.primitives import PRIMITIVES, Decoder, unknown
from pairbus.amqp.types import Array, Described, Pairs, Uuids

MAX_DEPTH = 64
"""How deep lists, maps, arrays and descriptors may nest."""

MAX_EMPTY_ELEMENTS = 255
"""How many elements without a byte of their own (null, true, false, 0, empty list) an array may
claim; the bound that keeps a few bytes from becoming gigabytes."""

# Errors that a malformed buffer causes; the entry points turn them into ProtocolError.
MALFORMED = (IndexError, struct.error, UnicodeDecodeError)

_u32 = struct.Struct(">I").unpack_from


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
    start = pos
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
    if code == 0x98 and not descriptors:
        if count * 16 != end - pos:
            raise decode_error("size and content of an array disagree")
        return Uuids(buf[pos:end])
    if decoder is unknown:
        raise decode_error(f"unknown format code 0x{code:02x}")
    if count * len(descriptors) > end - start:  # every descriptor makes an object of each element
        raise decode_error("more elements than bytes")
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
    return Array(items, source=(buf, start, end))


_EMPTY: dict[tuple[int, int], tuple[Any, ...]] = {}


def _empty_items(code: int, count: int) -> tuple[Any, ...]:
    """Return elements that take no bytes: one tuple per code and count, shared by all arrays."""
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

DECODERS: list[Decoder] = [unknown] * 256
for _code, _decoder in {
    **PRIMITIVES, 0x00: _described, 0xC0: _list8, 0xC1: _map8, 0xD0: _list32, 0xD1: _map32,
    0xE0: _array8, 0xF0: _array32,
}.items():  # fmt: skip
    DECODERS[_code] = _decoder


def decode(buf: bytes, pos: int = 0) -> tuple[Any, int]:
    """Decode the value at `pos`; return it and the position after it.

    Raises:
        ProtocolError: the bytes are not an AMQP value (`amqp:decode-error`).
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
    """Return the position after the value at `pos`, without decoding it.

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
    """Skip a value without descriptor, whose format code at `pos` is `code`."""
    if DECODERS[code] is unknown or code == 0:
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
