"""Finds receipts: which messages of a backlog queue were forwarded already, and which are in doubt.

A syphon whose target has changed looks here before it sends a message that it had received before
the change: a message with a receipt is not sent again, to any namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pairbus.ledger import files
from pairbus.ledger.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAY_HAVE", "ReceiptIndex", "list_in_doubt"]

#: The end of a receipt's `reason` if a former target may have the message, too.
MAY_HAVE = " may have it too"

_DONE = ("forwarded", "completed")
_KEY = ("backlog_queue", "sequence_number", "message_id", "enqueued_at")

Key = tuple[str, int, str | None, int | None]
"""Queue, sequence number, message id, and when it was enqueued in microseconds since 1970.

The sequence number alone is not unique: a queue that is deleted and created again counts from 1."""


class ReceiptIndex:
    """The receipts of a ledger, file by file; a file that was read is not read again.

    Args:
        store: the ledger.
        lowest: per backlog queue, the lowest sequence number that matters.
    """

    def __init__(self, store: Store, lowest: Mapping[str, int] | None = None) -> None:
        self._store = store
        self._lowest = dict(lowest or {})
        self._tables: dict[str, pa.Table] = {}

    def find(self, keys: Iterable[Key]) -> set[Key]:
        """Return which of these messages have a receipt."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = set(keys)
        if not wanted:
            return set()
        self._tables = files.read_each(self._store, "messages", self._read, self._tables)
        numbers = pa.array(sorted({key[1] for key in wanted}), pa.int64())
        found: set[Key] = set()
        for table in self._tables.values():
            some = table.filter(pc.is_in(table["sequence_number"], value_set=numbers))
            found |= wanted & set(zip(*(some[name].to_pylist() for name in _KEY), strict=True))
        return found

    def _read(self, name: str) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = files.read_rows(self._store, name, [*_KEY, "event"])
        table = table.filter(pc.is_in(table["event"], value_set=pa.array(_DONE)))
        times = table["enqueued_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        table = table.select(_KEY[:3]).append_column("enqueued_at", times)
        for queue, lowest in self._lowest.items():
            is_old = pc.and_(
                pc.equal(table["backlog_queue"], queue), pc.less(table["sequence_number"], lowest)
            )
            table = table.filter(pc.invert(pc.fill_null(is_old, False)))
        return table


def list_in_doubt(location: str) -> list[dict[str, Any]]:
    """Return the messages that a former target may have, too: id, queue, destination, reason.

    Raises:
        LedgerError: there is no ledger.
    """
    import pyarrow.compute as pc

    store = Store(location)
    store.require_ledger()
    columns = ["at", "message_id", "destination", "backlog_queue", "sequence_number", "reason"]
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    read = partial(files.read_rows, store, columns=columns)
    for table in files.read_each(store, "messages", read).values():
        some = table.filter(pc.fill_null(pc.ends_with(table["reason"], MAY_HAVE), False))
        for row in some.to_pylist():
            found[tuple(row[c] for c in columns)] = row
    return sorted(found.values(), key=lambda row: (row["backlog_queue"], row["sequence_number"]))
