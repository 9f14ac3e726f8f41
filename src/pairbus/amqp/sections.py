"""The sections of a message (part 3, section 3.2), and how to find them in its bytes."""

from __future__ import annotations

import struct
from typing import Any

from pairbus.amqp.composite import Composite, composite
from pairbus.amqp.decoder import MALFORMED, decode, skip, skip_plain
from pairbus.amqp.errors import decode_error

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS = 0x70, 0x71, 0x72
PROPERTIES, APPLICATION_PROPERTIES = 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78

SECTION_NAMES = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
_u32 = struct.Struct(">I").unpack_from


@composite(HEADER, "amqp:header:list", "boolean ubyte uint boolean uint")
class Header(Composite):
    """Part 3, section 3.2.1."""

    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int | None = None


@composite(
    PROPERTIES,
    "amqp:properties:list",
    "id binary any string any id symbol symbol timestamp timestamp string uint string",
)
class Properties(Composite):
    """Part 3, section 3.2.4."""

    message_id: Any = None
    user_id: bytes | None = None
    to: Any = None
    subject: str | None = None
    reply_to: Any = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


def section_at(buf: bytes, pos: int) -> tuple[int, int, int]:
    """Return code, start of the value and end of the section at `pos`.

    Raises:
        ProtocolError: there is no message section at `pos`.
    """
    try:
        if buf[pos] == 0:
            if buf[pos + 1] == 0x53:
                code = buf[pos + 2]
                start = pos + 3
                kind = buf[start]
                if (kind == 0xC0 or kind == 0xC1) and HEADER <= code <= FOOTER:
                    end = start + 2 + buf[start + 1]  # a short list or map: the usual case
                    if end <= len(buf):
                        return code, start, end
            else:
                descriptor, start = decode(buf, pos + 1)
                if isinstance(descriptor, str):
                    descriptor = SECTION_NAMES.get(descriptor, 0)
                code = descriptor if isinstance(descriptor, int) else 0
            if HEADER <= code <= FOOTER:
                if buf[start] == 0:
                    return code, start, skip(buf, start)
                return code, start, skip_plain(buf, start, buf[start])
    except MALFORMED as exc:
        raise decode_error("the message is cut short") from exc
    raise decode_error("not a message section")


def raw_entries(section: bytes) -> dict[Any, bytes]:
    """Return the entries of a map section: the encoded key and value, by key."""
    _, start, end = section_at(section, 0)
    return raw_map_entries(section, start, end)


def raw_map_entries(buf: bytes, start: int, end: int) -> dict[Any, bytes]:
    """Return the entries of the map at `start`: the encoded key and value, by key."""
    try:
        kind = buf[start]
        if kind == 0xC1:
            count, pos = buf[start + 2], start + 3
        elif kind == 0xD1:
            count, pos = _u32(buf, start + 5)[0], start + 9
        else:
            raise decode_error("a message section is not a map")
        entries = {}
        for _ in range(count // 2):
            key, after = decode(buf, pos)
            stop = skip(buf, after)
            entries[key] = buf[pos:stop]
            pos = stop
    except (*MALFORMED, TypeError) as exc:
        raise decode_error("a map section is cut short or malformed") from exc
    if pos != end:
        raise decode_error("size and content of a map disagree")
    return entries
