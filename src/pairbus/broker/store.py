"""The durable store of a namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .entities.journal import Journal


class Store:
    """Keeps groups of changes."""

    def commit(self, group: Journal) -> None:
        """Make a group durable before this returns."""
        raise NotImplementedError

    def submit(self, group: Journal, done: Callable[[Exception | None], None]) -> None:
        """Make a group durable, then call *done* from the writer's thread."""
        raise NotImplementedError

    def read(self, queue_id: int, numbers: list[int]) -> Iterable[tuple[int, bytes | None, bytes]]:
        """The bytes of messages: ``(sequence number, annotations, bare)``."""
        raise NotImplementedError
