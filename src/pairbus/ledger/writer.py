"""The writer that every acting part holds: counters on the hot path, files once a minute.

`count` adds to numbers in memory under a lock and does nothing else. A background thread writes
what was summed up, minute by minute, and the rows of messages. Nothing that happens there ever
reaches a send: a failure is counted, logged once, told by `problem`, and the rows are kept and
written later, up to a bound.
"""

from __future__ import annotations

import atexit
import logging
import re
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pairbus.ledger import files
from pairbus.ledger.store import LedgerError, Store, shown
from pairbus.names import billable as operations
from pairbus.names import namespace_or_host

if TYPE_CHECKING:
    import pyarrow.fs as pafs

logger = logging.getLogger("pairbus.ledger")

FLUSH_SECONDS = 60.0
FLUSH_ROWS = 20_000
MAX_PENDING_ROWS = 500_000

_Key = tuple[str, str, str, str, int]


class LedgerWriter:
    """Appends to a ledger, and never stands in the way of who uses it.

    Args:
        location: the ledger's directory or URL.
        client_id: who acts; it is in every row.
        clock: seconds since the epoch.
        flush_interval: seconds between two writes.
        filesystem: a pyarrow filesystem to use instead of the one that `location` names.

    Making one touches nothing but memory: the first flush opens the ledger.
    """

    def __init__(
        self,
        location: str,
        *,
        client_id: str,
        clock: Callable[[], float] = time.time,
        flush_interval: float = FLUSH_SECONDS,
        filesystem: pafs.FileSystem | None = None,
    ) -> None:
        self.location = str(location)
        self.client_id = client_id
        self.writer = f"{client_id}.{uuid.uuid4().hex[:12]}"
        self._clock = clock
        self._interval = flush_interval
        self._filesystem = filesystem
        self._store: Store | None = None
        self._lock = threading.Lock()  # guards the numbers: held for a moment
        self._io = threading.Lock()  # guards the files: held while writing
        self._minute = -1
        self._sums: dict[_Key, list[int]] = {}
        self._sealed: list[tuple[int, dict[_Key, list[int]]]] = []
        self._rows: list[Mapping[str, Any]] = []
        self._pending: dict[str, list[dict[str, Any]]] = {"operations": [], "messages": []}
        self._next = {"operations": 0, "messages": 0}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.problem: str | None = None
        self.failures = 0
        self.dropped_rows = 0

    def __repr__(self) -> str:
        state = "closed" if self._closed else self.problem or "ok"
        return f"<LedgerWriter {self.writer} {state}>"

    def count(
        self,
        namespace: str,
        entity: str,
        stage: str,
        operation: str,
        *,
        messages: int = 1,
        size: int = 0,
        billable: int | None = None,
        calls: int = 1,
    ) -> None:
        """Add one call to the sums of this minute.

        Args:
            namespace: the namespace that was called.
            entity: the queue, topic or subscription that was called.
            stage: one of `pairbus.pricing.STAGES`.
            operation: what was called, such as `send`.
            messages: messages in the call; 0 for a poll that ended empty.
            size: encoded bytes of them all.
            billable: what the service charges for, each message by itself. Left out, it is
                counted from the mean size, which is right for messages of one size.
            calls: how many calls this stands for.
        """
        if billable is None:
            billable = messages * operations(-(-size // messages)) if messages else calls
        key = (namespace, entity, stage, operation, -(-billable // messages) if messages else 1)
        minute = int(self._clock() // 60)
        with self._lock:
            if minute != self._minute:
                self._seal(minute)
            row = self._sums.get(key)
            if row is None:
                row = self._sums[key] = [0, 0, 0, 0, 0]
            row[0] += calls
            row[1] += messages
            row[2] += size
            row[3] += billable
            row[4] += max(calls, operations(size))
            if self._thread is None:
                self._start()

    def backlogged(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Note messages that a backlog queue took.

        Each row has message_id, destination, backlog_queue, size, and where there is one
        session_id; `at` is now unless it is given.
        """
        self.messages("backlogged", rows)

    def messages(self, event: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Note messages: `event` is one of `schema.EVENTS`."""
        at = int(self._clock() * 1_000_000)
        noted = [{"at": at, **row, "event": event} for row in rows]
        with self._lock:
            self._rows.extend(noted)
            if len(self._rows) >= FLUSH_ROWS:
                self._wake.set()
            if self._thread is None:
                self._start()

    def flush(self) -> bool:
        """Write everything noted so far; say whether it is written. Never raises for a ledger."""
        with self._io:
            self._collect()
            try:
                self._write_pending()
            except (OSError, LedgerError, ValueError, TypeError, ArithmeticError) as exc:
                self._failed(exc)
                return False
            if self.problem is not None:
                logger.info("ledger %s is written again", shown(self.location))
                self.problem = None
            return True

    def close(self) -> None:
        """Flush and stop. Twice is fine; what is counted after it is written by a later flush."""
        self._closed = True
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=30)
        self.flush()

    def __enter__(self) -> LedgerWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def write_status(self, name: str, data: bytes) -> None:
        """Write `status/<name>` whole; raises OSError or LedgerError when it cannot."""
        self._opened().write_whole(f"status/{name}", data)

    def after_fork(self, client_id: str) -> None:
        """Go on in a child process as `client_id`, with nothing noted.

        What was noted before the fork is the parent's to write.
        """
        self.client_id = client_id
        self.writer = f"{client_id}.{uuid.uuid4().hex[:12]}"
        self._lock = threading.Lock()
        self._io = threading.Lock()
        self._minute = -1
        self._sums = {}
        self._sealed = []
        self._rows = []
        self._pending = {"operations": [], "messages": []}
        self._next = {"operations": 0, "messages": 0}
        self._wake = threading.Event()
        self._thread = None
        self._store = None
        self.problem = None

    # -- what happens on the background thread

    def _start(self) -> None:
        self._thread = threading.Thread(
            target=_run, args=(weakref.ref(self), self._wake), name="pairbus-ledger", daemon=True
        )
        self._thread.start()
        atexit.register(_flush_at_exit, weakref.ref(self))

    def _seal(self, minute: int) -> None:
        if self._sums:
            self._sealed.append((self._minute, self._sums))
            self._sums = {}
        self._minute = minute

    def _collect(self) -> None:
        """Turn what was noted into numbered rows. A number is given once, whatever happens."""
        with self._lock:
            self._seal(self._minute)
            sealed, self._sealed = self._sealed, []
            noted, self._rows = self._rows, []
        for minute, sums in sealed:
            for (namespace, entity, stage, operation, step), sum_ in sums.items():
                self._number(
                    "operations",
                    {
                        "minute": minute * 60_000_000,
                        "namespace": namespace_or_host(namespace),
                        "entity": entity,
                        "stage": stage,
                        "operation": operation,
                        "size_step": step,
                        "count": sum_[0],
                        "messages": sum_[1],
                        "bytes": sum_[2],
                        "billable": sum_[3],
                        "billable_batched": sum_[4],
                    },
                )
        for row in noted:
            self._number("messages", dict(row))
        for rows in self._pending.values():
            excess = len(rows) - MAX_PENDING_ROWS
            if excess > 0:  # the gap in their numbers tells a reader of them
                del rows[:excess]
                self.dropped_rows += excess

    def _number(self, table: str, row: dict[str, Any]) -> None:
        row["writer"] = self.writer
        row["sequence"] = self._next[table]
        row["client_id"] = self.client_id
        self._next[table] += 1
        self._pending[table].append(row)

    def _write_pending(self) -> None:
        if not any(self._pending.values()):
            return
        store = self._opened()
        for table, rows in self._pending.items():
            if rows:
                write_rows(store, table, rows)
                rows.clear()

    def _opened(self) -> Store:
        if self._store is None:
            store = Store(self.location, filesystem=self._filesystem)
            store.ensure_ledger()
            self._store = store
        return self._store

    def _failed(self, exc: BaseException) -> None:
        self.failures += 1
        self._store = None  # look at everything anew next time: the place may have been remade
        text = (str(exc).splitlines() or [type(exc).__name__])[0]
        if self.problem is None:
            logger.warning("ledger %s is not written: %s", shown(self.location), text)
        self.problem = text


def write_rows(store: Store, table: str, rows: list[dict[str, Any]]) -> str:
    """Write numbered rows as one file and return its name."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        spans.setdefault(row["writer"], []).append((row["sequence"], row["sequence"]))
    ranges = {writer: files.merge(found) for writer, found in spans.items()}
    names = files.column_names(table)
    columns = {name: [row.get(name) for row in rows] for name in names}
    data = files.encode(files.to_table(table, columns), ranges)
    first = rows[0]
    name = f"{table}/{safe_name(first['writer'])}-{first['sequence']:012d}-{len(rows)}.parquet"
    store.write_whole(name, data)
    return name


def safe_name(text: str) -> str:
    """Return `text` as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.\-]+", "_", text).lstrip("._")[:120] or "x"


def _run(reference: weakref.ref[LedgerWriter], wake: threading.Event) -> None:
    """Flush now and then, as long as somebody holds the writer."""
    while True:
        writer = reference()
        if writer is None or writer._closed:  # noqa: SLF001
            return
        interval = writer._interval  # noqa: SLF001
        del writer
        wake.wait(interval)
        wake.clear()
        writer = reference()
        if writer is None or writer._closed:  # noqa: SLF001
            return
        writer.flush()
        del writer


def _flush_at_exit(reference: weakref.ref[LedgerWriter]) -> None:
    writer = reference()
    if writer is not None:
        writer.flush()
