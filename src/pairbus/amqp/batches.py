"""Batches: several messages in one delivery, each in a Data section of its own."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from pairbus.amqp.decoder import MALFORMED, decode
from pairbus.amqp.errors import decode_error
from pairbus.amqp.sections import DATA, SEQUENCE, VALUE, section_at

BATCH_FORMAT: Final = 0x80013700
"""The message-format of a batch: a body of Data sections, each a whole message."""

_u32 = struct.Struct(">I").unpack_from
_pack_u32 = struct.Struct(">I").pack


def split_batch(payload: bytes) -> list[bytes]:
    """Return the messages in a delivery of format `BATCH_FORMAT`, each encoded.

    Raises:
        ProtocolError: the body does not consist of Data sections.
    """
    messages: list[bytes] = []
    append = messages.append
    pos = 0
    total = len(payload)
    try:
        while pos < total:
            if payload[pos : pos + 4] == b"\x00\x53\x75\xb0":
                start = pos + 8
                pos = start + _u32(payload, pos + 4)[0]
                append(payload[start:pos])
            elif payload[pos : pos + 4] == b"\x00\x53\x75\xa0":
                start = pos + 5
                pos = start + payload[pos + 4]
                append(payload[start:pos])
            else:
                code, start, end = section_at(payload, pos)
                if code == DATA:
                    value, _ = decode(payload, start)
                    if type(value) is not bytes:
                        raise decode_error("a data section is not a binary")
                    append(value)
                elif code in (SEQUENCE, VALUE):
                    raise decode_error("a batch has a body section that is not data")
                pos = end
    except MALFORMED as exc:
        raise decode_error("the batch is cut short") from exc
    if pos != total:
        raise decode_error("the batch is cut short")
    return messages


def join_batch(messages: Iterable[bytes], head: bytes = b"") -> bytes:
    """Return the payload of a delivery of format `BATCH_FORMAT`, with the sections `head` first."""
    parts = [head]
    append = parts.append
    for message in messages:
        append(b"\x00\x53\x75\xb0" + _pack_u32(len(message)))
        append(message)
    return b"".join(parts)


BATCH_OVERHEAD: Final = 8
"""Bytes that a batch adds to each message."""
