"""The durable store of a namespace: SQLite, one writer thread, one transaction per group.

``durability="normal"``: a committed group is in the operating system's hands, so it survives the
end of the process, however sudden; a power failure may take the last moments. ``"full"``: it is on
the disk. In both a group is kept whole or not at all.
"""

from __future__ import annotations

import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from .entities.errors import StoreError
from .entities.journal import SEQUENCE_BITS, Journal
from .migrations import migrate

Durability = Literal["normal", "full"]
Done = Callable[[Exception | None], None]

DATABASE = "namespace.sqlite3"
LOCK = "namespace.lock"
PAGE = 8192
COLUMNS = 13
CHUNK = (
    32  # rows per statement: SQLite works outside Python's lock for as long as a statement takes
)
LIGHT = 8  # rows that the loop's thread writes itself
CHECKPOINT = 8192  # pages
NUMBER_MASK = (1 << SEQUENCE_BITS) - 1

_ROW = "(" + ",".join("?" * COLUMNS) + ")"
_INSERT = {n: "INSERT INTO message VALUES " + ",".join([_ROW] * n) for n in (1, CHUNK)}
_STATEMENTS = {
    "entity": "INSERT INTO entity VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
    "description = excluded.description, rules = excluded.rules, updated = excluded.updated",
    "remember": "INSERT INTO seen VALUES (?, ?, ?) "
    "ON CONFLICT (entity, key) DO UPDATE SET taken = excluded.taken",
    "session": "INSERT INTO session VALUES (?, ?, ?, ?) ON CONFLICT (queue, session_id) "
    "DO UPDATE SET state = excluded.state, updated = excluded.updated",
    "end-session": "DELETE FROM session WHERE queue = ? AND session_id = ?",
    "forget": "DELETE FROM seen WHERE entity = ? AND taken <= ?",
}


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
        self._is_closed = False
        self._pages = 0  # about how many the log has that the table's file has not
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
        except OSError as error:
            raise StoreError(f"Cannot use the data directory '{self.directory}': {error}") from None
        try:
            self._write = self._connect()
            migrate(self._write)
            self._read = self._connect()
        except (sqlite3.Error, StoreError) as error:
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

    def close(self) -> None:
        """Finish what was submitted and close the files. Twice is fine."""
        if self._is_closed:
            return
        self._is_closed = True
        self._groups.put(None)
        self._thread.join()
        self._read.close()
        self._write.close()
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

        Handing a few rows to another thread and back takes longer than writing them, as long as
        nothing waits for the disk.
        """
        return (
            self.durability == "normal"
            and len(group.inserts) + len(group.deletes) + len(group.updates) <= LIGHT
            and not group.purges
            and self._pages < CHECKPOINT
        )

    def apply(self, group: Journal) -> None:
        """Commit a group on this thread. Only while no submitted group is on its way."""
        try:
            self._apply(group)
        except Exception:
            if self._write.in_transaction:
                self._write.execute("ROLLBACK")
            raise

    def _work(self) -> None:
        while (item := self._groups.get()) is not None:
            group, done = item
            problem: Exception | None = None
            try:
                self.apply(group)
                if self._pages >= CHECKPOINT:
                    self._checkpoint()
            except Exception as error:  # noqa: BLE001 - the writer must outlive any bad group
                problem = error
            done(problem)

    def _checkpoint(self) -> None:
        """Move what the log has into the table's file. Nobody writes meanwhile: it starts anew."""
        self._write.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        self._pages = 0

    def _apply(self, group: Journal) -> None:
        execute = self._write.execute
        if not (group.updates or group.entities or group.bodies or group.purges or group.numbers):
            if not group.inserts and not group.deletes:
                return  # nothing to keep: somebody only waits for what came before
            if len(group.inserts) + len(group.deletes) == 1:
                # One statement is a transaction of its own.
                if group.inserts:
                    execute(_INSERT[1], group.inserts[0])
                    self._pages += 2 + group.inserts[0][5] // PAGE
                else:
                    execute("DELETE FROM message WHERE id = ?", group.deletes)
                    self._pages += 2
                return
        many = self._write.executemany
        execute("BEGIN IMMEDIATE")
        for kind, parameters in group.entities:
            execute(_STATEMENTS[kind], parameters)
        if group.numbers:
            many(
                "INSERT INTO queue VALUES (?, ?) "
                "ON CONFLICT (id) DO UPDATE SET last_number = excluded.last_number",
                group.numbers,
            )
        self._insert(group.inserts)
        if group.updates:
            many(
                "UPDATE message SET state = ?, due = ?, delivery_count = ? WHERE id = ?",
                group.updates,
            )
        if group.bodies:
            many("UPDATE message SET bare = ?, size = ? WHERE id = ?", group.bodies)
        for first, last in runs(group.deletes):
            execute("DELETE FROM message WHERE id BETWEEN ? AND ?", (first, last))
        for kind, parameters in group.purges:
            if kind == "drop":
                self._drop(*parameters)
            else:
                execute(_STATEMENTS[kind], parameters)
        execute("COMMIT")
        size = sum([row[5] for row in group.inserts])
        rows = len(group.inserts) + len(group.deletes) + len(group.updates)
        self._pages += 2 + size // PAGE + rows // 8

    def _insert(self, rows: Sequence[tuple[Any, ...]]) -> None:
        whole = len(rows) - len(rows) % CHUNK
        for start in range(0, whole, CHUNK):
            flat: list[Any] = []
            for row in rows[start : start + CHUNK]:
                flat += row
            self._write.execute(_INSERT[CHUNK], flat)
        if whole < len(rows):
            self._write.executemany(_INSERT[1], rows[whole:])

    def _drop(self, entity_id: int, first_queue: int, queues: int) -> None:
        execute = self._write.execute
        span = (first_queue << SEQUENCE_BITS, (first_queue + queues) << SEQUENCE_BITS)
        numbers = (first_queue, first_queue + queues)
        execute("DELETE FROM message WHERE id >= ? AND id < ?", span)
        execute("DELETE FROM session WHERE queue >= ? AND queue < ?", numbers)
        execute("DELETE FROM queue WHERE id >= ? AND id < ?", numbers)
        execute("DELETE FROM seen WHERE entity = ?", (entity_id,))
        execute("DELETE FROM entity WHERE id = ?", (entity_id,))

    # --- reading ----------------------------------------------------------------------------------

    def read(
        self, queue_id: int, numbers: Sequence[int]
    ) -> Iterator[tuple[int, bytes | None, bytes]]:
        """The bytes of these messages: ``(sequence number, annotations, bare)``."""
        base = queue_id << SEQUENCE_BITS
        for first, last in runs([base + number for number in numbers]):
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
        return dict(self._read.execute("SELECT id, last_number FROM queue"))

    def sessions(self) -> Iterable[tuple[int, str, bytes, int]]:
        """``(queue, session_id, state, updated)`` of sessions with state."""
        return self._read.execute("SELECT queue, session_id, state, updated FROM session")

    def seen(self) -> Iterable[tuple[int, str, int]]:
        """``(entity, key, taken)`` of the duplicate detection histories, oldest first."""
        return self._read.execute("SELECT entity, key, taken FROM seen ORDER BY taken")

    def messages(self) -> Iterable[tuple[Any, ...]]:
        """All messages by queue and number, without their bytes."""
        return self._read.execute(
            "SELECT id, state, enqueued, due, delivery_count, size, origin, ttl, flags, "
            "session_id, source FROM message ORDER BY id"
        )


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive numbers as ``(first, last)``, ascending: one statement for many rows."""
    found: list[tuple[int, int]] = []
    if not numbers:
        return found
    ordered = sorted(numbers)
    first = last = ordered[0]
    for number in ordered:
        if number > last + 1:
            found.append((first, last))
            first = number
        last = number
    found.append((first, last))
    return found
