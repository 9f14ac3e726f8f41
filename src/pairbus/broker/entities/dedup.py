"""Duplicate detection: the identifiers that were accepted within a window, stored durably."""

from __future__ import annotations

from pairbus.broker.entities.context import Context
from pairbus.broker.entities.messages import NEVER, IncomingMessage


class History:
    """The message identifiers that an entity accepted within the window.

    A second message with the same identifier within the window is accepted and dropped, as the
    service does. Where the entity is partitioned, the partition key is part of the identity.
    """

    def __init__(self, context: Context, entity_id: int, window: int, *, partitioned: bool) -> None:
        self._context = context
        self._entity_id = entity_id
        self._partitioned = partitioned
        self.window = window
        self.seen: dict[str, int] = {}
        """The time at which each identifier was accepted, oldest first."""
        self.next_due = NEVER

    def is_new(self, message: IncomingMessage, now: int) -> bool:
        """Whether the identifier is new within the window; if so, it is recorded."""
        if message.message_id is None:
            return True
        key = message.message_id
        if self._partitioned:
            key = f"{message.session_id or message.partition_key or ''}\n{key}"
        taken = self.seen.get(key)
        if taken is not None:
            if taken + self.window > now:
                return False
            del self.seen[key]  # so that it is added again at the end
        self.seen[key] = now
        self._context.journal.entities.append(("remember", (self._entity_id, key, now)))
        self.arm()
        return True

    def arm(self) -> None:
        """Set the timer to when the oldest identifier leaves the window."""
        if self.seen:
            # Not for each identifier: once per tenth of the window is often enough.
            due = next(iter(self.seen.values())) + self.window + self.window // 10
            if due < self.next_due:
                self.next_due = due
                self._context.arm(due, self)

    def tick(self, now: int) -> None:
        """Forget identifiers that have left the window."""
        self.next_due = NEVER
        horizon = now - self.window
        old = []
        for key, taken in self.seen.items():
            if taken > horizon:
                break
            old.append(key)
        for key in old:
            del self.seen[key]
        if old:
            self._context.journal.purges.append(("forget", (self._entity_id, horizon)))
        self.arm()
