"""One syphon per state directory: a lease that its holder renews, and that expires when it dies.

Two syphons on one state directory would return each other's messages and lose their order. Several
syphons with a state directory each may share a backlog.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePath

from pairbus.exceptions import SyphonError
from pairbus.runtime import AsyncRuntime, Runtime
from pairbus.runtime.processes import machine_id, started_at
from pairbus.syphon.codec import Record
from pairbus.syphon.object_files import StateFiles

__all__ = ["CommonLease", "Lease", "LeaseRecord"]

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


class CommonLease:
    """What the leases on a disk and in an object store have in common.

    Args:
        runtime: clock, files, random ids.
        state: the state directory.
        files: its files; the runtime's if left out.
        host: name of this machine.
        pid: this process.
        started_at: when a process of this machine began; None if it ended.
        machine: id of this boot of the machine; asked from the operating system if left out.
    """

    def __init__(
        self,
        runtime: AsyncRuntime | Runtime,
        state: PurePath,
        *,
        host: str,
        pid: int,
        files: StateFiles | None = None,
        started_at: StartedAt = started_at,
        machine: str | None = None,
    ) -> None:
        self._runtime = runtime
        self._state = state
        self._files = files or runtime.files
        self._started_at = started_at
        machine, now = machine_id() if machine is None else machine, runtime.time()
        started = started_at(pid) or ""
        self._mine = LeaseRecord(runtime.uuid4().hex, host, pid, now, now, machine, started)

    def renew(self) -> bool:
        """Renew the lease, if it is time; False if another syphon has taken it over.

        Raises:
            OSError: it cannot be renewed now.
        """
        is_due = self._runtime.time() - self._mine.renewed_at >= RENEW_EVERY
        return self._renew() if is_due else True

    def _renew(self) -> bool:
        raise NotImplementedError

    def _holds(self, holder: LeaseRecord) -> bool:
        """Whether the holder still has its lease: it runs here, or renewed it lately."""
        if (holder.host, holder.machine) == (self._mine.host, self._mine.machine):
            return self._started_at(holder.pid) == holder.started
        return self._runtime.time() - holder.renewed_at < EXPIRES_AFTER

    def _refusal(self, holder: LeaseRecord) -> SyphonError:
        since = datetime.fromtimestamp(holder.since, UTC).isoformat(timespec="seconds")
        return SyphonError(
            f"a syphon already runs on {self._state}: host {holder.host}, process {holder.pid}, "
            f"since {since}"
        )

    def _read(self, path: PurePath) -> LeaseRecord | None:
        try:
            return LeaseRecord.from_json(json.loads(self._files.read(path)))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def _write(self, path: PurePath, *, is_confirmed: bool = False) -> None:
        mine = replace(self._mine, renewed_at=self._runtime.time(), confirmed=is_confirmed)
        self._files.write(path, json.dumps(mine.to_json()).encode())
        self._mine = mine  # only now: a lease that was not written is not renewed


class Lease(CommonLease):
    """The right of one process to work on a state directory."""

    def acquire(self) -> None:
        """Take the lease.

        Raises:
            SyphonError: another syphon holds it; names its host, process and start.
        """
        with self._locked() as holder:
            if holder is not None and self._holds(holder):
                raise self._refusal(holder)
            self._write(self._state / "lease.json")

    def _renew(self) -> bool:
        with self._locked() as holder:
            if holder is not None:
                return False
            self._write(self._state / "lease.json")
        return True

    def release(self) -> None:
        """Give the lease up."""
        with self._locked() as holder:
            if holder is None:
                self._files.remove(self._state / "lease.json")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[LeaseRecord | None]:
        """Let no other process change the lease; yield its record if it is not ours."""
        with self._runtime.files.lock(self._state / "lease.lock"):
            holder = self._read(self._state / "lease.json")
            yield holder if holder is not None and holder.id != self._mine.id else None
