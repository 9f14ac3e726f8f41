"""What is in the log and not in the tables yet, put together: the last word on each message.

A message that was sent and completed in the meantime leaves nothing to do for the tables. A
message's row identifier is never used again, so whatever is known of one here is newer than what
the tables have.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

from pairbus.broker.entities.journal import Journal, MessageRow

Logged = tuple[
    list[MessageRow],
    list[int],
    list[tuple[int, int, int, int]],
    list[tuple[str, tuple[Any, ...]]],
    list[tuple[int, int]],
]
"""A group as the log has it: inserts, deletes, updates, entities, numbers."""


def logged(group: Journal) -> Logged:
    """The rows of a group without changed bodies and purges, which the log does not take."""
    return group.inserts, group.deletes, group.updates, group.entities, group.numbers


class Pending:
    """Rows that wait for their way into the tables, and the tables as they will be then."""

    __slots__ = ("_deletes", "_entities", "_numbers", "_updates", "inserts", "last")

    def __init__(self) -> None:
        self.inserts: dict[int, MessageRow] = {}
        self.last = 0
        """The number of the last record of the log that is in here."""
        self._deletes: list[int] = []
        self._updates: dict[int, tuple[int, int, int, int]] = {}
        self._entities: list[tuple[str, tuple[Any, ...]]] = []
        self._numbers: dict[int, int] = {}

    def add(self, number: int, group: Logged) -> None:
        """Take in one group of the log; they come in the order of their numbers."""
        self.last = number
        inserts, deletes, updates, entities, numbers = group
        rows = self.inserts
        for row in inserts:
            rows[row[0]] = row
        if updates:
            for state, due, count, key in updates:
                if key in rows:
                    row = rows[key]
                    rows[key] = (key, state, row[2], due, count, *row[5:])
                else:
                    self._updates[key] = (state, due, count, key)
        for key in deletes:
            if rows.pop(key, None) is None:
                self._deletes.append(key)
                if self._updates:
                    self._updates.pop(key, None)
        if entities:
            self._entities += entities
        if numbers:
            self._numbers.update(numbers)

    def group(self) -> Journal:
        """All of it as one group for the tables."""
        group = Journal()
        group.inserts = list(self.inserts.values())
        group.deletes = self._deletes
        group.updates = list(self._updates.values())
        group.entities = self._entities
        group.numbers = list(self._numbers.items())
        return group

    def read(self, key: int) -> tuple[bytes | None, bytes] | None:
        """Annotations and bytes of a message that the tables do not have yet."""
        row = self.inserts.get(key)
        return None if row is None else (row[11], row[12] or b"")

    # --- on top of the tables ---------------------------------------------------------------------

    def over_messages(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Messages of the tables, by identifier, as they are with what waits here."""
        new = [self.inserts[key][:11] for key in sorted(self.inserts)]
        return heapq.merge(self._left(rows), new, key=lambda row: row[0])

    def _left(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        gone = set(self._deletes)
        for row in rows:
            key = row[0]
            if key in self._updates:
                state, due, count, _ = self._updates[key]
                yield (key, state, row[2], due, count, *row[5:])
            elif key not in gone:
                yield row

    def over_numbers(self, numbers: dict[int, int]) -> dict[int, int]:
        """The last numbers of queues."""
        return {**numbers, **self._numbers}

    def over_sessions(
        self, rows: Iterable[tuple[int, str, bytes, int]]
    ) -> Iterable[tuple[int, str, bytes, int]]:
        """Sessions with state."""
        sessions = {row[:2]: row for row in rows}
        for kind, row in self._entities:
            if kind == "session":
                sessions[row[:2]] = row
            elif kind == "end-session":
                sessions.pop(row[:2], None)
        return sessions.values()

    def over_seen(self, rows: Iterable[tuple[int, str, int]]) -> Iterable[tuple[int, str, int]]:
        """Histories of duplicate detection, oldest first."""
        seen = {row[:2]: row for row in rows}
        for kind, row in self._entities:
            if kind == "remember":
                seen[row[:2]] = row
        return sorted(seen.values(), key=lambda row: row[2])
