"""The locks of one queue: its locked messages by lock token."""

from __future__ import annotations

from collections.abc import Iterable

from pairbus.broker.entities.messages import NEVER, StoredMessage

LOCK_LOST = (
    "The lock supplied is invalid. Either the lock expired, or the message has already been "
    "removed from the queue."
)


class Locks(dict[bytes, StoredMessage]):
    """Locked messages by token, in the order in which their locks end.

    While all locks of a queue have the same duration, a new or renewed lock ends last, so the first
    entry ends first. After the duration was shortened, all entries are checked until no older lock
    is left.
    """

    is_ordered = True

    def soonest_end(self) -> int:
        """When the first lock ends; NEVER if there is none."""
        if not self:
            self.is_ordered = True
            return NEVER
        if self.is_ordered:
            return next(iter(self.values())).locked_until
        return min(message.locked_until for message in self.values())

    def ended(self, now: int) -> list[StoredMessage]:
        """The messages whose lock has expired."""
        found = []
        for message in self.values():
            if message.locked_until <= now:
                found.append(message)
            elif self.is_ordered:
                break
        return found

    def renew(self, messages: Iterable[StoredMessage], until: int) -> None:
        """Extend the locks of these messages."""
        for message in messages:
            message.locked_until = until
            self[message.lock_token] = self.pop(message.lock_token)
