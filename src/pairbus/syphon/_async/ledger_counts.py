"""The coordinator's use of the ledger: operations are counted, written, and probed after a failure.

A probe and a flush may take long, so both run on a worker thread, without any lock.
"""

from typing import Protocol

from pairbus.runtime import AsyncRuntime
from pairbus.syphon.records import OperationCount
from pairbus.syphon.status_records import LedgerState

__all__ = ["LedgerCounts", "Operations"]

FLUSH_EVERY = 10.0  # seconds
PROBE_EVERY = 2.0


class Operations(Protocol):
    """The ledger, as the coordinator sees it."""

    def add(self, *counts: OperationCount) -> None:
        """Count operations."""

    def flush(self) -> object:
        """Make the counts durable."""

    def probe(self) -> str | None:
        """Why no receipt could be written now, in one line; None if one could."""

    def state(self) -> LedgerState:
        """Whether the counts reach the ledger; does not wait."""


class LedgerCounts:
    """Counts the operations of one syphon.

    Args:
        runtime: clock and worker threads.
        operations: the ledger.
        namespace: the secondary's name in the ledger.

    Attributes:
        problem: why a task could write no receipt, until a probe can.
    """

    def __init__(self, runtime: AsyncRuntime, operations: Operations, namespace: str) -> None:
        self._runtime = runtime
        self._operations = operations
        self._namespace = namespace
        self.problem: str | None = None
        self._must_flush = False
        self._probed_at = self._flushed_at = 0.0

    def count(self, stage: str, queue: str, operation: str, *numbers: int) -> None:
        """Count an operation on a backlog queue: calls, messages, bytes, billable operations."""
        self.add(OperationCount(self._namespace, stage, queue, operation, *numbers))

    def add(self, *counts: OperationCount) -> None:
        """Count operations, those of tasks too."""
        self._operations.add(*counts)
        self._must_flush = self._must_flush or bool(counts)

    def state(self) -> LedgerState:
        """Whether the counts reach the ledger; does not wait."""
        return self._operations.state()

    async def probe(self) -> None:
        """After a failure, find out now and then whether the ledger can be written again."""
        now = self._runtime.time()
        if self.problem and now - self._probed_at >= PROBE_EVERY:
            self._probed_at = now
            problem = await self._runtime.run_blocking(self._operations.probe)
            self.problem = f"ledger: {problem}" if problem else None

    async def flush(self, *, is_last: bool) -> None:
        """Make the counts durable, if it is time or the syphon ends."""
        now = self._runtime.time()
        if self._must_flush and (is_last or now - self._flushed_at >= FLUSH_EVERY):
            self._must_flush, self._flushed_at = False, now
            await self._runtime.run_blocking(self._operations.flush)
