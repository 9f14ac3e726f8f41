"""Packs encoded messages into batches, and records the outcome of each batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pairbus.amqp.errors import AmqpError
from pairbus.amqp.message import BATCH_OVERHEAD, Message, Properties
from pairbus.amqp.types import Symbol
from pairbus.client.errors import ClientError

ENVELOPE_ROOM = (
    1024  # bytes of a batch, for the fields that the batch copies from its first message
)
_PARTITION_KEY = Symbol("x-opt-partition-key")


class BatchOutcome:
    """The outcome of messages `start` to `start + count - 1`; `error` is None if accepted.

    After a `ConnectionLostError`, `LinkDetachedError` or `OperationTimeoutError` it is unknown
    whether they were accepted.
    """

    __slots__ = ("count", "error", "is_done", "start")

    def __init__(self, start: int, count: int) -> None:
        self.start = start
        self.count = count
        self.is_done = False
        self.error: ClientError | None = None

    @property
    def is_accepted(self) -> bool:
        """The destination confirmed the messages."""
        return self.is_done and self.error is None

    def conclude(self, error: ClientError | None) -> None:
        """Record the outcome; the first one counts."""
        if not self.is_done:
            self.is_done = True
            self.error = error

    def __repr__(self) -> str:
        state = "open" if not self.is_done else "accepted" if self.error is None else self.error
        return f"<BatchOutcome {self.start}+{self.count} {state}>"


def pack(sizes: Sequence[int], max_bytes: int, max_messages: float = math.inf) -> Iterator[range]:
    """Divide messages of these encoded sizes, in their order, into batches that fit.

    A message that is too large for any batch gets one of its own; the peer's refusal then decides
    about it.
    """
    start, total = 0, 0
    for index, size in enumerate(sizes):
        need = size + BATCH_OVERHEAD
        if index > start and (total + need > max_bytes or index - start >= max_messages):
            yield range(start, index)
            start, total = index, 0
        total += need
    if start < len(sizes):
        yield range(start, len(sizes))


def batch_envelope(first: bytes) -> bytes:
    """Return the sections that describe a batch, with the same fields as the SDK.

    These are id, session id and partition key of the first message.
    """
    try:
        message = Message.parse(first)
        properties = message.properties
        annotations = message.message_annotations or {}
    except AmqpError:
        return b""  # the peer will refuse the message
    head = Message.build()
    key = annotations.get(_PARTITION_KEY)
    if key is not None:
        head = head.replace(message_annotations={_PARTITION_KEY: key})
    if properties is not None and (properties.message_id or properties.group_id):
        head = head.replace(
            properties=Properties(message_id=properties.message_id, group_id=properties.group_id)
        )
    return (head.raw_section(0x72) or b"") + (head.raw_section(0x73) or b"")
