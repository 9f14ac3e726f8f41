"""The durable store of a namespace: SQLite tables, written in groups of changes.

``durability="normal"``: a commit is in the operating system's cache, so it survives the end of the
process; a power loss may lose the last commits. ``"full"``: a commit is on the disk. In both a
group is stored completely or not at all.

A group of a few rows is committed by the calling thread, because switching to another thread and
back takes longer. A larger group, and any group with "full", is committed by the writer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pairbus.broker.entities.errors import StoreError
from pairbus.broker.entities.journal import SEQUENCE_BITS, Journal
from pairbus.broker.store.migrations import migrate
from pairbus.broker.store.old_log import LOG, import_log
from pairbus.broker.store.rows import runs, statements
from pairbus.broker.store.wal_check import find_damage
from pairbus.broker.store.writer import Done, Writer
from pairbus.runtime import Runtime, ThreadRuntime

if TYPE_CHECKING:
    import asyncio

Durability = Literal["normal", "full"]

DATABASE = "namespace.sqlite3"
LOCK = "namespace.lock"
PAGE = 8192
LIGHT_ROWS = 64  # rows that the calling thread commits itself
LIGHT_BYTES = 128 * 1024
CHECKPOINT = 2048  # pages: SQLite overwrites a log of this size, which is cheaper than growing it
NUMBER_MASK = (1 << SEQUENCE_BITS) - 1

_log = logging.getLogger("pairbus.broker.store")


class StoreInUseError(StoreError):
    """Another process has this directory open."""


class StoreDamagedError(StoreError):
    """A file of the store is damaged; the text names file and offset."""


class Store:
    """The files of one namespace in one directory.

    Args:
        directory: made if it does not exist.
        durability: ``normal`` or ``full``.
        runtime: its files, and the worker that commits large groups.

    Raises:
        StoreInUseError: another process has the directory open.
        StoreDamagedError: committed transactions cannot be read.
        StoreError: the files cannot be opened, or a newer version wrote them.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        durability: Durability = "normal",
        runtime: Runtime | None = None,
    ) -> None:
        runtime = runtime or ThreadRuntime()
        self.directory = Path(directory)
        self.durability = durability
        self._files = runtime.files
        self._held = contextlib.ExitStack()
        self._is_closed = False
        self._pages = 0  # estimated pages in SQLite's write-ahead log since the last checkpoint
        try:
            self._files.make_folder(self.directory)
            self._take_lock()
        except OSError as error:
            raise StoreError(f"Cannot use the data directory '{self.directory}': {error}") from None
        try:
            damage = find_damage(self.directory / DATABASE, self._files)
            if damage is not None:
                raise StoreDamagedError(
                    f"{damage} would be lost. Restore the data directory from a backup, or run "
                    f"'pairbus broker salvage {self.directory}' to continue without them."
                )
            self._write = self._connect()
            import_log(self._write, self._files, self.directory / LOG)
            migrate(self._write)
            self._cursor = self._write.cursor()
            self._read = self._connect()
        except (sqlite3.Error, OSError, StoreError) as error:
            self._held.close()
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"Cannot open the store in '{self.directory}': {error}") from None
        self._writer = Writer(runtime.worker("pairbus-store"))

    def __repr__(self) -> str:
        return f"<Store {self.directory} {self.durability}>"

    def _take_lock(self) -> None:
        path = self.directory / LOCK
        try:
            self._held.enter_context(self._files.lock(path, block=False))
        except BlockingIOError:
            holder = self._files.read(path)[:32].decode(errors="replace").strip()
            raise StoreInUseError(
                f"The data directory '{self.directory}' is in use by another broker"
                + (f" (process {holder})." if holder else ".")
            ) from None
        holder_file = self._files.open_append(path)
        holder_file.truncate(0)
        holder_file.write(b"%d\n" % os.getpid())
        holder_file.close()

    def _connect(self) -> sqlite3.Connection:
        # The directory is locked, so SQLite need not lock its file in each transaction, which would
        # take as long as writing one message.
        vfs = "?vfs=unix-excl" if os.name == "posix" else ""
        connection = sqlite3.connect(
            (self.directory.absolute() / DATABASE).as_uri() + vfs,
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        self._held.callback(connection.close)
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
        """Whether it was closed: nothing can be read or written."""
        return self._is_closed

    def close(self) -> None:
        """Finish the outstanding groups and close the files; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._writer.close()
        self._cursor.close()
        self._held.close()

    # --- writing ----------------------------------------------------------------------------------

    def commit(self, group: Journal, done: Done) -> None:
        """Store a group completely or not at all, then call *done* with None or the error.

        *done* is called within this call, or later on the owner's thread (see `notify_on`). Groups
        are stored in the order of the calls.
        """
        if self._is_closed:
            done(StoreError("The store is closed."))
            return
        if self._writer.outstanding or not self._is_light(group):
            self._writer.run(lambda: self._write_group(group), done)
        else:
            error: Exception | None = None
            try:
                self._write_group(group)
            except Exception as problem:  # noqa: BLE001 - any error goes to the caller
                error = problem
            done(error)
        if self._pages >= CHECKPOINT:
            self._pages = 0
            self._writer.run(self._checkpoint, lambda error: None)

    def _is_light(self, group: Journal) -> bool:
        rows = len(group.inserts) + len(group.deletes) + len(group.updates)
        return (
            self.durability == "normal"
            and not group.purges
            and rows <= LIGHT_ROWS
            and (rows == 1 or group.size <= LIGHT_BYTES)
        )

    def _write_group(self, group: Journal) -> None:
        """Write a group in one transaction."""
        todo = statements(group)
        if not todo:
            return  # only callbacks, which wait for earlier groups
        execute = self._cursor.execute
        if len(todo) == 1:
            execute(*todo[0])  # a single statement is a transaction of its own
        else:
            try:
                execute("BEGIN IMMEDIATE")
                for sql, parameters in todo:
                    execute(sql, parameters)
                execute("COMMIT")
            except BaseException:
                if self._write.in_transaction:
                    execute("ROLLBACK")
                raise
        self._pages += 2 + group.size // PAGE + len(todo) // 8

    def _checkpoint(self) -> None:
        """Move SQLite's write-ahead log into the database file."""
        try:
            self._write.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:  # nothing is lost; the next checkpoint does the work
            _log.warning("a checkpoint failed: %s", error)

    def wait(self) -> None:
        """Block until all groups are stored, and call their *done*."""
        self._writer.wait()

    def notify_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Call *done* of groups that the writer stores on this loop; None: only in `wait`."""
        self._writer.notify = None if loop is None else loop.call_soon_threadsafe

    # --- reading ----------------------------------------------------------------------------------

    def read(
        self, queue_id: int, numbers: Sequence[int]
    ) -> Iterator[tuple[int, bytes | None, bytes]]:
        """The bytes of these messages: ``(sequence number, annotations, bare)``."""
        base = queue_id << SEQUENCE_BITS
        for first, last in runs(numbers):
            for row in self._read.execute(
                "SELECT id, annotations, bare FROM message WHERE id BETWEEN ? AND ?",
                (base + first, base + last),
            ).fetchall():
                yield row[0] & NUMBER_MASK, row[1], row[2]

    def entities(self) -> list[tuple[Any, ...]]:
        """``(id, description, rules, created, updated)``, topics before their subscriptions."""
        return self._read.execute(
            "SELECT id, description, rules, created, updated FROM entity ORDER BY id"
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
