"""Batches as encoded messages: read those of a batch, and build a batch of encoded messages.

The SDK encodes a message when it is added to a batch; the application may change or reuse the
object afterwards. So a batch is redirected by its encoded messages, not by the objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from azure.servicebus import ServiceBusMessageBatch

from pairbus.pairing.sdk.contract import BODY, MESSAGE, MESSAGES, MISSING


def messages_of(batch: ServiceBusMessageBatch) -> list[Any] | None:
    """The messages that were added to `batch`, as objects; None if the SDK does not show them."""
    try:
        return list(MESSAGES.of(batch))
    except AttributeError:
        return None


def payloads_of(batch: ServiceBusMessageBatch) -> list[bytes] | None:
    """The encoded messages of `batch`; None if the SDK does not show them."""
    try:
        payloads = [bytes(payload) for payload in BODY.of(MESSAGE.of(batch))]
    except MISSING:
        return None
    return payloads if len(payloads) == len(batch) else None


def is_readable(batch: ServiceBusMessageBatch, arguments: Mapping[str, Any]) -> bool:
    """Whether a batch can be redirected by its encoded messages."""
    is_shown = messages_of(batch) is not None and payloads_of(batch) is not None
    return is_shown and bool(arguments)


def batch_of(
    payloads: Sequence[bytes], max_size_in_bytes: int, arguments: Mapping[str, Any]
) -> ServiceBusMessageBatch | None:
    """A batch of messages that are encoded already; None if the SDK cannot take them.

    `arguments` are those of `senders.batch_arguments`: without them the async SDK would build the
    batch again from its objects, of which there are none. The caller has checked that they fit.
    """
    if not arguments:
        return None
    batch = _EncodedBatch(payloads, max_size_in_bytes, arguments)
    try:
        # If the SDK builds the batch again nevertheless, it must fail, not send an empty batch.
        MESSAGES.of(batch).extend([_Encoded()] * len(payloads))
        BODY.of(MESSAGE.of(batch)).extend(payloads)
    except MISSING:
        return None
    return batch


class _EncodedBatch(ServiceBusMessageBatch):
    """A batch whose messages were not added one by one: it counts them itself."""

    def __init__(
        self, payloads: Sequence[bytes], max_size_in_bytes: int, arguments: Mapping[str, Any]
    ) -> None:
        super().__init__(max_size_in_bytes, **arguments)
        self._encoded = payloads

    def __len__(self) -> int:
        return len(self._encoded)

    @property
    def size_in_bytes(self) -> int:
        """The size of the batch, in bytes."""
        return super().size_in_bytes + sum(map(cost, self._encoded))


class _Encoded:
    """Stands for a message of which there are only the encoded bytes; it cannot be encoded again.

    If the application traces, the SDK looks for the context of a span in a private part of it.
    """

    def __getattr__(self, name: str) -> None:
        if not name.startswith("_"):
            raise AttributeError(name)


def cost(payload: bytes) -> int:
    """How many bytes an encoded message takes in a batch."""
    return len(payload) + (5 if len(payload) < 256 else 8)
