"""How many messages a receive requests while others are still arriving.

A receive with a limit in bytes cannot know how many messages to request, because sizes are only
known afterwards. It requests a few, estimates from those that arrive, and requests more when
half of a window has arrived, so that it does not wait a round trip for each part.
"""

from __future__ import annotations

from collections.abc import Sequence

from pairbus.amqp.events import Delivery

FIRST = 64  # messages requested while their size is unknown
WINDOW = 1024  # most messages requested in advance: they may be larger than earlier ones


class CreditWindow:
    """The progress of one receive.

    Args:
        max_messages: most messages to receive.
        max_bytes: no more messages are requested when this size is reached; None for any size.
        mean_bytes: the size of earlier messages, if known; else 0.
    """

    def __init__(self, max_messages: int, max_bytes: int | None, mean_bytes: int = 0) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._count = 0
        self._size = 0
        self.mean_bytes = mean_bytes
        self.requested = 0
        """Messages requested so far, including those that have arrived."""

    @property
    def credit(self) -> int:
        """Messages requested that have not arrived."""
        return self.requested - self._count

    def take(self, arrived: Sequence[Delivery]) -> None:
        """Count the messages that have arrived since the last call; `arrived` has all of them."""
        self._size += sum([len(one.payload) for one in arrived[self._count :]])
        self._count = len(arrived)
        if arrived:
            self.mean_bytes = max(1, self._size // self._count)

    def grow(self) -> bool:
        """Request more messages if the limits allow; return whether `requested` has grown."""
        limit = self._max_messages
        if self._max_bytes is not None:
            left = self._max_bytes - self._size
            estimate = max(1, left // self.mean_bytes) if self.mean_bytes else FIRST
            limit = min(limit, self._count + min(estimate, WINDOW)) if left > 0 else 0
        # Messages that an earlier call requested may have arrived, too.
        if limit <= max(self.requested, self._count):
            return False
        self.requested = limit
        return True

    def is_due(self, count: int) -> bool:
        """Whether to call `take` and `grow` again, now that `count` messages have arrived."""
        if self.requested == self._max_messages:
            return count >= self.requested
        return count >= self._count + (self.credit + 1) // 2
