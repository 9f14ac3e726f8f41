"""The fields of a message that a broker needs, read in one pass.

The result is the same as with `Message`, at a third of the cost. Every incoming message takes this
path.
"""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from pairbus.amqp.decoder import DECODERS, MALFORMED, decode, skip
from pairbus.amqp.errors import INVALID_FIELD, ProtocolError, decode_error
from pairbus.amqp.sections import HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, Header, section_at
from pairbus.amqp.types import Symbol, Timestamp, ULong


class Summary(NamedTuple):
    """The fields that decide how a message is handled; None for a field that is not set."""

    durable: bool | None
    priority: int | None
    ttl: int | None
    annotations: bytes
    """The message annotations as an encoded map; empty if there are none."""
    message_id: Any
    content_type: str | None
    absolute_expiry_time: int | None
    creation_time: int | None
    group_id: str | None
    bare: bytes


_Head = tuple[bool | None, int | None, int | None]
_heads: dict[bytes, _Head] = {}  # a cache: a client usually sends the same header each time
_MAX_HEADS = 256


def _read_header(raw: bytes) -> _Head:
    """Return durable, priority and ttl of an encoded header."""
    header = Header.from_list(DECODERS[raw[0]](raw, 1, 0)[0])
    head = header.durable, header.priority, header.ttl
    if len(_heads) < _MAX_HEADS:
        _heads[raw] = head
    return head


# The types that the wanted fields of the properties may have; None for the others.
_PROPERTY_TYPES: list[tuple[type, ...] | None] = [
    (str, uuid.UUID, ULong, bytes), None, None, None, None, None, (Symbol,), None, (Timestamp,),
    (Timestamp,), (str,), None, None,
]  # fmt: skip


def _wrong_type() -> ProtocolError:
    return ProtocolError(INVALID_FIELD, "a field of the properties has a wrong type")


def _read_properties(buf: bytes, start: int, end: int) -> list[Any]:
    """Return the fields of the properties that `Summary` has, by their index in the list."""
    found: list[Any] = [None] * 13
    kind = buf[start]
    if kind == 0x45:
        return found
    if kind == 0xC0:
        count, pos = buf[start + 2], start + 3
    elif kind == 0xD0:
        count, pos = int.from_bytes(buf[start + 5 : start + 9], "big"), start + 9
    else:
        raise decode_error("the properties are not a list")
    if count > 13:
        raise decode_error("the properties have more than 13 fields")
    for index in range(count):
        code = buf[pos]
        pos += 1
        if code == 0x40:
            continue
        types = _PROPERTY_TYPES[index]
        if code == 0xA1:  # a short string, the most frequent type
            stop = pos + 1 + buf[pos]
            if types is not None:
                if str not in types:
                    raise _wrong_type()
                found[index] = buf[pos + 1 : stop].decode()
            pos = stop
        elif types is None:
            pos = skip(buf, pos - 1)
        else:
            value, pos = DECODERS[code](buf, pos, 0)
            if type(value) not in types:
                raise _wrong_type()
            found[index] = value
    if pos != end:
        raise decode_error("size and content of the properties disagree")
    return found


_NOTHING: list[Any] = [None] * 13
_new = tuple.__new__
_USUAL = frozenset({b"\x00\x53\x70", b"\x00\x53\x72", b"\x00\x53\x73"})
_SHORT = b"\xc0\xc1"  # lists and maps of less than 256 bytes


def summarize(payload: bytes) -> Summary:
    """Read a message's summary.

    Raises:
        ProtocolError: the message is malformed.
    """
    durable = priority = ttl = None
    annotations = b""
    properties = _NOTHING
    pos = last = 0
    total = len(payload)
    try:
        while pos < total:
            start = pos + 3
            if payload[pos:start] in _USUAL and payload[start] in _SHORT:
                code = payload[start - 1]
                end = start + 2 + payload[start + 1]
                if end > total:
                    raise decode_error("the message is cut short")
            else:
                code, start, end = section_at(payload, pos)
            if code <= last:
                raise decode_error("message sections out of order")
            last = code
            if code >= PROPERTIES:
                if code == PROPERTIES:
                    properties = _read_properties(payload, start, end)
                break
            if code == HEADER:
                raw = payload[start:end]
                durable, priority, ttl = _heads.get(raw) or _read_header(raw)
            elif code == MESSAGE_ANNOTATIONS:
                annotations = payload[start:end]
            pos = end
    except MALFORMED as exc:
        raise decode_error("the message is cut short or malformed") from exc
    # The constructor of the named tuple would take three times as long.
    return _new(Summary, (
        durable, priority, ttl, annotations, properties[0], properties[6], properties[8],
        properties[9], properties[10], payload[pos:] if pos else payload,
    ))  # fmt: skip


def find_entries(buf: bytes, start: int, wanted: frozenset[bytes]) -> dict[bytes, Any]:
    """Return the wanted entries of the map at `start`; the others are not decoded.

    Keys are compared as the bytes of their names, whether symbols or strings.

    Raises:
        ProtocolError: there is no map at `start`, or it is malformed.
    """
    found: dict[bytes, Any] = {}
    try:
        kind = buf[start]
        if kind == 0xC1:
            end, count, pos = start + 2 + buf[start + 1], buf[start + 2], start + 3
        elif kind == 0xD1:
            end = start + 5 + int.from_bytes(buf[start + 1 : start + 5], "big")
            count, pos = int.from_bytes(buf[start + 5 : start + 9], "big"), start + 9
        else:
            raise decode_error("the annotations are not a map")
        if end > len(buf) or count % 2 or count > end - pos:
            raise decode_error("the annotations are cut short")
        for _ in range(count // 2):
            if buf[pos] == 0xA3:
                after = pos + 2 + buf[pos + 1]
                name = buf[pos + 2 : after]
            else:
                key, after = decode(buf, pos)
                name = key.encode() if isinstance(key, str) else b""
            if name in wanted:
                found[name], pos = DECODERS[buf[after]](buf, after + 1, 0)
            else:
                pos = skip(buf, after)
    except MALFORMED as exc:
        raise decode_error("the annotations are cut short") from exc
    if pos != end:
        raise decode_error("size and content of the annotations disagree")
    return found
