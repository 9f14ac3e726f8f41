"""One syphon per state directory: a lease that its holder renews, and that expires when it dies.

Two syphons on one state directory would return each other's messages and lose their order. Several
syphons with a state directory each may share a backlog.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pairbus.exceptions import SyphonError
from pairbus.runtime import AsyncRuntime, Runtime
from pairbus.runtime.processes import machine_id, started_at
from pairbus.syphon.codec import Record

__all__ = ["Lease", "LeaseRecord", "holds", "new_record", "refusal"]

StartedAt = Callable[[int], str | None]

EXPIRES_AFTER = 60.0  # seconds without a renewal, on another machine
RENEW_EVERY = 5.0


@dataclass(frozen=True, slots=True)
class LeaseRecord(Record):
    """`lease.json`: the process that runs the syphon. Times are seconds since 1970.

    `machine` and `started` are empty if the operating system does not provide them.
    """

    id: str
    host: str
    pid: int
    since: float
    renewed_at: float
    machine: str = ""  # differs between boots of a host, and between containers on it
    started: str = ""  # when the process began, as the operating system writes it
    confirmed: bool = False  # in an object store: no longer a candidate


def new_record(
    runtime: AsyncRuntime | Runtime, host: str, pid: int, started_at: StartedAt, machine: str
) -> LeaseRecord:
    """Return the record of this process."""
    now = runtime.time()
    started = started_at(pid) or ""
    return LeaseRecord(runtime.uuid4().hex, host, pid, now, now, machine, started)


def holds(holder: LeaseRecord, mine: LeaseRecord, now: float, started_at: StartedAt) -> bool:
    """Whether the holder still has its lease: it runs on this machine, or renewed it lately."""
    if (holder.host, holder.machine) == (mine.host, mine.machine):
        return started_at(holder.pid) == holder.started
    return now - holder.renewed_at < EXPIRES_AFTER


def refusal(holder: LeaseRecord, place: str) -> str:
    """Return why a lease is refused, in one line."""
    since = datetime.fromtimestamp(holder.since, UTC).isoformat(timespec="seconds")
    return (
        f"a syphon already runs on {place}: host {holder.host}, process {holder.pid}, since {since}"
    )


class Lease:
    """The right of one process to work on a state directory.

    Args:
        runtime: clock, files, random ids.
        state: the state directory.
        host: name of this machine.
        pid: this process.
        started_at: when a process of this machine began; None if it ended.
        machine: id of this boot of the machine; asked from the operating system if left out.
    """

    def __init__(
        self,
        runtime: AsyncRuntime | Runtime,
        state: Path,
        *,
        host: str,
        pid: int,
        started_at: StartedAt = started_at,
        machine: str | None = None,
    ) -> None:
        self._runtime = runtime
        self._path = state / "lease.json"
        self._lock = state / "lease.lock"
        self._started_at = started_at
        self._mine = new_record(
            runtime, host, pid, started_at, machine_id() if machine is None else machine
        )

    def acquire(self) -> None:
        """Take the lease.

        Raises:
            SyphonError: another syphon holds it; names its host, process and start.
        """
        with self._runtime.files.lock(self._lock):
            holder = self._read()
            if holder is not None and holder.id != self._mine.id and self._holds(holder):
                raise SyphonError(refusal(holder, str(self._path.parent)))
            self._write()

    def renew(self) -> bool:
        """Renew the lease, if it is time; False if another syphon has taken it over.

        Raises:
            OSError: it cannot be renewed now.
        """
        if self._runtime.time() - self._mine.renewed_at < RENEW_EVERY:
            return True
        with self._runtime.files.lock(self._lock):
            holder = self._read()
            if holder is not None and holder.id != self._mine.id:
                return False
            self._write()
        return True

    def release(self) -> None:
        """Give the lease up."""
        with self._runtime.files.lock(self._lock):
            holder = self._read()
            if holder is not None and holder.id == self._mine.id:
                self._runtime.files.remove(self._path)

    def _holds(self, holder: LeaseRecord) -> bool:
        return holds(holder, self._mine, self._runtime.time(), self._started_at)

    def _read(self) -> LeaseRecord | None:
        try:
            return LeaseRecord.from_json(json.loads(self._runtime.files.read(self._path)))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def _write(self) -> None:
        mine = replace(self._mine, renewed_at=self._runtime.time())
        self._runtime.files.write(self._path, json.dumps(mine.to_json()).encode())
        self._mine = mine  # only now: a lease that was not written is not renewed
