"""The messages of one call, packed for a backlog queue: wrapped, and split if they do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.envelope import encoded_wrap
from pairbus.envelope.fields import SESSION_ID
from pairbus.envelope.sdk import wrap
from pairbus.exceptions import PairingError
from pairbus.pairing.outgoing import Outgoing, PairedMessageBatch, now
from pairbus.pairing.sdk.batches import batch_of, cost, payloads_of

_ALIASES: Final = 64  # approximate size of the aliases


@dataclass(slots=True)
class Chunk:
    """The messages of one send to a backlog queue.

    `notes` has the id, the session and the size of each message, for events and the ledger.
    """

    what: Any
    destination: str
    originals: list[Any] = field(default_factory=list)
    notes: list[tuple[Any, str | None, int]] = field(default_factory=list)
    size: int = 0

    @property
    def message_ids(self) -> tuple[str, ...]:
        """The ids of the messages, in order."""
        return tuple(_as_text(message_id) for message_id, _, _ in self.notes)

    def rows(self, backlog_queue: str) -> Iterator[dict[str, Any]]:
        """The ledger row of each message, without its body."""
        for message_id, session_id, size in self.notes:
            row: dict[str, Any] = {
                "message_id": _as_text(message_id),
                "destination": self.destination,
                "backlog_queue": backlog_queue,
                "size": size,
            }
            if session_id is not None:
                row["session_id"] = session_id
            yield row


def pack(
    outgoing: Outgoing, path: str, limit: int, arguments: Mapping[str, Any] | None = None
) -> list[Chunk]:
    """The sends that bring `outgoing` into a backlog queue, each within `limit` bytes.

    Raises:
        MessageSizeExceededError: if one message alone does not fit; nothing was sent.
        PairingError: if the messages of a batch cannot be read.
    """
    what, items = outgoing.what, outgoing.items
    if isinstance(what, ServiceBusMessageBatch):
        encoded = _pack_encoded(outgoing, path, limit, arguments or {})
        if encoded is not None:
            return encoded
    if items is None or (
        isinstance(what, ServiceBusMessageBatch) and not isinstance(what, PairedMessageBatch)
    ):
        raise PairingError(
            "This batch cannot be put into the backlog: this version of azure-servicebus does not "
            "show its messages. Create batches with create_message_batch() of the paired sender."
        )
    if what is items[0]:
        wrapped = wrap(what, path, now=now())
        size = outgoing.size + _ALIASES
        return [Chunk(wrapped, path, [*outgoing.originals], [_note(wrapped, size)], size)]
    chunks: list[Chunk] = []
    batch: ServiceBusMessageBatch | None = None
    for original, item in zip(outgoing.originals, items, strict=True):
        wrapped = wrap(item, path, now=now())
        for attempt in (1, 2):
            if batch is None:
                batch = ServiceBusMessageBatch(limit, **(arguments or {}))
                chunks.append(Chunk(batch, path))
            before = batch.size_in_bytes
            try:
                batch.add_message(wrapped)
                break
            except MessageSizeExceededError:
                if attempt == 2 or len(batch) == 0:
                    raise
                batch = None
        chunk = chunks[-1]
        size = chunk.what.size_in_bytes - before
        chunk.originals.append(original)
        chunk.notes.append(_note(wrapped, size))
        chunk.size += size
    return chunks


def _pack_encoded(
    outgoing: Outgoing, path: str, limit: int, arguments: Mapping[str, Any]
) -> list[Chunk] | None:
    """As `pack`, for a batch, by its encoded messages; None if the SDK does not show them."""
    batch = outgoing.what
    payloads = payloads_of(batch)
    if payloads is None:
        return None
    empty = ServiceBusMessageBatch(limit).size_in_bytes
    notes = (
        batch.notes if isinstance(batch, PairedMessageBatch) else [(None, False)] * len(payloads)
    )
    groups: list[tuple[list[bytes], Chunk]] = []
    room, wrapped_at = -1, now()
    for original, payload, (message_id, is_plain) in zip(
        outgoing.originals, payloads, notes, strict=True
    ):
        wrapped, found_id, session = encoded_wrap.wrap(
            payload, path, now=wrapped_at, has_session=not is_plain
        )
        if not is_plain:
            message_id = found_id
        if cost(wrapped) > room:
            room = limit - empty
            if cost(wrapped) > room:
                raise MessageSizeExceededError(
                    message=f"With the aliases a message has {len(wrapped)} bytes; "
                    f"a backlog queue takes {limit}."
                )
            groups.append(([], Chunk(None, path)))
        room -= cost(wrapped)
        group, chunk = groups[-1]
        group.append(wrapped)
        chunk.originals.append(original)
        chunk.notes.append((message_id, session, len(wrapped)))
        chunk.size += len(wrapped)
    for group, chunk in groups:
        chunk.what = batch_of(group, limit, arguments)
        if chunk.what is None:
            return None
    return [chunk for _, chunk in groups]


def _note(wrapped: AmqpAnnotatedMessage, size: int) -> tuple[Any, str | None, int]:
    properties = wrapped.properties
    names = wrapped.application_properties
    return (
        properties.message_id if properties is not None else None,
        names.get(SESSION_ID) if names is not None else None,
        size,
    )


def _as_text(value: object) -> str:
    """Return an id as the syphon's receipts have it: see `pairbus.syphon.rows.as_text`."""
    if isinstance(value, str):
        return value
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()
