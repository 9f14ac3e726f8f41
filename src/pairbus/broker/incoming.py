"""Messages on their way in: from a delivery's bytes to what the namespace's rules need to know.

Everything from the properties section on is kept as it came. Annotations that only the broker may
set (a message that is sent on as it was received carries them) are taken out.
"""

from __future__ import annotations

from typing import Any

from pairbus.amqp.encoder import encode
from pairbus.amqp.errors import decode_error
from pairbus.amqp.message import (
    BATCH_FORMAT,
    Header,
    Message,
    Properties,
    raw_entries,
    split_batch,
)

from .entities.messages import IncomingMessage

__all__ = ["BATCH_FORMAT", "read_batch", "read_message"]

MAX_BATCH = 100_000
_UNLIMITED_TTL = 0xFFFFFFFF
_BROKERS_OWN = frozenset({
    "x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until", "x-opt-message-state",
    "x-opt-enqueue-sequence-number", "x-opt-deadletter-source", "x-opt-lock-token",
})  # fmt: skip


def read_batch(payload: bytes) -> list[IncomingMessage]:
    """Return the messages of a delivery of format 0x80013700.

    Raises:
        ProtocolError: The batch, or a message in it, cannot be read.
    """
    parts = split_batch(payload)
    if len(parts) > MAX_BATCH:
        raise decode_error("too many messages in one batch")
    return [read_message(part) for part in parts]


def read_message(payload: bytes) -> IncomingMessage:
    """Return one message.

    Raises:
        ProtocolError: It cannot be read.
    """
    message = Message.parse(payload)
    header = message.header or _NO_HEADER
    properties = message.properties or _NO_PROPERTIES
    notes = message.message_annotations
    encoded = b""
    partition_key = scheduled = None
    if notes:
        partition_key = notes.get("x-opt-partition-key")
        scheduled = notes.get("x-opt-scheduled-enqueue-time")
        encoded = _annotations(message, notes)
    message_id = properties.message_id
    return IncomingMessage(
        message.bare,
        annotations=encoded,
        size=len(payload),
        message_id=None if message_id is None else _text(message_id),
        session_id=properties.group_id,
        partition_key=None if partition_key is None else str(partition_key),
        content_type=properties.content_type,
        ttl=_time_to_live(header.ttl, properties),
        scheduled=int(scheduled) if isinstance(scheduled, int) else None,
        durable=bool(header.durable),
        priority=4 if header.priority is None else header.priority,
    )


_NO_HEADER = Header()
_NO_PROPERTIES = Properties()


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _time_to_live(ttl: int | None, properties: Properties) -> int | None:
    """Return milliseconds; a time too long for the header is told by the absolute expiry."""
    expiry, created = properties.absolute_expiry_time, properties.creation_time
    if (ttl is None or ttl == _UNLIMITED_TTL) and expiry is not None and created is not None:
        return max(0, expiry - created)
    return ttl


def _annotations(message: Message, notes: dict[Any, Any]) -> bytes:
    """Return the sender's annotations as an encoded map, without those that are the broker's."""
    raw = message.raw_section(0x72)
    if raw is None:
        return b""
    if _BROKERS_OWN.isdisjoint(notes):
        return raw[3:] if raw[1] == 0x53 else encode(notes)
    kept = {key: value for key, value in raw_entries(raw).items() if key not in _BROKERS_OWN}
    if not kept:
        return b""
    body = b"".join(kept.values())
    if len(body) < 250 and len(kept) < 128:
        return b"\xc1" + bytes((len(body) + 1, 2 * len(kept))) + body
    return b"\xd1" + (len(body) + 4).to_bytes(4, "big") + (2 * len(kept)).to_bytes(4, "big") + body
