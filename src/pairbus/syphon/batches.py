"""Cut messages into batches, and a batch into parts; the order stays."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Job", "cut_batches"]


@dataclass(frozen=True, slots=True)
class Job:
    """One batch for one destination: rows and their messages, as they are sent."""

    rows: list[int]
    messages: list[bytes]

    def split(self, at: int) -> "tuple[Job, Job]":
        """Split it into the first `at` messages and the rest."""
        return Job(self.rows[:at], self.messages[:at]), Job(self.rows[at:], self.messages[at:])


def cut_batches(sizes: Sequence[int], *, max_bytes: int, max_messages: int = 4500) -> list[range]:
    """Cut messages of these encoded sizes, in their order, into batches that fit.

    Each message takes a few bytes more in a batch (the data section around it). A message that is
    too large for any batch gets one of its own; the destination's refusal then decides about it.
    """
    batches: list[range] = []
    start, total = 0, 0
    for index, size in enumerate(sizes):
        cost = size + 8
        if index > start and (total + cost > max_bytes or index - start >= max_messages):
            batches.append(range(start, index))
            start, total = index, 0
        total += cost
    if start < len(sizes):
        batches.append(range(start, len(sizes)))
    return batches
