"""Operations as the service would bill them, per entity and kind.

A send, a receive and a ping are one operation per message and 64 KB; a settle one per message; a
credit grant that ended with nothing delivered is one ``receive-empty``; a management call is one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal[
    "send", "ping", "receive", "receive-empty", "settle", "renew", "peek", "schedule", "cancel",
    "deferred", "session", "admin",
]  # fmt: skip


class OperationCounts(NamedTuple):
    """The operations of one kind on one entity."""

    calls: int
    messages: int
    bytes: int
    billable: int


class OperationCounter:
    """Counts by ``(entity path, kind)``; as cheap as one dictionary access and four additions."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], list[int]] = {}

    def add(
        self, entity: str, kind: Kind, calls: int, messages: int, size: int, billable: int
    ) -> None:
        """Add to the counts of one entity and kind."""
        row = self._rows.get((entity, kind))
        if row is None:
            row = self._rows[entity, kind] = [0, 0, 0, 0]
        row[0] += calls
        row[1] += messages
        row[2] += size
        row[3] += billable

    def call(self, entity: str, kind: Kind) -> None:
        """Count a call that carries no messages: one operation."""
        self.add(entity, kind, 1, 0, 0, 1)

    def __getitem__(self, key: tuple[str, str]) -> OperationCounts:
        return OperationCounts(*self._rows.get(key, (0, 0, 0, 0)))

    def snapshot(self) -> dict[tuple[str, str], OperationCounts]:
        """A copy of all counts."""
        return {key: OperationCounts(*row) for key, row in self._rows.items()}
