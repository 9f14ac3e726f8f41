"""The lease in an object store, which has no lock: candidates, and the first by name wins.

A candidate writes an object and lists the others. It withdraws if a living one is confirmed, or
comes before it by name. A candidate that comes after it and is not confirmed yet may have listed
the objects before this one was written: so this one waits until the other has confirmed or
withdrawn. So two never confirm, whatever their clocks show.
"""

import contextlib
from pathlib import PurePath

from pairbus.runtime import Runtime
from pairbus.syphon.lease import CommonLease, Lease, LeaseRecord
from pairbus.syphon.object_files import ObjectFiles, open_files

__all__ = ["ObjectLease", "open_lease"]

POLL = 0.5  # seconds


class ObjectLease(CommonLease):
    """The right of one process to work on a state in an object store."""

    _runtime: Runtime

    @property
    def _path(self) -> PurePath:
        return self._state / "lease" / f"{int(self._mine.since * 1000):015d}-{self._mine.id}.json"

    def acquire(self) -> None:
        """Take the lease.

        Raises:
            SyphonError: another syphon holds it; names its host, process and start.
        """
        try:
            self._write(self._path)
            while others := self._others():
                for name, record in others.items():
                    if record.confirmed or name < self._path.name:
                        raise self._refusal(record)
                self._runtime.sleep(POLL)
                self._write(self._path)
            self._write(self._path, is_confirmed=True)
        except BaseException:
            with contextlib.suppress(OSError):  # while this process lives, it would refuse others
                self.release()
            raise

    def _renew(self) -> bool:
        if any(record.confirmed for record in self._others().values()):
            return False
        self._write(self._path, is_confirmed=True)
        return True

    def release(self) -> None:
        """Give the lease up."""
        self._files.remove(self._path)

    def _others(self) -> dict[str, LeaseRecord]:
        """Return the other candidates that are alive; the dead ones are removed."""
        found: dict[str, LeaseRecord] = {}
        folder = self._path.parent
        for name in self._files.list(folder):
            record = self._read(folder / name) if name != self._path.name else None
            if record is None:
                continue  # it is ours, or withdrew meanwhile
            if self._holds(record):
                found[name] = record
            else:
                self._files.remove(folder / name)
        return found


def open_lease(
    location: str | PurePath, runtime: Runtime, *, host: str, pid: int
) -> Lease | ObjectLease:
    """Return the lease of a state at a local path or a URL."""
    files, path = open_files(location, runtime)
    kind = ObjectLease if isinstance(files, ObjectFiles) else Lease
    return kind(runtime, path, host=host, pid=pid, files=files)
