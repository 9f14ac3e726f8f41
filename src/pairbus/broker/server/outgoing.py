"""Encodes a stored message for a client that receives it.

The sender's annotations come first, then the broker's. The bytes from the properties section on are
copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from pairbus.amqp.encoder import encode
from pairbus.amqp.message import Header, header_head, render
from pairbus.amqp.rendering import LOCK_TOKEN_SECTION, LOCKED_UNTIL
from pairbus.amqp.sections import APPLICATION_PROPERTIES, section_at
from pairbus.amqp.types import Symbol
from pairbus.broker.entities.messages import LOCKED, Delivery

_pack_i32 = struct.Struct(">i").pack
_unpack_guid = struct.Struct("<IHH8s").unpack
_pack_guid = struct.Struct(">IHH8s").pack
_SEQUENCE_NUMBER = encode(Symbol("x-opt-sequence-number")) + b"\x81"
_ENQUEUED_TIME = encode(Symbol("x-opt-enqueued-time")) + b"\x83"
_ENQUEUED_SEQUENCE = encode(Symbol("x-opt-enqueue-sequence-number")) + b"\x81"
_pack_facts = struct.Struct(
    f">{len(_SEQUENCE_NUMBER)}sq{len(_ENQUEUED_TIME)}sq{len(_ENQUEUED_SEQUENCE)}sq"
).pack
_MAP_SIZE = sum(map(len, (_SEQUENCE_NUMBER, _ENQUEUED_TIME, _ENQUEUED_SEQUENCE, LOCKED_UNTIL))) + 33
_MAP_HEAD = b"\x00\x53\x72\xc1" + bytes((_MAP_SIZE, 8)) + _SEQUENCE_NUMBER
_STATE = encode(Symbol("x-opt-message-state")) + b"\x71"
_SOURCE = encode(Symbol("x-opt-deadletter-source"))
_MAX_TTL = 0xFFFFFFFF
_heads: dict[tuple[bool, int, int | None], bytes] = {}
_fronts: dict[bytes, tuple[bytes, Callable[..., bytes]]] = {}


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
    key = (message.durable, message.priority, message.ttl)
    head = _heads.get(key)
    if head is None:
        head = _head(*key)
    known = _fronts.get(head)
    if known is None:
        known = _front(head)
    start, pack = known
    return (
        pack(
            start,
            message.delivery_count,
            LOCK_TOKEN_SECTION,
            # The wire has the token as a UUID; the tag is the same in little-endian form.
            *_unpack_guid(token),
            _MAP_HEAD,
            message.sequence_number,
            _ENQUEUED_TIME,
            message.enqueued_time,
            _ENQUEUED_SEQUENCE,
            message.enqueued_sequence_number,
            LOCKED_UNTIL,
            locked_until,
        ),
        bare,
    )


def _front(head: bytes) -> tuple[bytes, Callable[..., bytes]]:
    start = head + b"\x70"
    form = (
        f">{len(start)}sI{len(LOCK_TOKEN_SECTION)}sIHH8s{len(_MAP_HEAD)}sq{len(_ENQUEUED_TIME)}sq"
        f"{len(_ENQUEUED_SEQUENCE)}sq{len(LOCKED_UNTIL)}sq"
    )
    if len(_fronts) >= 1000:
        _fronts.clear()
    _fronts[head] = found = (start, struct.Struct(form).pack)
    return found


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
    key = (message.durable, message.priority, message.ttl)
    head = _heads.get(key)
    if head is None:
        head = _head(*key)
    assert message.bare is not None  # the entity loads the bytes before a delivery
    return render(
        head,
        message.delivery_count,
        b"".join(parts),
        count,
        message.bare if with_body else without_body(message.bare),
        # The wire has the token as a UUID; the tag is the same in little-endian form.
        lock_token=_pack_guid(*_unpack_guid(token)) if token else None,
        locked_until=locked_until if token else None,
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


def _head(durable: bool, priority: int, ttl: int | None) -> bytes:
    head = header_head(
        Header(
            durable=durable,
            priority=priority,
            ttl=None if ttl is None else min(ttl, _MAX_TTL),
        )
    )
    if len(_heads) < 1000:
        _heads[durable, priority, ttl] = head
    return head


def _map_entries(encoded_map: bytes) -> tuple[bytes, int]:
    """Return the entries of an encoded map, and their number."""
    if encoded_map[0] == 0xC1:
        return encoded_map[3:], encoded_map[2] // 2
    return encoded_map[9:], int.from_bytes(encoded_map[5:9], "big") // 2
