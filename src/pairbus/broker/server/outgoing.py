"""Encodes a stored message for a client that receives it.

The sender's annotations come first, then the broker's. The bytes from the properties section on are
copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

from pairbus.amqp.encoder import encode, encode_compound
from pairbus.amqp.sections import APPLICATION_PROPERTIES, section_at
from pairbus.amqp.types import Symbol
from pairbus.broker.entities.messages import LOCKED, Delivery

_pack_u32 = struct.Struct(">I").pack
_pack_i64 = struct.Struct(">q").pack
_pack_i32 = struct.Struct(">i").pack
_unpack_guid = struct.Struct("<IHH8s").unpack
_pack_guid = struct.Struct(">IHH8s").pack
_LOCK_TOKEN_SECTION = b"\x00\x53\x71\xc1\x24\x02" + encode(Symbol("x-opt-lock-token")) + b"\x98"
_LOCKED_UNTIL = encode(Symbol("x-opt-locked-until")) + b"\x83"
_SEQUENCE_NUMBER = encode(Symbol("x-opt-sequence-number")) + b"\x81"
_ENQUEUED_TIME = encode(Symbol("x-opt-enqueued-time")) + b"\x83"
_ENQUEUED_SEQUENCE = encode(Symbol("x-opt-enqueue-sequence-number")) + b"\x81"
_pack_facts = struct.Struct(
    f">{len(_SEQUENCE_NUMBER)}sq{len(_ENQUEUED_TIME)}sq{len(_ENQUEUED_SEQUENCE)}sq"
).pack
_MAP_SIZE = (
    sum(map(len, (_SEQUENCE_NUMBER, _ENQUEUED_TIME, _ENQUEUED_SEQUENCE, _LOCKED_UNTIL))) + 33
)
_MAP_HEAD = b"\x00\x53\x72\xc1" + bytes((_MAP_SIZE, 8)) + _SEQUENCE_NUMBER
_STATE = encode(Symbol("x-opt-message-state")) + b"\x71"
_SOURCE = encode(Symbol("x-opt-deadletter-source"))
_MAX_TTL = 0xFFFFFFFF


def render_locked(delivery: Delivery) -> tuple[bytes, bytes]:
    """Return the bytes of a locked delivery in two parts: the new sections and the stored bytes.

    Most messages have only the common fields in front, which are written in one step.
    """
    token, locked_until, message = delivery
    bare = message.bare
    if (
        message.annotations
        or message.dead_letter_source
        or message.state != LOCKED
        or bare is None
        or not token
    ):
        return render_delivery(delivery), b""
    start, pack = _front(message.durable, message.priority, message.ttl)
    return (
        pack(
            start,
            message.delivery_count,
            _LOCK_TOKEN_SECTION,
            # The wire has the token as a UUID; the tag is the same in little-endian form.
            *_unpack_guid(token),
            _MAP_HEAD,
            message.sequence_number,
            _ENQUEUED_TIME,
            message.enqueued_time,
            _ENQUEUED_SEQUENCE,
            message.enqueued_sequence_number,
            _LOCKED_UNTIL,
            locked_until,
        ),
        bare,
    )


@lru_cache(1000)
def _front(durable: bool, priority: int, ttl: int | None) -> tuple[bytes, Callable[..., bytes]]:
    start = _head(durable, priority, ttl)
    form = (
        f">{len(start)}sI{len(_LOCK_TOKEN_SECTION)}sIHH8s{len(_MAP_HEAD)}sq{len(_ENQUEUED_TIME)}sq"
        f"{len(_ENQUEUED_SEQUENCE)}sq{len(_LOCKED_UNTIL)}sq"
    )
    return start, struct.Struct(form).pack


def render_delivery(
    delivery: Delivery, *, with_state: bool = False, with_body: bool = True
) -> bytes:
    """Return a delivery's bytes, with its lock if it has one.

    Args:
        delivery: The delivery to encode.
        with_state: Write the message's state even if it is active.
        with_body: Write the body; without it the message ends after the application properties.
    """
    token, locked_until, message = delivery
    notes = message.annotations
    entries, count = _map_entries(notes) if notes else (b"", 0)
    parts = [
        entries,
        _pack_facts(
            _SEQUENCE_NUMBER,
            message.sequence_number,
            _ENQUEUED_TIME,
            message.enqueued_time,
            _ENQUEUED_SEQUENCE,
            message.enqueued_sequence_number,
        ),
    ]
    count += 3
    if message.dead_letter_source:
        parts.append(_SOURCE)
        parts.append(encode(message.dead_letter_source))
        count += 1
    if with_state or message.state != LOCKED:
        state = delivery.wire_state
        if state or with_state:
            parts.append(_STATE)
            parts.append(_pack_i32(state))
            count += 1
    if token:
        parts += (_LOCKED_UNTIL, _pack_i64(locked_until))
        count += 1
    assert message.bare is not None  # the entity loads the bytes before a delivery
    return b"".join(
        (
            _head(message.durable, message.priority, message.ttl),
            _pack_u32(message.delivery_count),
            # The wire has the token as a UUID; the tag is the same in little-endian form.
            _LOCK_TOKEN_SECTION + _pack_guid(*_unpack_guid(token)) if token else b"",
            b"\x00\x53\x72" + encode_compound(0xC1, 0xD1, 2 * count, b"".join(parts)),
            message.bare if with_body else without_body(message.bare),
        )
    )


def without_body(bare: bytes) -> bytes:
    """The properties and application properties of a bare message."""
    end = 0
    while end < len(bare):
        code, _, stop = section_at(bare, end)
        if code > APPLICATION_PROPERTIES:
            break
        end = stop
    return bare[:end]


@lru_cache(1000)
def _head(durable: bool, priority: int, ttl: int | None) -> bytes:
    """Return the header up to the value of its last field, the delivery count."""
    fields = (b"\x41" if durable else b"\x42") + bytes((0x50, priority))
    fields += b"\x40" if ttl is None else b"\x70" + _pack_u32(min(ttl, _MAX_TTL))
    fields += b"\x40\x70"
    return b"\x00\x53\x70\xc0" + bytes((len(fields) + 5, 5)) + fields


def _map_entries(encoded_map: bytes) -> tuple[bytes, int]:
    """Return the entries of an encoded map, and their number."""
    if encoded_map[0] == 0xC1:
        return encoded_map[3:], encoded_map[2] // 2
    return encoded_map[9:], int.from_bytes(encoded_map[5:9], "big") // 2
