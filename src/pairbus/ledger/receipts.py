"""Receipts: rows of messages that are durable when the call returns.

The syphon's sink writes a receipt after a destination confirmed a message and before it settles
the message, so that a crash can duplicate a message but never lose it, or the proof of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pairbus.ledger import files
from pairbus.ledger.store import LedgerError, Store, first_line
from pairbus.runtime import ThreadRuntime

if TYPE_CHECKING:
    import pyarrow as pa

    from pairbus.runtime import Runtime

PROBE_BYTES = 65536


class ReceiptWriter:
    """Writes the receipts of one process to one ledger, numbered without a gap.

    Args:
        location: the ledger's directory or URL.
        client_id: the client of rows that do not name one.
        runtime: clock, lock and files.
    """

    def __init__(
        self, location: str, *, client_id: str = "syphon", runtime: Runtime | None = None
    ) -> None:
        self._location = location
        self._client_id = client_id
        self._runtime: Runtime = runtime or ThreadRuntime()
        self._lock = self._runtime.lock()
        self._store: Store | None = None
        self._begin_writer()

    def _begin_writer(self) -> None:
        self._writer = f"{self._client_id}.{self._runtime.uuid4().hex[:12]}"
        self._next = 0

    def write(self, rows: Sequence[Mapping[str, Any]] | pa.Table | pa.RecordBatch) -> None:
        """Write receipts; they are durable when this returns.

        Args:
            rows: mappings, or an Arrow table, with the columns of the messages table except
                `writer` and `sequence`, which are set here. `event` is required; `at` is now unless
                given; times are aware datetimes or microseconds since the epoch.

        Raises:
            LedgerError, OSError: they are not durable; do not settle the messages.
        """
        count = rows.num_rows if hasattr(rows, "num_rows") else len(rows)
        if not count:
            return
        with self._lock:
            writer, first = self._writer, self._next
            self._next += count
        try:
            now = int(self._runtime.time() * 1_000_000)
            columns = _columns(rows, count, self._client_id, now)
            columns["writer"] = [writer] * count
            columns["sequence"] = range(first, first + count)
            if self._store is None:
                self._store = Store.create(self._location, runtime=self._runtime)
            files.write_rows(self._store, "messages", columns)
        except BaseException:
            # The file may or may not exist, so these numbers are used up. A new writer name avoids
            # a gap that a reader would take for missing rows.
            with self._lock:
                if self._writer == writer:
                    self._begin_writer()
                self._store = None
            raise

    def probe(self) -> str | None:
        """Return None if a receipt could be written now, else the reason in one line."""
        try:
            store = Store.create(self._location, runtime=self._runtime)
            name = f"status/probe-{self._runtime.uuid4().hex[:12]}.tmp"
            store.write_whole(name, self._runtime.random.randbytes(PROBE_BYTES))
            store.delete(name)
        except (LedgerError, OSError) as exc:
            return first_line(exc)
        return None


_writers: dict[tuple[int, str, str], ReceiptWriter] = {}  # by process id


def write_receipts(
    location: str,
    rows: Sequence[Mapping[str, Any]] | pa.Table | pa.RecordBatch,
    *,
    client_id: str = "syphon",
) -> None:
    """Write receipts with the `ReceiptWriter` of this process: see `ReceiptWriter.write`."""
    key = (os.getpid(), location, client_id)
    if key not in _writers:
        _writers.setdefault(key, ReceiptWriter(location, client_id=client_id))
    _writers[key].write(rows)


def probe(location: str) -> str | None:
    """Return None if a receipt could be written now, else the reason in one line."""
    return ReceiptWriter(location).probe()


def _columns(rows: Any, count: int, client_id: str, now: int) -> dict[str, Sequence[Any]]:
    if hasattr(rows, "num_rows"):
        given = {name: rows.column(name) for name in rows.schema.names}
        return {"at": [now] * count, "client_id": [client_id] * count, **given}
    filled = [
        {"at": now, "client_id": client_id, **{n: v for n, v in row.items() if v is not None}}
        for row in rows
    ]
    return {n: [row.get(n) for row in filled] for n in files.column_names("messages")}
