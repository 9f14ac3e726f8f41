"""The durable store of a namespace: SQLite behind a log, one writer thread, groups kept whole.

``durability="normal"``: what is committed is in the operating system's hands, so it survives the
end of the process, however sudden; a power failure may take the last moments. ``"full"``: it is on
the disk. In both a group is kept whole or not at all.

A group is appended to the log (:mod:`.log`) by the thread that asks, which takes little longer than
deciding it. A very large one, one that changes entities, or one that a disk must confirm, is a
transaction of the writer's thread; it takes along what the log has gathered, and empties it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from pairbus.broker.entities.errors import StoreError
from pairbus.broker.entities.journal import SEQUENCE_BITS, Journal
from pairbus.broker.store.log import Log
from pairbus.broker.store.migrations import migrate
from pairbus.broker.store.pending import Pending, logged
from pairbus.broker.store.rows import runs, write_group, write_one_by_one

Durability = Literal["normal", "full"]
Done = Callable[[Exception | None], None]

DATABASE = "namespace.sqlite3"
LOG = "namespace.groups"
LOCK = "namespace.lock"
PAGE = 8192
LIGHT = 2000  # rows that are appended to the log together
LIGHT_BYTES = 2 * 1024 * 1024
GATHER = 8 * 1024 * 1024  # bytes that the log gathers before they go into the tables
CHECKPOINT = 8192  # pages
NUMBER_MASK = (1 << SEQUENCE_BITS) - 1
_IN_LOG = frozenset({"remember", "session", "end-session"})

_log = logging.getLogger("pairbus.broker.store")


class StoreInUseError(StoreError):
    """Another process works with this directory."""


class Store:
    """The files of one namespace in one directory.

    Args:
        directory: made if it does not exist.
        durability: ``normal`` or ``full``.

    Raises:
        StoreInUseError: another process has the directory open.
        StoreError: the files cannot be opened, or a newer version wrote them.
    """

    def __init__(self, directory: str | os.PathLike[str], durability: Durability = "normal"):
        self.directory = Path(directory)
        self.durability = durability
        self._is_normal = durability == "normal"
        self._is_closed = False
        self._pages = 0  # about how many SQLite's own log has that the table's file has not
        self._pending = Pending()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
        except OSError as error:
            raise StoreError(f"Cannot use the data directory '{self.directory}': {error}") from None
        try:
            self._write = self._connect()
            migrate(self._write)
            self._read = self._connect()
            self._log = Log(self.directory / LOG)
            self._recover()
        except (sqlite3.Error, OSError, StoreError) as error:
            self._lock.close()
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"Cannot open the store in '{self.directory}': {error}") from None
        self._groups: queue.SimpleQueue[tuple[Journal, Done] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="pairbus-store", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Store {self.directory} {self.durability}>"

    def _take_lock(self) -> IO[str]:
        path = self.directory / LOCK
        lock = path.open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read(32).strip()
            lock.close()
            raise StoreInUseError(
                f"The data directory '{self.directory}' is in use by another broker"
                + (f" (process {holder})." if holder else ".")
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        return lock

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.directory / DATABASE, isolation_level=None, check_same_thread=False
        )
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(
            f"PRAGMA synchronous = {'FULL' if self.durability == 'full' else 'NORMAL'}"
        )
        if self.durability == "full":  # on macOS a plain fsync leaves data in the drive's cache
            connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # _checkpoint does it
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("PRAGMA cache_size = -16384")
        return connection

    @property
    def is_closed(self) -> bool:
        """Whether it has ended: nothing can be read or written."""
        return self._is_closed

    def close(self) -> None:
        """Finish what was submitted and close the files. Twice is fine."""
        if self._is_closed:
            return
        self._is_closed = True
        self._groups.put(None)
        self._thread.join()
        self._read.close()
        self._write.close()
        self._log.close()
        self._lock.close()

    # --- writing ----------------------------------------------------------------------------------

    def submit(self, group: Journal, done: Done) -> None:
        """Commit a group on the writer's thread; *done* is called there when it is durable.

        Groups are committed in the order of the calls.
        """
        if self._is_closed:
            done(StoreError("The store is closed."))
        else:
            self._groups.put((group, done))

    def commit(self, group: Journal) -> None:
        """Commit a group and wait for it; raises what kept it from being stored."""
        result: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self.submit(group, result.put)
        error = result.get()
        if error is not None:
            raise error

    def is_light(self, group: Journal) -> bool:
        """Whether the caller had better :meth:`apply` this group itself.

        Handing a few rows to another thread and back takes longer than appending them to the log,
        as long as nothing waits for the disk.
        """
        inserts = group.inserts
        return (
            self._is_normal
            and len(inserts) + len(group.deletes) + len(group.updates) <= LIGHT
            and not (group.purges or group.bodies)
            and self._log.size < GATHER
            and self._log.is_sound
            and (not group.entities or all(kind in _IN_LOG for kind, _ in group.entities))
            and (len(inserts) < 2 or sum([row[5] for row in inserts]) <= LIGHT_BYTES)
        )

    def apply(self, group: Journal) -> None:
        """Commit a light group on this thread. Only while no submitted group is on its way."""
        self._append(group)

    def _apply(self, group: Journal) -> None:
        if self.is_light(group):
            self._append(group)
        else:
            self._transact(group)

    def _append(self, group: Journal) -> None:
        rows = logged(group)
        if not (group.deletes or group.inserts or any(rows)):
            return  # nothing to keep: somebody only waits for what came before
        try:
            self._log.append(rows)
        except ValueError:  # a value of a type of its own: the tables know what to do with it
            self._transact(group)
        else:
            self._pending.add(self._log.number, rows)

    def _transact(self, group: Journal) -> None:
        """Write what the log has gathered and this group into the tables, in one transaction."""
        write, pending = self._write, self._pending
        try:
            write.execute("BEGIN IMMEDIATE")
            if pending.last:
                self._write_gathered(pending)
            write_group(write, group)
            write.execute("COMMIT")
        except BaseException:
            if write.in_transaction:
                write.execute("ROLLBACK")
            raise
        self._grew(group)
        if pending.last:
            self._pending = Pending()
            self._log.clear()

    def _write_gathered(self, pending: Pending) -> None:
        write, gathered = self._write, pending.group()
        try:
            write_group(write, gathered)
        except sqlite3.OperationalError:
            raise  # of the disk, not of a row
        except (sqlite3.Error, OverflowError, ValueError):
            write.execute("ROLLBACK")
            write.execute("BEGIN IMMEDIATE")
            write_one_by_one(write, gathered)
        write.execute("UPDATE log SET applied = ?", (pending.last,))
        self._grew(gathered)

    def _grew(self, group: Journal) -> None:
        size = sum([row[5] for row in group.inserts])
        rows = len(group.inserts) + len(group.deletes) + len(group.updates)
        self._pages += 2 + size // PAGE + rows // 8

    def _recover(self) -> None:
        """Put into the tables what the log had gathered when the process ended."""
        (applied,) = self._write.execute("SELECT applied FROM log").fetchone()
        for number, rows in self._log.records():
            if number > applied:
                self._pending.add(number, rows)
        self._log.number = max(self._log.number, applied)
        if self._pending.last:
            self._transact(Journal())
        else:
            self._log.clear()

    def _work(self) -> None:
        while (item := self._groups.get()) is not None:
            group, done = item
            problem: Exception | None = None
            try:
                self._apply(group)
            except Exception as error:  # noqa: BLE001 - the writer must outlive any bad group
                problem = error
            if self._pages >= CHECKPOINT:
                self._checkpoint()
            done(problem)
        if self._pending.last:
            try:
                self._transact(Journal())
            except sqlite3.Error as error:
                _log.warning("what the log has stays there until the next start: %s", error)

    def _checkpoint(self) -> None:
        """Move what SQLite's log has into the table's file. Nobody writes: it starts anew."""
        try:
            self._write.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:  # it is kept all the same, and tried again later
            _log.warning("a checkpoint failed: %s", error)
        self._pages = 0

    # --- reading ----------------------------------------------------------------------------------

    def read(
        self, queue_id: int, numbers: Sequence[int]
    ) -> Iterator[tuple[int, bytes | None, bytes]]:
        """The bytes of these messages: ``(sequence number, annotations, bare)``."""
        pending = self._pending  # the writer's thread may begin a new one meanwhile
        base = queue_id << SEQUENCE_BITS
        stored: list[int] = []
        for number in numbers:
            found = pending.read(base + number)
            if found is None:
                stored.append(base + number)
            else:
                yield number, *found
        for first, last in runs(stored):
            for row in self._read.execute(
                "SELECT id, annotations, bare FROM message WHERE id BETWEEN ? AND ?", (first, last)
            ).fetchall():
                yield row[0] & NUMBER_MASK, row[1], row[2]

    def entities(self) -> list[tuple[Any, ...]]:
        """``(id, kind, parent, description, rules, created, updated)``, parents first."""
        return self._read.execute(
            "SELECT id, kind, parent, description, rules, created, updated FROM entity ORDER BY id"
        ).fetchall()

    def last_entity_id(self) -> int:
        """The highest entity number that was ever used."""
        row = self._read.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entity'").fetchone()
        return 0 if row is None else int(row[0])

    def last_numbers(self) -> dict[int, int]:
        """The last sequence number of each queue that gave one out."""
        numbers = dict(self._read.execute("SELECT id, last_number FROM queue"))
        return self._pending.over_numbers(numbers)

    def sessions(self) -> Iterable[tuple[int, str, bytes, int]]:
        """``(queue, session_id, state, updated)`` of sessions with state."""
        return self._pending.over_sessions(
            self._read.execute("SELECT queue, session_id, state, updated FROM session")
        )

    def seen(self) -> Iterable[tuple[int, str, int]]:
        """``(entity, key, taken)`` of the duplicate detection histories, oldest first."""
        rows = self._read.execute("SELECT entity, key, taken FROM seen ORDER BY taken")
        return self._pending.over_seen(rows) if self._pending.last else rows

    def messages(self) -> Iterable[tuple[Any, ...]]:
        """All messages by queue and number, without their bytes."""
        rows = self._read.execute(
            "SELECT id, state, enqueued, due, delivery_count, size, origin, ttl, flags, "
            "session_id, source FROM message ORDER BY id"
        )
        return self._pending.over_messages(rows) if self._pending.last else rows
