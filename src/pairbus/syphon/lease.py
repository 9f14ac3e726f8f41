"""One syphon per state directory: a lease that its holder renews, and that expires when it dies.

Two syphons on one state directory would return each other's messages and lose their order. Several
syphons with a state directory each may share a backlog.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pairbus.exceptions import SyphonError
from pairbus.runtime import AsyncRuntime, Runtime

__all__ = ["Lease", "LeaseRecord", "holds", "is_alive", "refusal"]

EXPIRES_AFTER = 60.0  # seconds without a renewal, on another machine
RENEW_EVERY = 5.0


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """`lease.json`: who runs the syphon. Times are seconds since 1970."""

    id: str
    host: str
    pid: int
    since: float
    renewed_at: float

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "LeaseRecord":
        """Read the JSON form."""
        return cls(**{name: data[name] for name in ("id", "host", "pid", "since", "renewed_at")})


def is_alive(pid: int) -> bool:
    """Whether a process of this machine is alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it belongs to somebody else
    return True


def holds(
    holder: LeaseRecord, mine: LeaseRecord, now: float, is_alive: Callable[[int], bool]
) -> bool:
    """Whether the holder still has its lease: it runs on this machine, or renewed it lately."""
    if holder.host == mine.host:
        return is_alive(holder.pid)
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
        is_alive: whether a process of this machine is alive.
    """

    def __init__(
        self,
        runtime: AsyncRuntime | Runtime,
        state: Path,
        *,
        host: str,
        pid: int,
        is_alive: Callable[[int], bool] = is_alive,
    ) -> None:
        self._runtime = runtime
        self._path = state / "lease.json"
        self._lock = state / "lease.lock"
        self._is_alive = is_alive
        now = runtime.time()
        self._mine = LeaseRecord(runtime.uuid4().hex, host, pid, now, now)

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
        """Renew the lease, if it is time; False if another syphon has taken it over."""
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
        return holds(holder, self._mine, self._runtime.time(), self._is_alive)

    def _read(self) -> LeaseRecord | None:
        try:
            return LeaseRecord.from_json(json.loads(self._runtime.files.read(self._path)))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self) -> None:
        mine = self._mine
        self._mine = LeaseRecord(mine.id, mine.host, mine.pid, mine.since, self._runtime.time())
        self._runtime.files.write(self._path, json.dumps(self._mine.to_json()).encode())
