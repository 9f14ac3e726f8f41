"""The messages of a queue that are ready to be received, in the order of their numbers.

New messages are appended in the order of their numbers; a message that was abandoned, or whose lock
expired, returns to its position. So the queue is a deque of new messages and a small heap of
returned ones, and the next message is the lower of the two heads.
"""

from __future__ import annotations

import heapq
from collections import deque

from pairbus.broker.entities.messages import ACTIVE, StoredMessage


class ReadyQueue:
    """Ready messages by sequence number; entries that are no longer active are skipped."""

    __slots__ = ("fresh", "returned")

    def __init__(self) -> None:
        self.fresh: deque[StoredMessage] = deque()
        self.returned: list[tuple[int, StoredMessage]] = []

    def push(self, message: StoredMessage) -> None:
        """Add a message; appending in order is the fastest case."""
        fresh = self.fresh
        if not fresh or fresh[-1].sequence_number < message.sequence_number:
            fresh.append(message)
        else:
            heapq.heappush(self.returned, (message.sequence_number, message))

    def put_back(self, message: StoredMessage) -> None:
        """Return a message to its position."""
        heapq.heappush(self.returned, (message.sequence_number, message))

    def pop(self) -> StoredMessage | None:
        """Take the first active message, or None."""
        fresh, returned = self.fresh, self.returned
        while True:
            if returned and (not fresh or returned[0][0] < fresh[0].sequence_number):
                message = heapq.heappop(returned)[1]
            elif fresh:
                message = fresh.popleft()
            else:
                return None
            if message.state == ACTIVE:
                return message

    def pop_many(self, count: int) -> list[StoredMessage]:
        """Take the first active messages, as many as there are up to *count*."""
        found: list[StoredMessage] = []
        if not self.returned:
            popleft, append = self.fresh.popleft, found.append
            for _ in range(min(count, len(self.fresh))):
                message = popleft()
                if message.state == ACTIVE:
                    append(message)
        while len(found) < count:
            following = self.pop()
            if following is None:
                break
            found.append(following)
        return found

    def first(self) -> StoredMessage | None:
        """The first active message, without taking it."""
        message = self.pop()
        if message is not None:
            self.put_back(message)
        return message

    def __bool__(self) -> bool:
        return bool(self.fresh or self.returned)
