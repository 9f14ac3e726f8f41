"""Messages as a broker delivers them, assembled from parts that are already encoded."""

from __future__ import annotations

import struct

from pairbus.amqp.encoder import encode
from pairbus.amqp.sections import Header
from pairbus.amqp.types import Symbol

_pack_u32 = struct.Struct(">I").pack


def header_head(header: Header | None) -> bytes:
    """Encode a header up to its delivery count, for `render`."""
    if header is None:
        return b"\x00\x53\x70\xc0\x0a\x05\x40\x40\x40\x40"
    durable, priority, ttl, first = (
        header.durable, header.priority, header.ttl, header.first_acquirer,
    )  # fmt: skip
    body = b"".join((
        b"\x40" if durable is None else b"\x41" if durable else b"\x42",
        b"\x40" if priority is None else bytes((0x50, priority)),
        b"\x40" if ttl is None else b"\x70" + _pack_u32(ttl),
        b"\x40" if first is None else b"\x41" if first else b"\x42",
    ))  # fmt: skip
    return b"\x00\x53\x70\xc0" + bytes((len(body) + 6, 5)) + body


LOCK_TOKEN_SECTION = b"\x00\x53\x71\xc1\x24\x02" + encode(Symbol("x-opt-lock-token")) + b"\x98"
LOCKED_UNTIL = encode(Symbol("x-opt-locked-until")) + b"\x83"
_pack_i64 = struct.Struct(">q").pack


def render(
    head: bytes,
    delivery_count: int,
    entries: bytes,
    entry_count: int,
    bare: bytes,
    *,
    lock_token: bytes | None = None,
    locked_until: int | None = None,
) -> bytes:
    """Return a message as a broker delivers it.

    Args:
        head: the header up to its delivery count, from `header_head`.
        delivery_count: the number of earlier deliveries.
        entries: the message annotations: encoded keys and values in turn.
        entry_count: the number of entries in `entries`.
        bare: everything from the properties on.
        lock_token: 16 bytes (in the order of `UUID.bytes`), for `x-opt-lock-token`.
        locked_until: milliseconds since 1970, for `x-opt-locked-until`.
    """
    parts = [head, b"\x70", _pack_u32(delivery_count)]
    if lock_token is not None:
        parts.append(LOCK_TOKEN_SECTION)
        parts.append(lock_token)
    if locked_until is not None:
        entries = entries + LOCKED_UNTIL + _pack_i64(locked_until)
        entry_count += 1
    if entry_count:
        size = len(entries)
        if size < 255 and entry_count < 128:
            parts.append(b"\x00\x53\x72\xc1" + bytes((size + 1, 2 * entry_count)))
        else:
            parts.append(b"\x00\x53\x72\xd1" + _pack_u32(size + 4) + _pack_u32(2 * entry_count))
        parts.append(entries)
    parts.append(bare)
    return b"".join(parts)
