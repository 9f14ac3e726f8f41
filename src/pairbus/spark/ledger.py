"""The entries of the syphon's driver and coordinator in the ledger; without one, nothing."""

from dataclasses import asdict

from pairbus.ledger import LedgerWriter, probe
from pairbus.syphon.records import OperationCount
from pairbus.syphon.status_records import LedgerState

__all__ = ["SyphonLedger"]


class SyphonLedger:
    """Counts operations in a ledger, and writes the status.

    Args:
        location: the ledger; None if there is none.
        client_id: the client in its rows.
    """

    def __init__(self, location: str | None, client_id: str) -> None:
        self._writer = LedgerWriter(location, client_id=client_id) if location else None

    def add(self, *counts: OperationCount) -> None:
        """Count operations."""
        if self._writer is not None:
            for one in counts:
                self._writer.count(**asdict(one))

    def write_status(self, status: bytes) -> None:
        """Write the syphon's status file."""
        if self._writer is not None:
            self._writer.write_status(f"{self._writer.client_id}.json", status)

    def flush(self) -> None:
        """Write the counts."""
        if self._writer is not None:
            self._writer.flush()

    def probe(self) -> str | None:
        """Return why no receipt could be written now; None if one could."""
        return None if self._writer is None else probe(self._writer.location)

    def state(self) -> LedgerState:
        """Whether the entries reach the ledger."""
        writer = self._writer
        return LedgerState(writer.dropped_rows, writer.problem) if writer else LedgerState()

    def close(self) -> None:
        """Write the remaining rows."""
        if self._writer is not None:
            self._writer.close()
