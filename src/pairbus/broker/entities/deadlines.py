"""When the messages of one queue are due: scheduled messages, and messages with a time to live."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from pairbus.broker.entities.messages import (
    ACTIVE,
    DEFERRED,
    NEVER,
    SCHEDULED,
    StoredMessage,
)


class Deadlines:
    """The due times of stored messages.

    Entries of messages that were removed stay in the heaps and are skipped.

    Args:
        messages: the stored messages by number.
    """

    def __init__(self, messages: dict[int, StoredMessage]) -> None:
        self._messages = messages
        self.scheduled: list[tuple[int, int]] = []
        """A heap of due times and numbers."""
        self.expiring: list[tuple[int, int]] = []
        """A heap of expiry times and numbers."""

    def watch(self, message: StoredMessage) -> None:
        """Return this message when it is due, from `take_scheduled` or `take_expired`."""
        entry = message.expires_at, message.sequence_number
        if message.state == SCHEDULED:
            heapq.heappush(self.scheduled, entry)
            return
        heapq.heappush(self.expiring, entry)
        if len(self.expiring) > 2 * len(self._messages) + 1024:
            # Most of these messages were consumed before they expired: shrink the heap.
            self.expiring = [
                (m.expires_at, m.sequence_number)
                for m in self._messages.values()
                if m.expires_at != NEVER and m.state != SCHEDULED
            ]
            heapq.heapify(self.expiring)

    def soonest(self) -> int:
        """When the next message is due; NEVER if there is none."""
        return min(
            self.scheduled[0][0] if self.scheduled else NEVER,
            self.expiring[0][0] if self.expiring else NEVER,
        )

    def take_scheduled(self, now: int) -> list[StoredMessage]:
        """The scheduled messages that are due; each is returned once."""
        found = []
        while self.scheduled and self.scheduled[0][0] <= now:
            due, number = heapq.heappop(self.scheduled)
            message = self._messages.get(number)
            if message is not None and message.state == SCHEDULED and message.expires_at == due:
                found.append(message)
        return found

    def take_expired(self, now: int) -> Iterator[StoredMessage]:
        """The messages whose time to live is over, without locked ones; each is yielded once.

        The caller expires a message before the next one is taken: if that fails, the others stay.
        """
        while self.expiring and self.expiring[0][0] <= now:
            message = self._messages.get(heapq.heappop(self.expiring)[1])
            if (
                message is not None
                and message.expires_at <= now
                and message.state in (ACTIVE, DEFERRED)
            ):
                yield message

    def clear(self) -> None:
        """Forget all due times."""
        self.scheduled.clear()
        self.expiring.clear()
