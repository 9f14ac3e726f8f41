"""Reads an incoming message: its bytes, and the fields that the namespace needs.

Everything from the properties section on is kept unchanged. Annotations that only the broker may
set are removed; a client sends them with a message that it received and forwards.
"""

from __future__ import annotations

import itertools
import os
from datetime import timedelta

from pairbus.amqp.encoder import encode_compound
from pairbus.amqp.errors import decode_error
from pairbus.amqp.message import BATCH_FORMAT, split_batch
from pairbus.amqp.sections import PROPERTIES, raw_map_entries, section_at
from pairbus.amqp.summary import find_entries, summarize
from pairbus.broker.entities.contents import identifier
from pairbus.broker.entities.messages import IncomingMessage
from pairbus.broker.entities.model import MAX_DURATION

__all__ = ["BATCH_FORMAT", "read_batch", "read_message"]

MAX_BATCH = 100_000
_new = IncomingMessage.__new__
_ID_PREFIX = os.urandom(8).hex()
_id_numbers = itertools.count()
_UNLIMITED_TTL = 0xFFFFFFFF
_MAX_TTL = MAX_DURATION // timedelta(milliseconds=1)
_BROKER_ANNOTATIONS = frozenset({
    b"x-opt-sequence-number", b"x-opt-enqueued-time", b"x-opt-locked-until", b"x-opt-lock-token",
    b"x-opt-enqueue-sequence-number", b"x-opt-deadletter-source", b"x-opt-message-state",
})  # fmt: skip
_WANTED = _BROKER_ANNOTATIONS | {b"x-opt-partition-key", b"x-opt-scheduled-enqueue-time"}


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
    (durable, priority, ttl, notes, message_id, content_type, expiry, created, session_id,
     bare) = summarize(payload)  # fmt: skip
    partition_key = scheduled = None
    if notes:
        found = find_entries(notes, 0, _WANTED)
        if found:
            partition_key = found.get(b"x-opt-partition-key")
            scheduled = found.get(b"x-opt-scheduled-enqueue-time")
            if not _BROKER_ANNOTATIONS.isdisjoint(found):
                notes = _without_broker_annotations(notes)
    if (ttl is None or ttl == _UNLIMITED_TTL) and expiry is not None and created is not None:
        # A time to live that does not fit the header is given by the absolute expiry.
        ttl = min(max(0, expiry - created), _MAX_TTL)
    if message_id is None:
        message_id = f"{_ID_PREFIX}{next(_id_numbers):016x}"
        bare = _with_id(bare, message_id)
    # Field by field: this runs for every message that arrives.
    message = _new(IncomingMessage)
    message.bare = bare
    message.annotations = notes
    message.size = len(payload)
    message.message_id = message_id if type(message_id) is str else identifier(message_id)
    message.session_id = session_id
    message.partition_key = None if partition_key is None else str(partition_key)
    message.content_type = content_type
    message.ttl = None if ttl is None else int(ttl)
    message.scheduled = int(scheduled) if isinstance(scheduled, int) else None
    message.durable = bool(durable)
    message.priority = 4 if priority is None else int(priority)
    message.hops = message.origin = 0
    return message


def _with_id(bare: bytes, message_id: str) -> bytes:
    """Add an id to a bare message without one, as the service does."""
    field = b"\xa1\x20" + message_id.encode()
    if bare[:4] == b"\x00\x53\x73\xc0" and bare[5] > 0 and bare[4] + 33 < 256:
        return b"".join(
            (bare[:4], bytes((bare[4] + 33, bare[5])), field, bare[7:])  # replaces a null
        )
    code, start, end = section_at(bare, 0) if bare else (0, 0, 0)
    if code != PROPERTIES:
        return b"\x00\x53\x73\xc0\x23\x01" + field + bare
    if bare[start] == 0x45:  # an empty list
        count, others = 1, b""
    elif bare[start] == 0xC0:
        count, others = bare[start + 2], bare[start + 4 : end]
    else:
        count, others = int.from_bytes(bare[start + 5 : start + 9], "big"), bare[start + 10 : end]
    return b"\x00\x53\x73" + encode_compound(0xC0, 0xD0, count or 1, field + others) + bare[end:]


def _without_broker_annotations(notes: bytes) -> bytes:
    """Return an encoded map of annotations without those of the broker."""
    entries = raw_map_entries(notes, 0, len(notes))
    kept = [raw for key, raw in entries.items() if str(key).encode() not in _BROKER_ANNOTATIONS]
    return encode_compound(0xC1, 0xD1, 2 * len(kept), b"".join(kept)) if kept else b""
