"""The lease in an object store, which has no lock: candidates, and the first by name wins.

A candidate writes an object and lists the others. It withdraws if a living one is confirmed, or
comes before it by name. A candidate that comes after it and is not confirmed yet may have listed
the objects before this one was written: so this one waits until the other has confirmed or
withdrawn. So two never confirm, whatever their clocks show.
"""

import contextlib
import json
from dataclasses import replace
from pathlib import Path, PurePath

from pairbus.exceptions import SyphonError
from pairbus.runtime import Runtime
from pairbus.runtime.processes import machine_id, started_at
from pairbus.syphon.lease import (
    RENEW_EVERY,
    Lease,
    LeaseRecord,
    StartedAt,
    holds,
    new_record,
    refusal,
)
from pairbus.syphon.object_files import ObjectFiles, open_files

__all__ = ["ObjectLease", "open_lease"]

POLL = 0.5  # seconds


class ObjectLease:
    """The right of one process to work on a state in an object store.

    Args:
        runtime: clock, sleep, random ids.
        files: the objects.
        state: the path of the state.
        host: name of this machine.
        pid: this process.
        started_at: when a process of this machine began; None if it ended.
    """

    def __init__(
        self,
        runtime: Runtime,
        files: ObjectFiles,
        state: PurePath,
        *,
        host: str,
        pid: int,
        started_at: StartedAt = started_at,
    ) -> None:
        self._runtime = runtime
        self._files = files
        self._state = state
        self._folder = state / "lease"
        self._started_at = started_at
        self._mine = new_record(runtime, host, pid, started_at, machine_id())
        self._name = f"{int(self._mine.since * 1000):015d}-{self._mine.id}.json"

    def acquire(self) -> None:
        """Take the lease.

        Raises:
            SyphonError: another syphon holds it; names its host, process and start.
        """
        try:
            self._write(is_confirmed=False)
            while others := self._others():
                for name, record in others.items():
                    if record.confirmed or name < self._name:
                        raise SyphonError(refusal(record, str(self._state)))
                self._runtime.sleep(POLL)
                self._write(is_confirmed=False)
            self._write(is_confirmed=True)
        except BaseException:
            with contextlib.suppress(OSError):  # while this process lives, it would refuse others
                self.release()
            raise

    def renew(self) -> bool:
        """Renew the lease, if it is time; False if another syphon has taken it over."""
        if self._runtime.time() - self._mine.renewed_at < RENEW_EVERY:
            return True
        if any(record.confirmed for record in self._others().values()):
            return False
        self._write(is_confirmed=True)
        return True

    def release(self) -> None:
        """Give the lease up."""
        self._files.remove(self._folder / self._name)

    def _others(self) -> dict[str, LeaseRecord]:
        """Return the other candidates that are alive; the dead ones are removed."""
        found: dict[str, LeaseRecord] = {}
        for name in self._files.list(self._folder):
            if name == self._name:
                continue
            try:
                record = LeaseRecord.from_json(json.loads(self._files.read(self._folder / name)))
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                continue  # it withdrew meanwhile
            if holds(record, self._mine, self._runtime.time(), self._started_at):
                found[name] = record
            else:
                self._files.remove(self._folder / name)
        return found

    def _write(self, *, is_confirmed: bool) -> None:
        mine = replace(self._mine, renewed_at=self._runtime.time(), confirmed=is_confirmed)
        self._files.write(self._folder / self._name, json.dumps(mine.to_json()).encode())
        self._mine = mine  # only now: a lease that was not written is not renewed


def open_lease(
    location: str | PurePath, runtime: Runtime, *, host: str, pid: int
) -> Lease | ObjectLease:
    """Return the lease of a state at a local path or a URL."""
    files, path = open_files(location, runtime)
    if isinstance(files, ObjectFiles):
        return ObjectLease(runtime, files, path, host=host, pid=pid)
    return Lease(runtime, Path(path), host=host, pid=pid)
