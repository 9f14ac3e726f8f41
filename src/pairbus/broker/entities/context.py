"""The objects that the entities of one namespace share: journal, counters, timers, router.

The namespace makes one and passes it to every queue.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from pairbus.broker.entities.counters import OperationCounter
from pairbus.broker.entities.journal import Journal
from pairbus.broker.entities.messages import NEVER, StoredMessage

if TYPE_CHECKING:
    from pairbus.broker.entities.message_store import MessageStore
    from pairbus.broker.entities.router import Router

Load = Callable[["MessageStore", list[StoredMessage]], None]
"""Reads the bytes of messages from the store into them."""


class Ticking(Protocol):
    """An object whose `tick` is called at a given time."""

    next_due: int

    def tick(self, now: int) -> None:
        """Perform the actions that are due at this time."""


class Budget:
    """Limits the bytes of stored messages that stay in memory.

    Queues are read from the front. So when the budget is used up, the bytes of new messages are
    dropped from memory immediately, and read again in batches before their delivery.
    """

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = NEVER) -> None:
        self.limit = limit
        self.used = 0

    def admit(self, messages: Iterable[StoredMessage]) -> None:
        """Count the bytes of new messages, or drop them if the budget is used up."""
        limit = self.limit
        used = self.used
        for message in messages:
            if used >= limit:
                message.bare = message.annotations = None
            else:
                used += message.size
        self.used = used

    def released(self, size: int) -> None:
        """Subtract the bytes of a message that are no longer in memory."""
        self.used -= size

    def grew(self, size: int) -> None:
        """Add bytes that were loaded or appended to a message in memory."""
        self.used += size


class Context:
    """One per namespace, known to all its queues."""

    router: Router

    def __init__(
        self,
        *,
        token_prefix: bytes,
        load: Load | None,
        budget: Budget,
    ) -> None:
        self.journal = Journal()
        self.operations = OperationCounter()
        self.budget = budget
        self.load = load
        self.changed: Callable[[], None] = lambda: None
        """Call it after staging a change outside a method of the namespace."""
        self._token_prefix = token_prefix
        self._tokens = 0
        self._timers: list[tuple[int, int, Ticking]] = []
        self._armed = 0

    def take_journal(self) -> Journal:
        """Return the staged changes, and start a new group."""
        taken, self.journal = self.journal, Journal()
        return taken

    def new_tokens(self, count: int) -> list[bytes]:
        """New lock tokens of 16 bytes: unique in this process, and beyond it by their prefix."""
        first = self._tokens + 1
        self._tokens += count
        prefix = self._token_prefix
        return [prefix + number.to_bytes(8, "big") for number in range(first, first + count)]

    # --- time -------------------------------------------------------------------------------------

    def arm(self, due: int, thing: Ticking) -> None:
        """Call ``tick`` of *thing* at this time."""
        self._armed += 1
        heapq.heappush(self._timers, (due, self._armed, thing))

    def reset(self) -> None:
        """Forget staged changes and timers: the entities are read from the store again."""
        self.journal = Journal()
        self._timers = [
            timer for timer in self._timers if getattr(timer[2], "outlives_entities", False)
        ]
        heapq.heapify(self._timers)
        self.budget.used = 0

    def next_deadline(self) -> int:
        """The soonest time at which something is due; NEVER if nothing is."""
        timers = self._timers
        while timers and timers[0][0] != timers[0][2].next_due:
            heapq.heappop(timers)  # it was armed again for an earlier time, or disarmed
        return timers[0][0] if timers else NEVER

    def tick(self, now: int) -> None:
        """Call everything that is due."""
        while self.next_deadline() <= now:
            heapq.heappop(self._timers)[2].tick(now)
