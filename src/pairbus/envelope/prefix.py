"""Reads, in one step, the sections that a broker writes in front of a message.

A broker delivers every message with the same sections in front (header, delivery annotations,
message annotations), the same keys in the same order, and only numbers and tokens that differ. The
first message is read key by key. Its constant bytes and the positions of its numbers are kept as a
prefix; the next messages are compared with the prefix and read by one call of `struct`. A message
that differs is read key by key again.
"""

import struct
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

#: AMQP's numbers of a fixed width: the format code, and the format character of `struct`.
NUMBERS = {
    0x50: "B", 0x51: "b", 0x60: "H", 0x61: "h", 0x52: "B", 0x70: "I", 0x53: "B", 0x80: "Q",
    0x54: "b", 0x71: "i", 0x55: "b", 0x81: "q", 0x83: "q",
}  # fmt: skip
_MAX_PREFIXES = 4
_HITS_PER_PREFIX = 50  # messages that a prefix should match, on average, to be worth its cost


class Head(NamedTuple):
    """The values in front of a message; times are milliseconds since 1970."""

    section: bytes  # the header to forward
    end: int  # where the rest begins
    sequence_number: int | None
    enqueued_time: int | None
    locked_until: int | None
    state: int
    delivery_count: int


class Place(NamedTuple):
    """Bytes that differ from message to message: a number to read, or bytes to ignore."""

    start: int
    format: str  # of `struct`: one number, or pad bytes
    field: int | None = None  # index in `Head`


class _Prefix:
    """The layout of the first sections of a message."""

    __slots__ = ("_defaults", "_literals", "_pick", "_same", "_unpack", "head", "size")

    def __init__(self, payload: bytes, head: Head, places: Sequence[Place]) -> None:
        self.head = head
        self.size = head.end
        form, pos, count = ">", 0, 0
        literals: list[bytes] = []
        same: list[int] = []
        at: dict[int, int] = {}
        for place in sorted(places):
            if place.start > pos:
                form += f"{place.start - pos}s"
                literals.append(payload[pos : place.start])
                same.append(count)
                count += 1
            form += place.format
            pos = place.start + struct.calcsize(">" + place.format)
            if place.field is not None:
                at[place.field] = count
                count += 1
        if pos < head.end:
            form += f"{head.end - pos}s"
            literals.append(payload[pos : head.end])
            same.append(count)
            count += 1
        self._unpack = struct.Struct(form).unpack_from
        self._literals: Any = tuple(literals) if len(literals) > 1 else literals[0]
        self._same = itemgetter(*same)
        # Fields without a place have the same value in all messages that match.
        self._defaults = tuple(head)
        self._pick = itemgetter(*(at.get(n, count + n) for n in range(len(head))))

    def read(self, payload: bytes) -> Any:
        """The fields of `Head`, in order; None if this message has a different layout."""
        if len(payload) < self.size:
            return None
        fields = self._unpack(payload)
        if self._same(fields) != self._literals:
            return None
        return self._pick(fields + self._defaults)


class Prefixes:
    """The prefixes of the most recent layouts."""

    def __init__(self) -> None:
        self._known: tuple[_Prefix, ...] = ()
        self._hits = 0
        self._made = 0

    def read(self, payload: bytes) -> Any:
        """The fields of `Head`, in order, or None if no known prefix fits."""
        for prefix in self._known:
            found = prefix.read(payload)
            if found is not None:
                self._hits += 1
                return found
        return None

    def is_worth_it(self) -> bool:
        """Whether the prefixes have matched often enough to make another one."""
        return self._made < 20 + self._hits // _HITS_PER_PREFIX

    def learn(self, payload: bytes, head: Head, places: Sequence[Place]) -> None:
        """Add the layout of this message."""
        self._made += 1
        self._known = (_Prefix(payload, head, places), *self._known[: _MAX_PREFIXES - 1])
