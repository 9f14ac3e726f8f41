"""Deferred messages: their sequence numbers by destination and queue, in pages on disk.

A message that waits longer than two locks for its destination is deferred in its backlog queue: it
needs no lock, and can only be received by its sequence number. So the number is recorded before the
message is deferred, and removed after the message was settled. A number that is recorded although
the message is not deferred does no harm: the reader finds that out and reports it.

The memory holds one entry for each page of up to `PAGE` numbers, not one for each message.
"""

import bisect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pairbus.syphon.codec import Record

if TYPE_CHECKING:
    from pairbus.syphon.state import StatePages

__all__ = ["PAGE", "DeferredMessages", "DeferredNumbers", "from_ranges", "to_ranges"]

PAGE = 4096  # numbers


def to_ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Return numbers as runs without gaps, each with its first and last number."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


def from_ranges(ranges: Iterable[Sequence[int]]) -> list[int]:
    """Return the numbers of these runs."""
    return [number for first, last in ranges for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class DeferredNumbers(Record):
    """Deferred messages of one queue for one destination, by sequence number: `deferred/*.json`.

    It has no numbers if its content is lost.
    """

    destination: str = ""
    queue: str = ""
    numbers: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, with the numbers as ranges."""
        ranges = to_ranges(self.numbers)
        return {"destination": self.destination, "queue": self.queue, "ranges": ranges}

    @classmethod
    def from_json(cls, data: Any) -> "DeferredNumbers":
        """Read the JSON form; reports of tasks of earlier versions have a list of the values."""
        if isinstance(data, Mapping):
            if not data.get("ranges"):
                return cls()
            data = data["destination"], data["queue"], data["ranges"]
        destination, queue, ranges = data
        return cls(destination, queue, tuple(from_ranges(ranges)))


@dataclass(slots=True)
class _Page:
    name: str
    first: int
    last: int
    count: int


class DeferredMessages:
    """The sequence numbers of deferred messages; `load` reads the records of an earlier run.

    A page that cannot be read now raises OSError, and nothing is changed.

    Attributes:
        lost: queues with numbers that are lost: the messages must be searched for.
    """

    def __init__(self, store: "StatePages") -> None:
        self._store = store
        self._pages: dict[tuple[str, str], list[_Page]] = {}
        self.lost: set[str] = set()

    def load(self) -> list[str]:
        """Read the index of all pages; return the names of those that have no content."""
        broken: list[str] = []
        for name in self._store.names():
            page = self._store.read(name)
            if page.numbers:
                entry = _Page(name, page.numbers[0], page.numbers[-1], len(page.numbers))
                self._pages.setdefault((page.destination, page.queue), []).append(entry)
            else:
                broken.append(name)
        for pages in self._pages.values():
            pages.sort(key=lambda entry: entry.first)
        return broken

    def remove(self, names: Iterable[str]) -> None:
        """Remove pages that have no content."""
        for name in names:
            self._store.remove(name)

    def destinations(self) -> set[str]:
        """Return the destinations that deferred messages wait for."""
        return {destination for destination, _ in self._pages}

    def counts(self) -> dict[str, int]:
        """Return how many messages are deferred for each destination."""
        counts: dict[str, int] = {}
        for (destination, _), pages in self._pages.items():
            counts[destination] = counts.get(destination, 0) + sum(page.count for page in pages)
        return counts

    def add(self, destination: str, queue: str, numbers: Iterable[int]) -> None:
        """Record numbers; those that are recorded already are recorded once."""
        key = (destination, queue)
        pages = self._pages.get(key, [])
        fresh: list[int] = []  # numbers behind the last page
        inside: dict[int, list[int]] = {}
        starts = [page.first for page in pages]
        for number in sorted(set(numbers)):
            if not pages or (number > pages[-1].last and pages[-1].count >= PAGE):
                fresh.append(number)
            else:
                at = max(0, bisect.bisect_right(starts, number) - 1)
                inside.setdefault(at, []).append(number)
        for at in sorted(inside, reverse=True):
            page = pages[at]
            merged = sorted({*self._numbers(queue, page), *inside[at]})
            pages[at : at + 1] = self._write(key, merged, page.name)
        pages += self._write(key, fresh)
        if pages:
            self._pages[key] = pages

    def discard(self, queue: str, numbers: Iterable[int]) -> None:
        """Forget numbers of a queue: the messages are settled, or not deferred."""
        gone = sorted(set(numbers))
        if not gone:
            return
        for key in [key for key in self._pages if key[1] == queue]:
            kept: list[_Page] = []
            for page in self._pages[key]:
                low = bisect.bisect_left(gone, page.first)
                here = set(gone[low : bisect.bisect_right(gone, page.last)])
                if not here:
                    kept.append(page)
                    continue
                left = [number for number in self._numbers(queue, page) if number not in here]
                if len(left) == page.count:
                    kept.append(page)
                elif left:
                    kept += self._write(key, left, page.name)
                else:
                    self._store.remove(page.name)
            if kept:
                self._pages[key] = kept
            else:
                del self._pages[key]

    def oldest(self, destination: str) -> tuple[str, int] | None:
        """Return queue and number of the oldest message of a destination in one of its queues."""
        found = [
            (pages[0].first, queue)
            for (name, queue), pages in self._pages.items()
            if name == destination
        ]
        if not found:
            return None
        number, queue = min(found)
        return queue, number

    def next(self, destinations: Collection[str], most: int) -> dict[str, tuple[int, ...]]:
        """Return the lowest numbers of each queue for some destinations.

        Args:
            destinations: those that may be sent to.
            most: how many numbers of each queue at most.
        """
        found: dict[str, list[int]] = {}
        for key in [key for key in self._pages if key[0] in destinations]:
            some = self._lowest(key, most)
            if some:
                found.setdefault(key[1], []).extend(some)
        return {queue: tuple(sorted(some)[:most]) for queue, some in found.items()}

    def _lowest(self, key: tuple[str, str], most: int) -> list[int]:
        some: list[int] = []
        for page in list(self._pages[key]):
            if len(some) >= most:
                break
            numbers = self._numbers(key[1], page)
            some += numbers
            if not numbers:
                self._pages[key].remove(page)
        if not self._pages[key]:
            del self._pages[key]
        return some

    def _numbers(self, queue: str, page: _Page) -> Sequence[int]:
        numbers = self._store.read(page.name).numbers
        if len(numbers) < page.count:
            self.lost.add(queue)
        return numbers

    def _write(
        self, key: tuple[str, str], numbers: list[int], name: str | None = None
    ) -> list[_Page]:
        """Write numbers in as many pages as they need, the first under this name."""
        written = []
        for start in range(0, len(numbers), PAGE):
            some = numbers[start : start + PAGE]
            name = name or self._store.new_name()
            page = DeferredNumbers(*key, tuple(some))
            written.append((name, page, _Page(name, some[0], some[-1], len(some))))
            name = None
        # The first page, which had all the numbers before, is replaced last: so each number is
        # in a page at any time.
        for name, page, _ in reversed(written):
            self._store.write(name, page)
        return [page for _, _, page in written]
