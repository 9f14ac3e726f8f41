"""How much the syphon may read in the next micro-batch: rate limits and bounded drains."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["Bucket", "Grant", "share"]


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket whose clock is an argument; a rate of None allows everything.

    It holds at most `burst` seconds of its rate, and its level may become negative: how much was
    read is known only afterwards, and is charged then.
    """

    rate: float | None = None
    burst: float = 2.0
    level: float = 0.0
    at: float | None = None

    def refill(self, now: float) -> "Bucket":
        """Return the bucket at `now`."""
        if self.rate is None:
            return replace(self, at=now)
        if self.at is None:  # a new bucket holds one second of its rate
            return replace(self, level=self.rate, at=now)
        gained = max(0.0, now - self.at) * self.rate
        return replace(self, level=min(self.level + gained, self.rate * self.burst), at=now)

    def charge(self, amount: float) -> "Bucket":
        """Return the bucket after `amount` was used."""
        return self if self.rate is None else replace(self, level=self.level - amount)

    def limit(self, rate: float | None) -> "Bucket":
        """Return the bucket with another rate (the operator changed it)."""
        return self if rate == self.rate else Bucket(rate, self.burst, 0.0, self.at)

    def available(self) -> int | None:
        """Return the whole tokens that may be used now; None when there is no limit."""
        return None if self.rate is None else max(0, int(self.level))


@dataclass(frozen=True, slots=True)
class Grant:
    """How much of one queue may be read in one micro-batch.

    Args:
        queue: the queue.
        messages: most messages.
        size: most bytes.
        numbers: receive these deferred messages, by sequence number, and no others.
    """

    queue: str
    messages: int
    size: int
    numbers: tuple[int, ...] = ()


def share(
    queues: Sequence[str],
    *,
    per_queue: int,
    bytes_per_queue: int,
    messages: int | None = None,
    size: int | None = None,
    turn: int = 0,
) -> list[Grant]:
    """Share the allowance among the queues that have messages.

    Args:
        queues: the queues that have messages.
        per_queue: the cap of messages for each queue.
        bytes_per_queue: the cap of bytes for each queue.
        messages: messages that may be read in all, None for no limit.
        size: bytes that may be read in all, None for no limit.
        turn: a number that grows by one, so that a small allowance visits every queue in turn.
    """
    if not queues or messages == 0 or size == 0:
        return []
    start = turn % len(queues)
    ordered = [*queues[start:], *queues[:start]]
    if messages is not None and messages < len(ordered):
        ordered = ordered[:messages]
    count = len(ordered)
    grants = []
    for index, queue in enumerate(ordered):
        number, room = per_queue, bytes_per_queue
        if messages is not None:
            number = min(number, messages // count + (1 if index < messages % count else 0))
        if size is not None:
            room = min(room, max(1, size // count))
        if number > 0:
            grants.append(Grant(queue, number, room))
    return grants
