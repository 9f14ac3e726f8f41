"""Cut messages into batches, and a refused batch into halves; the order stays."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Job", "cut_batches", "split_batch"]


@dataclass(frozen=True, slots=True)
class Job:
    """One batch for one destination: the rows in `batch` of all its rows."""

    indices: list[int]
    messages: list[bytes]
    batch: range

    def rows(self) -> list[int]:
        """Return the rows."""
        return self.indices[self.batch.start : self.batch.stop]

    def payloads(self) -> list[bytes]:
        """Return their messages."""
        return self.messages[self.batch.start : self.batch.stop]

    def part(self, batch: range) -> "Job":
        """Return a part of the batch."""
        return Job(self.indices, self.messages, batch)


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


def split_batch(batch: range) -> tuple[range, range]:
    """Split a refused batch in two, in order; the second half of a single message is empty."""
    middle = min(batch.start + max(1, len(batch) // 2), batch.stop)
    return range(batch.start, middle), range(middle, batch.stop)
