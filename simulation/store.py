"""The broker's store on real SQLite files, which lose unsynced data at a crash.

SQLite syncs its write-ahead log when a transaction is committed. A crash therefore keeps the log as
it was at that moment, and any part of the data that was written after it.
"""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any, Literal

from pairbus.broker.store.store import DATABASE, Store
from pairbus.runtime.files import LocalFiles
from simulation.loop import SimulatedLoop
from simulation.runtime import SimulatedRuntime


class StoreRuntime(SimulatedRuntime):
    """The worker of the simulation, and the files of the disk."""

    files: Any

    def __init__(self, loop: SimulatedLoop, name: str) -> None:
        super().__init__(loop, name)
        self.files = LocalFiles()


class SimulatedStore(Store):
    """A store that can crash, and whose disk can be full."""

    def __init__(
        self,
        directory: Path,
        durability: Literal["normal", "full"],
        runtime: Any,
        chance: random.Random,
    ) -> None:
        super().__init__(directory, durability, runtime)
        self.is_full = False
        self.refused = 0
        """Writes that failed because the disk was full."""
        self._chance = chance
        self._at_crash: tuple[bytes, bytes] | None = None

    @property
    def _paths(self) -> tuple[Path, Path]:
        database = self.directory / DATABASE
        return database, database.with_name(DATABASE + "-wal")

    def crash(self) -> None:
        """The machine loses power now; `close` leaves the synced data, and perhaps more."""
        database, log = self._paths
        self._at_crash = database.read_bytes(), log.read_bytes()

    def close(self) -> None:
        """Close the files, and put back what survived a crash."""
        if self._at_crash is None or self.is_closed:
            super().close()
            return
        (data, synced), self._at_crash = self._at_crash, None
        database, log = self._paths
        self.wait()
        written = log.read_bytes()
        if written.startswith(synced):
            synced = written[: self._chance.randint(len(synced), len(written))]
        super().close()
        database.write_bytes(data)
        log.write_bytes(synced)
        database.with_name(DATABASE + "-shm").unlink(missing_ok=True)

    def _write_group(self, group: Any) -> None:
        if self.is_full:
            self.refused += 1
            raise sqlite3.OperationalError("database or disk is full")
        super()._write_group(group)
