"""The ledger writer of a paired client or a syphon: sums in memory, files once a minute.

`count` adds to numbers in memory under a lock and does nothing else. A background task writes the
sums, minute by minute, and the rows of messages. No failure there reaches a send: it is counted,
logged once and reported by `problem`, and the rows are kept and written later.

A write can also hang, on NFS or on an object store. So rows are numbered and bounded when they are
added, not when they are written: beyond `MAX_PENDING_ROWS` the oldest are dropped and counted in
`dropped_rows`, and a reader of the ledger sees the gap in their numbers.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pairbus.ledger import files
from pairbus.ledger.store import LedgerError, Store, first_line, shown
from pairbus.names import billable as operations
from pairbus.names import namespace_or_host
from pairbus.runtime import ThreadRuntime

if TYPE_CHECKING:
    from pairbus.runtime import Event, Runtime, Task

logger = logging.getLogger("pairbus.ledger")

FLUSH_SECONDS = 60.0
FLUSH_ROWS = 20_000
MAX_PENDING_ROWS = 500_000
CLOSE_SECONDS = 30.0
SLOW_SECONDS = 30.0
"""Seconds after which a write that has not returned is reported as a problem."""

_KEYS = ("namespace", "entity", "stage", "operation", "size_step")
_SUMS = ("count", "messages", "bytes", "billable", "billable_batched")
_Key = tuple[str, str, str, str, int]
_Rows = deque[dict[str, Any]]


class LedgerWriter:
    """Appends to a ledger without delaying its caller, and without raising errors of the ledger.

    Args:
        location: the ledger's directory or URL.
        client_id: the client that every row names.
        runtime: clock, background task and files.

    The constructor does no I/O: the first flush opens the ledger.

    Attributes:
        failures: How many flushes failed.
        dropped_rows: How many rows were dropped because they could not be written in time.
    """

    def __init__(self, location: str, *, client_id: str, runtime: Runtime | None = None) -> None:
        self.location = str(location)
        self._runtime: Runtime = runtime or ThreadRuntime()
        self._time = self._runtime.time
        self._closed = False
        self.begin(client_id)

    def begin(self, client_id: str) -> None:
        """Begin as a new writer without rows, as in a forked process whose parent writes them."""
        self.client_id = client_id
        self.writer = f"{client_id}.{self._runtime.uuid4().hex[:12]}"
        self._store: Store | None = None
        self._lock = self._runtime.lock()  # guards the rows: held for a moment
        self._io = self._runtime.lock()  # guards the files: held while writing
        self._minute = -1
        self._sums: dict[_Key, list[int]] = {}
        self._pending: dict[str, _Rows] = {"operations": deque(), "messages": deque()}
        self._writing: dict[str, list[dict[str, Any]]] = {"operations": [], "messages": []}
        self._next = {"operations": 0, "messages": 0}
        self._wake: Event = self._runtime.event()
        self._task: Task | None = None
        self._error: str | None = None
        self._writing_since: float | None = None
        self.failures = 0
        self.dropped_rows = 0

    def __repr__(self) -> str:
        state = "closed" if self._closed else self.problem or "ok"
        return f"<LedgerWriter {self.writer} {state}>"

    @property
    def problem(self) -> str | None:
        """Why rows are not written now, in one line; None if there is no problem."""
        since = self._writing_since
        if since is not None:
            seconds = self._runtime.monotonic() - since
            if seconds >= SLOW_SECONDS:
                return f"a write has not returned for {seconds:.0f} s"
        return self._error

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
            operation: the call, such as `send`.
            messages: messages in the call; 0 for a poll that ended empty.
            size: encoded bytes of them all.
            billable: the operations charged, each message by itself. Left out, it is
                counted from the mean size, which is right for messages of one size.
            calls: how many calls this counts as.
        """
        if billable is None:
            billable = messages * operations(-(-size // messages)) if messages else calls
        key = (namespace, entity, stage, operation, -(-billable // messages) if messages else 1)
        minute = int(self._time() // 60)
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
            if self._task is None:
                self._start()

    def backlogged(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows for messages that a backlog queue accepted.

        Each row has message_id, destination, backlog_queue, size, and session_id if there is one;
        `at` is now unless it is given.
        """
        at = int(self._time() * 1_000_000)
        with self._lock:
            for row in rows:
                self._add("messages", {"at": at, **row, "event": "backlogged"})
            if len(self._pending["messages"]) >= FLUSH_ROWS:
                self._wake.set()
            if self._task is None:
                self._start()

    def flush(self) -> bool:
        """Write all rows; return whether they are written. Errors of the ledger are not raised.

        It waits as long as the file system does.
        """
        with self._io:
            self._writing_since = self._runtime.monotonic()
            try:
                self._write()
            except (OSError, LedgerError, ValueError, TypeError, ArithmeticError) as exc:
                self._failed(exc)
                return False
            finally:
                self._writing_since = None
            if self._error is not None:
                logger.info("ledger %s is written again", shown(self.location))
                self._error = None
            return True

    def close(self) -> None:
        """Write everything and stop; wait at most `CLOSE_SECONDS` for a file system that hangs.

        A second call does nothing new. Rows counted later are written when the process ends.
        """
        self._closed = True
        self._wake.set()
        if self._task is not None and not self._task.join(CLOSE_SECONDS):
            if self._task.is_done or self._writing_since is None:
                return  # called by the task itself, which flushes next
            with self._lock:
                lost = sum(map(len, self._pending.values())) + sum(map(len, self._writing.values()))
            logger.warning(
                "ledger %s: %d rows were not written within %d s",
                shown(self.location),
                lost,
                CLOSE_SECONDS,
            )
            return
        self.flush()

    def __enter__(self) -> LedgerWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def write_status(self, name: str, data: bytes) -> None:
        """Write `status/<name>` whole; raises OSError or LedgerError when it cannot."""
        self._opened().write_whole(f"status/{name}", data)

    def _flush_while_open(self) -> bool:
        """Flush; return whether another flush is to follow."""
        is_closed = self._closed  # read first, so that rows added before the close are flushed
        self.flush()
        return not is_closed

    # -- rows; the caller holds the lock

    def _start(self) -> None:
        flush = weakref.WeakMethod(self._flush_while_open)
        self._task = self._runtime.spawn(
            _run, flush, self._wake, FLUSH_SECONDS, name="pairbus-ledger"
        )
        atexit.register(_close_at_exit, weakref.ref(self))

    def _seal(self, minute: int) -> None:
        """Turn the sums of the minute into rows, and begin another minute."""
        for key, sums in self._sums.items():
            row = dict(zip(_KEYS, key, strict=True)) | dict(zip(_SUMS, sums, strict=True))
            row["minute"] = self._minute * 60_000_000
            row["namespace"] = namespace_or_host(key[0])
            self._add("operations", row)
        self._sums = {}
        self._minute = minute

    def _add(self, table: str, row: dict[str, Any]) -> None:
        """Number a row and keep it; drop the oldest one if there are too many."""
        row["writer"] = self.writer
        row["sequence"] = self._next[table]
        row["client_id"] = self.client_id
        self._next[table] += 1
        pending = self._pending[table]
        pending.append(row)
        if len(pending) + len(self._writing[table]) > MAX_PENDING_ROWS:
            pending.popleft()
            self.dropped_rows += 1

    # -- files; the caller holds the lock of the files

    def _write(self) -> None:
        with self._lock:
            self._seal(self._minute)
            for table, pending in self._pending.items():
                self._writing[table] += pending
                pending.clear()
        for table, rows in self._writing.items():
            if rows:
                names = files.column_names(table)
                columns = {name: [row.get(name) for row in rows] for name in names}
                files.write_rows(self._opened(), table, columns)
                with self._lock:
                    rows.clear()

    def _opened(self) -> Store:
        if self._store is None:
            self._store = Store.create(self.location, runtime=self._runtime)
        return self._store

    def _failed(self, exc: BaseException) -> None:
        with self._lock:  # to the front of the pending rows, which may be dropped
            for table, rows in self._writing.items():
                self._pending[table].extendleft(reversed(rows))
                rows.clear()
        self.failures += 1
        self._store = None  # open it again next time: the directory may have been replaced
        text = first_line(exc)
        if self._error is None:
            logger.warning("ledger %s is not written: %s", shown(self.location), text)
        self._error = text


def _run(flush: weakref.WeakMethod[Callable[[], bool]], wake: Event, interval: float) -> None:
    """Flush at every interval, until the writer is closed or garbage-collected."""
    is_open = True
    while is_open:
        wake.wait(interval)
        wake.clear()
        call = flush()
        is_open = call is not None and call()
        del call  # so that this task does not keep an unused writer alive


def _close_at_exit(reference: weakref.ref[LedgerWriter]) -> None:
    writer = reference()
    if writer is not None:
        writer.close()
