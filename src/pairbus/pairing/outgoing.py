"""Prepare the messages of one call: set ids, refuse reserved names, compute sizes.

The caller's objects are never changed. A message without an id gets one on a shallow copy, so that
the copy that a silent primary may have taken and the copy in the backlog can be recognised as one.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageProperties

from pairbus.envelope.fields import check_reserved
from pairbus.envelope.sdk import SdkMessage, annotated, is_empty, wrap
from pairbus.names import BILLING_STEP, billable
from pairbus.pairing.sdk.batches import is_readable, messages_of, payloads_of
from pairbus.pairing.sdk.messages import body_parts

BACKLOG_LIMIT: Final = 256 * 1024  # largest send to a queue of the Standard tier
_HEADERS: Final = 66 * 1024  # the service takes at most 64 KB of headers and properties
_X_OPT_SCHEDULED: Final = b"x-opt-scheduled-enqueue-time"  # a key as the SDK writes it
_FIXED: Final = 96  # approximate size of the sections around the body

_NO_ID: Final[tuple[Any, ...]] = (None, "")
_MESSAGES: Final = (ServiceBusMessage, AmqpAnnotatedMessage)  # isinstance: faster than a union
_SINGLE: Final = (*_MESSAGES, Mapping)

Oversized = Callable[[SdkMessage], None]


@dataclass(slots=True)
class Outgoing:
    """One call's messages: `what` goes to the primary; `originals` are the caller's objects.

    `items` are the same messages with ids; None if the SDK does not show them.
    """

    what: Any
    originals: Sequence[Any]
    items: Sequence[SdkMessage] | None
    size: int

    @property
    def count(self) -> int:
        """How many messages there are."""
        return len(self.originals)

    @property
    def billable(self) -> int:
        """How many operations the service charges: for each message, one per started 64 KB."""
        if self.size <= BILLING_STEP or len(self.originals) < 2 or self.items is None:
            return max(len(self.originals), billable(self.size))
        return sum(billable(rough_size(message)) for message in self.items)


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
    copied = AmqpMessageProperties() if properties is None else copy.copy(properties)
    copied.message_id = new_message_id()
    named = copy.copy(raw)
    named.properties = copied
    header = raw.header
    if header is not None and is_empty(header):
        named.header = None  # type: ignore[assignment]  # spares the SDK a slow look at each field
    return named


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


def _is_list(message: Any) -> bool:
    return not isinstance(message, _SINGLE) and isinstance(message, Iterable)


def rough_size(message: SdkMessage) -> int:
    """About how many bytes `message` has when encoded; exact for the body if it is data."""
    raw = annotated(message)
    data = body_parts(raw)
    if data is not None:
        size = _FIXED + sum(map(len, data))
    elif raw.body_type is AmqpMessageBodyType.VALUE:
        size = _FIXED + _rough(raw.body)
    else:
        size = _FIXED + _rough(list(raw.body))
    names = raw.application_properties
    if names:
        for name, value in names.items():
            size += len(name) + _rough(value) + 4
    for section in (raw.annotations, raw.delivery_annotations, raw.footer):
        if section:
            size += _rough(section)
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
    return 16 if isinstance(value, UUID | Decimal) else 9


def exact_size(message: SdkMessage, path: str) -> int:
    """How many bytes `message` has in a backlog queue, aliases included."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=1 << 40)
    empty = batch.size_in_bytes
    batch.add_message(wrap(with_id(message), path, now=now()))
    return batch.size_in_bytes - empty


def suspicious_size(limit: int) -> int:
    """The estimated size from which the exact size of a message must be computed."""
    return limit - _HEADERS


class PairedMessageBatch(ServiceBusMessageBatch):
    """A batch whose messages have ids, use no reserved names, and are known to fit the backlog.

    `notes` has, for each message, its id and whether it has no session.

    Args:
        max_size_in_bytes: As for the SDK's batch.
        limit: The size of the largest message that every backlog queue takes.
        oversized: Called with each message that may be too large for a backlog queue.
        refuses: Whether `oversized` may raise, and so must be called before a message is added.
        arguments: More arguments for the SDK's batch.
    """

    def __init__(
        self,
        max_size_in_bytes: int,
        *,
        limit: int = BACKLOG_LIMIT,
        oversized: Oversized | None = None,
        refuses: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(max_size_in_bytes, **(arguments or {}))
        self.originals: list[Any] = []
        self.items: list[SdkMessage] = []
        self.notes: list[tuple[Any, bool]] = []
        self._suspicious = suspicious_size(limit)
        self._oversized = oversized
        self._refuses = refuses
        # Redirected by its encoded messages; if the SDK does not show them, by copies.
        self._must_copy = not is_readable(self, arguments or {})

    def add_message(
        self, message: ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]
    ) -> None:
        """Add a message; raises `MessageSizeExceededError` when the batch is full."""
        original = as_message(message)
        item = with_id(copy.deepcopy(original) if self._must_copy else original)
        if self._refuses and self._oversized is not None and rough_size(item) > self._suspicious:
            self._oversized(item)
        before = self.size_in_bytes
        super().add_message(item)
        is_suspicious = self.size_in_bytes - before > self._suspicious
        if is_suspicious and self._oversized is not None and not self._refuses:
            self._oversized(item)
        self.originals.append(original)
        self.items.append(item)
        properties = annotated(item).properties
        assert properties is not None  # it has an id
        self.notes.append((properties.message_id, properties.group_id is None))


def as_outgoing(message: ServiceBusMessage) -> Outgoing:
    """A single message that is ready as it is."""
    return Outgoing(message, (message,), (message,), rough_size(message))


def prepare(message: Any, arguments: Mapping[str, Any] | None = None) -> Outgoing | None:
    """Make a call's messages ready; None if there are none.

    Raises:
        ReservedPropertyError: if a message uses a name that the envelope needs.
        TypeError: if something is no message.
    """
    if not isinstance(message, _MESSAGES):
        if isinstance(message, ServiceBusMessageBatch):
            if len(message) == 0:
                return None
            if isinstance(message, PairedMessageBatch):
                return Outgoing(message, message.originals, message.items, message.size_in_bytes)
            return _foreign_batch(message, arguments)
        if _is_list(message):
            originals = [as_message(item) for item in message]
            if not originals:
                return None
            ready = [with_id(item) for item in originals]
            return Outgoing(ready, originals, ready, sum(map(rough_size, originals)))
        message = as_message(message)
    item = with_id(message)
    return Outgoing(item, (message,), (item,), rough_size(message))


def _foreign_batch(batch: ServiceBusMessageBatch, arguments: Mapping[str, Any] | None) -> Outgoing:
    """A batch that was not made by a paired sender: give its messages ids where they lack them."""
    originals = messages_of(batch)
    if originals is None or payloads_of(batch) is None:
        return Outgoing(batch, (batch,) * len(batch), None, batch.size_in_bytes)
    ready = [with_id(item) for item in originals]
    if all(new is old for new, old in zip(ready, originals, strict=True)):
        return Outgoing(batch, originals, ready, batch.size_in_bytes)
    # Ids take room: 64 bytes each are more than enough.
    room = batch.max_size_in_bytes + 64 * len(ready)
    rebuilt = PairedMessageBatch(room, arguments=arguments)
    for item in ready:
        rebuilt.add_message(item)
    return Outgoing(rebuilt, originals, ready, rebuilt.size_in_bytes)


def now() -> int:
    """The time in milliseconds since 1970."""
    return int(time.time() * 1000)


def schedulable(messages: Any, schedule_time_utc: datetime) -> Any:
    """Copies of `messages` that carry the time at which they appear, as the SDK would set it."""
    if _is_list(messages):
        return [_scheduled(as_message(item), schedule_time_utc) for item in messages]
    return _scheduled(as_message(messages), schedule_time_utc)


def _scheduled(message: SdkMessage, schedule_time_utc: datetime) -> AmqpAnnotatedMessage:
    raw = annotated(message)
    scheduled = copy.copy(raw)
    scheduled.annotations = {**(raw.annotations or {}), _X_OPT_SCHEDULED: schedule_time_utc}
    return scheduled
