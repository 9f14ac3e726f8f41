"""What the application wants sent, made ready: ids given, reserved names refused, sizes known.

The caller's objects are never changed. A message without an id gets one on a shallow copy, so that
the copy that a silent primary may have taken and the copy in the backlog are known as one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.envelope.aliases import (
    RESERVED,
    SESSION_ID,
    SdkMessage,
    annotated,
    check_reserved,
    clone,
    has_nothing,
    wrap,
    wrap_encoded,
    wrap_plain,
)
from pairbus.names import BILLING_STEP, billable
from pairbus.pairing.sdk import internals as _sdk
from pairbus.pairing.sdk.quick import encode_plain, encode_wrapped

__all__ = ["BACKLOG_LIMIT", "Chunk", "Outgoing", "PairedMessageBatch", "pack", "prepare"]

BACKLOG_LIMIT: Final = 256 * 1024  # what a queue of the Standard tier takes in one send
_HEADERS: Final = 66 * 1024  # the service takes at most 64 KB of headers and properties
_ALIAS_ROOM: Final = 1024
_X_OPT_SCHEDULED: Final = b"x-opt-scheduled-enqueue-time"  # a key as the SDK writes it
_FIXED: Final = 96  # about what the sections around the body take

_NO_ID: Final[tuple[Any, ...]] = (None, "")
_MESSAGES: Final = (ServiceBusMessage, AmqpAnnotatedMessage)  # quicker to ask than a union

Oversized = Callable[[SdkMessage], None]


@dataclass(slots=True)
class Outgoing:
    """One call's messages: `what` goes to the primary; `originals` are the caller's objects."""

    what: Any
    originals: Sequence[Any]
    size: int
    is_batch: bool = False

    @property
    def count(self) -> int:
        """How many messages there are."""
        return len(self.originals)

    @property
    def billable(self) -> int:
        """How many operations the service charges: one for each message and 64 KB of it."""
        if self.size <= BILLING_STEP or len(self.originals) < 2:
            return max(len(self.originals), billable(self.size))
        return sum(billable(rough_size(message)) for message in self.originals)


@dataclass(slots=True)
class Chunk:
    """What goes into a backlog queue in one send.

    `notes` has each message's id, its session and its size: what is told of it, if anybody asks.
    """

    what: Any
    destination: str
    originals: list[Any] = field(default_factory=list)
    notes: list[tuple[Any, str | None, int]] = field(default_factory=list)
    size: int = 0

    @property
    def billable(self) -> int:
        """How many operations the service charges: one for each message and 64 KB of it."""
        return sum(billable(size) for _, _, size in self.notes)

    @property
    def message_ids(self) -> tuple[str, ...]:
        """The ids of the messages, in order."""
        return tuple(_as_text(message_id) for message_id, _, _ in self.notes)

    def rows(self, backlog_queue: str) -> Iterator[dict[str, Any]]:
        """What the ledger keeps of each message: never its body."""
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


def new_message_id() -> str:
    """A message id in the form of a random UUID."""
    text = os.urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def with_id(message: SdkMessage) -> SdkMessage:
    """`message` itself if it has an id, else a copy with one. Refuses reserved names."""
    raw = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
    names = raw.application_properties
    if names:
        check_reserved(names)
    properties = raw.properties
    if properties is not None and properties.message_id not in _NO_ID:
        return message
    copied = AmqpMessageProperties() if properties is None else clone(properties)
    copied.message_id = new_message_id()
    named = clone(raw)
    named.properties = copied
    header = raw.header
    if header is not None and has_nothing(header):
        named.header = None  # type: ignore[assignment]  # the SDK finds that out at ten times the price
    return named


def plain_size(message: ServiceBusMessage) -> int:
    """How large the body is of a message that can be sent as it is; 0 means to look closer.

    This is on the way of every healthy message: fields are read where they lie, not through the
    SDK's properties.
    """
    try:
        fields = message._raw_amqp_message.__dict__  # noqa: SLF001
        (data,) = fields["_data_body"]
        names = fields["_application_properties"]
        if names and not RESERVED.isdisjoint(names):
            return 0
        return 0 if fields["_properties"].message_id in _NO_ID else len(data)
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0


def as_message(message: Any) -> SdkMessage:
    """`message` as an SDK message; mappings are turned into one, as the SDK does."""
    if isinstance(message, _MESSAGES):
        return message
    if isinstance(message, Mapping):
        return ServiceBusMessage(**message)
    raise TypeError(
        "Only AmqpAnnotatedMessage, ServiceBusMessage instances or Mappings representing messages "
        f"are supported. Received instead: {type(message).__name__}"
    )


def rough_size(message: SdkMessage) -> int:
    """About how many bytes `message` has when encoded; exact for the body if it is data."""
    raw = annotated(message)
    data = raw.__dict__.get("_data_body")  # `body` makes a generator of it each time
    if data.__class__ is list:
        size = _FIXED
        for section in data:
            size += len(section)
    elif raw.body_type is AmqpMessageBodyType.DATA:
        size = _FIXED + sum(map(len, raw.body))
    else:
        size = _FIXED + _rough(
            raw.body if raw.body_type is AmqpMessageBodyType.VALUE else list(raw.body)
        )
    names = raw.application_properties
    if names:
        for name, value in names.items():
            size += len(name) + _rough(value) + 4
    return size


def _rough(value: Any) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes | bytearray):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_rough(key) + _rough(item) + 2 for key, item in value.items())
    if isinstance(value, list | tuple):
        return sum(_rough(item) + 1 for item in value)
    return 9


def exact_size(message: SdkMessage, path: str) -> int:
    """How many bytes `message` has in a backlog queue, aliases included."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=1 << 40)
    empty = batch.size_in_bytes
    batch.add_message(wrap(with_id(message), path))
    return batch.size_in_bytes - empty


def suspicious_size(limit: int) -> int:
    """How large a message may be, about, before it needs a closer look."""
    return limit - _HEADERS


class PairedMessageBatch(ServiceBusMessageBatch):
    """A batch whose messages have ids, use no reserved names, and are known to fit the backlog.

    `notes` has, for each message, its id and whether it is without a session: if it has no header
    and no annotations either, redirecting it adds one property and changes nothing else.
    """

    def __init__(
        self, max_size_in_bytes: int, *, limit: int, oversized: Oversized | None = None
    ) -> None:
        super().__init__(max_size_in_bytes=max_size_in_bytes)
        self.notes: list[tuple[Any, bool]] = []
        self._suspicious = limit - _HEADERS if oversized is not None else 1 << 60
        self._oversized = oversized
        self._is_traced = _sdk.is_tracing()

    def add_message(
        self, message: ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]
    ) -> None:
        """Add a message; raises `MessageSizeExceededError` when the batch is full."""
        # Written out for the common case: a batch is filled a hundred times faster than it is sent.
        if message.__class__ is ServiceBusMessage and self.notes and not self._is_traced:
            raw = message.raw_amqp_message
            encoded = encode_plain(raw)
            if encoded is not None and len(encoded) <= self._suspicious:
                _sdk.add_payload(self, encoded, message)
                self._note(raw)
                return
        item = with_id(as_message(message))
        raw = annotated(item)
        if rough_size(item) > self._suspicious:
            assert self._oversized is not None
            self._oversized(item)
        self._add(item)
        self._note(raw)

    def _note(self, raw: AmqpAnnotatedMessage) -> None:
        properties = raw.properties
        assert properties is not None
        self.notes.append((properties.message_id, properties.group_id is None))


def as_outgoing(message: ServiceBusMessage) -> Outgoing:
    """A single message that is ready as it is."""
    return Outgoing(message, (message,), rough_size(message))


def prepare(message: Any) -> Outgoing | None:
    """Make a call's messages ready; None if there are none.

    Raises:
        ReservedPropertyError: if a message uses a name that the envelope needs.
        TypeError: if something is no message.
    """
    if message.__class__ is ServiceBusMessage and plain_size(message):
        return as_outgoing(message)
    if isinstance(message, _MESSAGES):
        return Outgoing(with_id(message), (message,), rough_size(message))
    if isinstance(message, ServiceBusMessageBatch):
        if len(message) == 0:
            return None
        originals = _sdk.batch_messages(message)
        if isinstance(message, PairedMessageBatch):
            return Outgoing(message, originals, message.size_in_bytes, True)
        return _foreign_batch(message, originals)
    if isinstance(message, Iterable) and not isinstance(message, Mapping):
        originals = [as_message(item) for item in message]
        if not originals:
            return None
        ready = [with_id(item) for item in originals]
        return Outgoing(ready, originals, sum(map(rough_size, originals)))
    single = as_message(message)
    return Outgoing(with_id(single), (single,), rough_size(single))


def _foreign_batch(batch: ServiceBusMessageBatch, originals: Sequence[Any]) -> Outgoing:
    """A batch that was not made by a paired sender: give its messages ids where they lack them."""
    ready = [with_id(item) for item in originals]
    if all(new is old for new, old in zip(ready, originals, strict=True)):
        return Outgoing(batch, originals, batch.size_in_bytes, True)
    # Ids take room: 64 bytes each are more than enough.
    room = batch.max_size_in_bytes + 64 * len(ready)
    rebuilt = PairedMessageBatch(room, limit=BACKLOG_LIMIT)
    for item in ready:
        rebuilt.add_message(item)
    return Outgoing(rebuilt, originals, rebuilt.size_in_bytes, True)


def pack(outgoing: Outgoing, path: str, limit: int) -> list[Chunk]:
    """The sends that bring `outgoing` into a backlog queue, each within `limit` bytes.

    Raises:
        MessageSizeExceededError: if one message alone does not fit; nothing was sent.
    """
    if outgoing.is_batch:
        return _pack_encoded(outgoing, path, limit)
    if not isinstance(outgoing.what, list):
        return [_pack_single(outgoing, path, limit)]
    chunks: list[Chunk] = []
    batch: ServiceBusMessageBatch | None = None
    for original, item in zip(outgoing.originals, outgoing.what, strict=True):
        wrapped = wrap(item, path)
        for attempt in (1, 2):
            if batch is None:
                batch = ServiceBusMessageBatch(max_size_in_bytes=limit)
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
        size = chunks[-1].what.size_in_bytes - before
        chunk.originals.append(original)
        chunk.notes.append(_note(wrapped, size))
        chunk.size += size
    return chunks


def _pack_single(outgoing: Outgoing, path: str, limit: int) -> Chunk:
    raw = annotated(outgoing.what)
    # With tracing the SDK adds the context of the span to each message that it writes itself.
    encoded = None if _sdk.is_tracing() else encode_wrapped(raw, path)
    if encoded is None or len(encoded) + _ALIAS_ROOM > limit:
        wrapped = wrap(raw, path)
        size = outgoing.size + 64
        return Chunk(wrapped, path, [*outgoing.originals], [_note(wrapped, size)], size)
    size = len(encoded)
    properties = raw.properties
    assert properties is not None
    note = (properties.message_id, properties.group_id, size)
    batch = _sdk.make_batch((encoded,), limit)
    return Chunk(batch, path, [*outgoing.originals], [note], size)  # type: ignore[list-item]


def _pack_encoded(outgoing: Outgoing, path: str, limit: int) -> list[Chunk]:
    batch = outgoing.what
    empty = ServiceBusMessageBatch(max_size_in_bytes=limit).size_in_bytes
    payloads = _sdk.take_payloads(batch)
    notes = (
        batch.notes if isinstance(batch, PairedMessageBatch) else [(None, False)] * len(payloads)
    )
    groups: list[tuple[list[bytes], Chunk]] = []
    room = -1
    for original, payload, (message_id, is_plain) in zip(
        outgoing.originals, payloads, notes, strict=True
    ):
        if is_plain:
            wrapped, session = wrap_plain(payload, path), None
        else:
            wrapped, message_id, session = wrap_encoded(payload, path)
        cost = _sdk.batch_cost(wrapped)
        if cost > room:
            if empty + cost > limit:
                raise MessageSizeExceededError(
                    message=f"With the aliases a message has {len(wrapped)} bytes; "
                    f"a backlog queue takes {limit}."
                )
            groups.append(([], Chunk(None, path)))
            room = limit - empty
        room -= cost
        group, chunk = groups[-1]
        group.append(wrapped)
        chunk.originals.append(original)
        chunk.notes.append((message_id, session, len(wrapped)))
        chunk.size += len(wrapped)
    for group, chunk in groups:
        chunk.what = _sdk.make_batch(group, limit)
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
    if isinstance(value, str):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def schedulable(messages: Any, schedule_time_utc: datetime) -> Any:
    """Copies of `messages` that carry the time at which they appear, as the SDK would set it."""
    if isinstance(messages, Iterable) and not isinstance(messages, Mapping):
        return [_scheduled(as_message(item), schedule_time_utc) for item in messages]
    return _scheduled(as_message(messages), schedule_time_utc)


def _scheduled(message: SdkMessage, schedule_time_utc: datetime) -> AmqpAnnotatedMessage:
    raw = annotated(message)
    scheduled = clone(raw)
    scheduled.annotations = {**(raw.annotations or {}), _X_OPT_SCHEDULED: schedule_time_utc}
    return scheduled
