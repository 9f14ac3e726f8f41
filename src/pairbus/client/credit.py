"""How many messages a receive asks for while others are still arriving.

A receive that is bounded in bytes cannot know how many messages to ask for, as sizes are only known
afterwards. It asks for a few, estimates from those that arrive, and asks for more when half of a
window has arrived: so it never waits a round trip for each part.
"""

from __future__ import annotations

from collections.abc import Sequence

from pairbus.amqp.events import Delivery

FIRST = 64  # messages asked for when nothing is known of their size
WINDOW = 1024  # most messages asked for ahead: they may be larger than those before


class CreditWindow:
    """The progress of one receive.

    Args:
        max_messages: most messages to receive.
        max_bytes: no more messages are asked for when this size is reached; None for any size.
        mean_bytes: the size of earlier messages, if known; else 0.
    """

    def __init__(self, max_messages: int, max_bytes: int | None, mean_bytes: int = 0) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._count = 0
        self._size = 0
        self.mean_bytes = mean_bytes
        self.asked = 0
        """Messages asked for so far, those that arrived included."""

    @property
    def credit(self) -> int:
        """Messages asked for that have not arrived."""
        return self.asked - self._count

    def take(self, arrived: Sequence[Delivery]) -> None:
        """Count the messages that have arrived since the last call; `arrived` has all of them."""
        self._size += sum([len(one.payload) for one in arrived[self._count :]])
        self._count = len(arrived)
        if arrived:
            self.mean_bytes = max(1, self._size // self._count)

    def grow(self) -> bool:
        """Ask for more messages, if more are wanted now."""
        limit = self._max_messages
        if self._max_bytes is not None:
            left = self._max_bytes - self._size
            guess = max(1, left // self.mean_bytes) if self.mean_bytes else FIRST
            limit = min(limit, self._count + min(guess, WINDOW)) if left > 0 else 0
        if limit <= self.asked:
            return False
        self.asked = limit
        return True

    def is_due(self, count: int) -> bool:
        """Whether so many arrived messages are a reason to call `take` and `grow` again."""
        if self.asked == self._max_messages:
            return count >= self.asked
        return count >= self._count + (self.credit + 1) // 2
