"""Receipts: rows of messages that are durable when the call returns.

The syphon's sink writes a receipt after a destination confirmed a message and before it settles
the message, so that a crash can double a message but never lose it, or the proof of it.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pairbus.ledger import files
from pairbus.ledger.store import LedgerError, Store
from pairbus.ledger.writer import safe_name

if TYPE_CHECKING:
    import pyarrow as pa

_lock = threading.Lock()
_numbering: dict[tuple[int, str, str], tuple[str, int]] = {}
_stores: dict[tuple[int, str], Store] = {}

PROBE_BYTES = 65536


def write_receipts(
    location: str,
    rows: Sequence[Mapping[str, Any]] | pa.Table | pa.RecordBatch,
    *,
    client_id: str = "syphon",
) -> None:
    """Write receipts; they are durable when this returns.

    Args:
        location: the ledger's directory or URL.
        rows: mappings, or an Arrow table, with the columns of the messages table but for `writer`
            and `sequence`, which are given here. `event` is needed; `at` is now unless given; times
            are aware datetimes or microseconds since the epoch.
        client_id: who acts, where a row does not say it.

    Raises:
        LedgerError, OSError: nothing may be settled.
    """
    count = rows.num_rows if hasattr(rows, "num_rows") else len(rows)
    if not count:
        return
    writer, first = _take_numbers(location, client_id, count)
    try:
        columns = _columns(rows, count, client_id)
        columns["writer"] = [writer] * count
        columns["sequence"] = range(first, first + count)
        data = files.encode(
            files.to_table("messages", columns), {writer: [(first, first + count - 1)]}
        )
        store = _store(location)
        store.write_whole(f"messages/{safe_name(writer)}-{first:012d}-{count}.parquet", data)
    except BaseException:
        # The file may or may not be there, so these numbers are used up; under a new name they
        # leave no gap that a reader would take for missing rows.
        with _lock:
            _numbering.pop((os.getpid(), location, client_id), None)
            _stores.pop((os.getpid(), location), None)
        raise


def probe(location: str) -> str | None:
    """Say whether a receipt could be written now: None, or in one line why not."""
    try:
        store = Store(location)
        store.ensure_ledger()
        name = f"status/probe-{uuid.uuid4().hex[:12]}.tmp"
        store.write_whole(name, os.urandom(PROBE_BYTES))
        store.delete(name)
    except (LedgerError, OSError) as exc:
        return (str(exc).splitlines() or [type(exc).__name__])[0]
    return None


def _take_numbers(location: str, client_id: str, count: int) -> tuple[str, int]:
    key = (os.getpid(), location, client_id)
    with _lock:
        writer, first = _numbering.get(key) or (f"{client_id}.{uuid.uuid4().hex[:12]}", 0)
        _numbering[key] = (writer, first + count)
    return writer, first


def _store(location: str) -> Store:
    key = (os.getpid(), location)
    store = _stores.get(key)
    if store is None:
        store = Store(location)
        store.ensure_ledger()
        _stores[key] = store
    return store


def _columns(rows: Any, count: int, client_id: str) -> dict[str, Sequence[Any]]:
    names = [n for n in files.column_names("messages") if n not in ("writer", "sequence")]
    if hasattr(rows, "num_rows"):
        columns = {n: rows.column(n) for n in names if n in rows.schema.names}
    else:
        columns = {n: [row.get(n) for row in rows] for n in names}
        if all(at is None for at in columns["at"]):
            del columns["at"]
    if "at" not in columns:
        columns["at"] = [time.time_ns() // 1000] * count
    if "client_id" not in columns or not hasattr(rows, "num_rows"):
        given = columns.get("client_id") or [None] * count
        columns["client_id"] = [one or client_id for one in given]
    return columns
