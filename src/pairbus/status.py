"""The status of a paired client: `client.status()`, also written to a file for other processes.

If a ledger directory is configured, each paired client keeps `status/<client id>.json` in it. The
file is replaced as a whole at each transition and every five seconds, and removed when the client
is closed or its process ends: a file that is left belongs to a process that was killed.
"""

from __future__ import annotations

import atexit
import json
import logging
import operator
import os
import re
import socket
import threading
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pairbus.names import write_atomically

__all__ = ["BacklogQueueStatus", "Counts", "DrainStatus", "EntityStatus", "PairStatus"]

logger = logging.getLogger("pairbus.status")
INTERVAL = 5.0
VERSION = 1


@dataclass(slots=True)
class Counts:
    """How often something happened to one entity. Sends are counted in messages."""

    sent_primary: int = 0
    sent_backlog: int = 0
    pings: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStatus:
    """The progress of an entity that waits until its backlog is delivered (`drain_first`).

    `waits_for` are the backlog queues whose fence was not answered since `since`; `is_overdue` says
    that this takes too long, and `problem` is the reason, if known.
    """

    since: datetime
    waits_for: tuple[str, ...] = ()
    is_overdue: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityStatus:
    """The state of one queue or topic of the primary."""

    entity: str
    phase: str
    since: datetime
    last_error: str | None = None
    backlog_queue: str | None = None
    next_ping: datetime | None = None
    forced: str | None = None
    refused: str | None = None
    drain: DrainStatus | None = None
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQueueStatus:
    """The state of one backlog queue; if out of rotation, the `reason` and the earliest return."""

    path: str
    in_rotation: bool
    reason: str | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStatus:
    """The state of a paired client.

    `unprotected` is the reason why the secondary cannot take messages; None if it can.
    """

    client_id: str
    primary_namespace: str
    primary: str
    secondary: str
    state: str
    state_reason: str | None = None
    unprotected: str | None = None
    ledger_problem: str | None = None
    ledger_dropped_rows: int = 0
    entities: tuple[EntityStatus, ...] = ()
    backlog_queues: tuple[BacklogQueueStatus, ...] = ()
    events: tuple[dict[str, Any], ...] = ()
    host: str | None = field(default_factory=socket.gethostname, compare=False)
    pid: int | None = field(default_factory=os.getpid, compare=False)
    updated_at: datetime | None = field(default_factory=lambda: datetime.now(UTC), compare=False)

    def entity(self, name: str) -> EntityStatus:
        """The state of one entity; its name is case-insensitive.

        Raises:
            KeyError: if no sender was ever created for it.
        """
        for status in self.entities:
            if status.entity.lower() == name.lower():
                return status
        raise KeyError(name)

    def __str__(self) -> str:
        """A readable summary: each entity, and every problem."""
        reason = f" ({self.state_reason})" if self.state_reason else ""
        lines = [f"{self.primary} with {self.secondary}: {self.state}{reason}"]
        if self.unprotected:
            lines.append(f"  unprotected: {self.unprotected}")
        for entity in self.entities:
            text = f"  {entity.entity}: {entity.phase} since {entity.since:%Y-%m-%d %H:%M:%S} UTC"
            if entity.forced:
                text += f", forced to {entity.forced}"
            counts = entity.counts
            text += f"; {counts.sent_primary} to the primary, {counts.sent_backlog} to the backlog"
            if entity.phase != "healthy" and entity.last_error:
                text += f"; last error: {entity.last_error}"
            if entity.drain is not None and entity.drain.is_overdue:
                text += f"; no answer to the fence in {', '.join(entity.drain.waits_for)}"
            lines.append(text)
        out = [queue for queue in self.backlog_queues if not queue.in_rotation]
        in_rotation = len(self.backlog_queues) - len(out)
        if not self.unprotected:  # otherwise none of them is known to work
            number = len(self.backlog_queues)
            lines.append(f"  {in_rotation} of {number} backlog queues in rotation")
        lines += [f"  {queue.path} is out: {queue.reason}" for queue in out]
        if self.ledger_problem:
            lines.append(f"  ledger: {self.ledger_problem}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The status as plain data that JSON can carry; times are ISO UTC."""
        return {"kind": "client", "version": VERSION, **plain(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PairStatus:
        """Read the form of `as_dict`, also of an older or newer version."""
        updated_at = parse_time(data.get("updated_at"))
        known: dict[str, Any] = dict.fromkeys(("primary_namespace", "primary", "secondary"), "")
        known |= {"client_id": "?", "state": "open", **_known(cls, data)}
        known["entities"] = tuple(_read_entity(one, updated_at) for one in _rows(data, "entities"))
        known["backlog_queues"] = tuple(map(_read_backlog_queue, _rows(data, "backlog_queues")))
        known["events"] = tuple(_rows(data, "events"))
        known |= {"host": data.get("host"), "pid": data.get("pid"), "updated_at": updated_at}
        return cls(**known)


def new_client_id() -> str:
    """A unique name for a paired client: host name, process id and a random part."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def plain(value: Any) -> Any:
    """Return a status, or a part of one, as data that JSON can carry; times are ISO UTC."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def parse_time(value: Any) -> datetime | None:
    """Return a time from a status file; None if it is not one."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _rows(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    return [row for row in data.get(name) or () if isinstance(row, dict)]


def _known(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `data` that are fields of the dataclass `cls`, unless they are empty.

    Raises:
        TypeError: a number is not one.
    """
    found = [one for one in fields(cls) if data.get(one.name) not in (None, "")]
    # Other types are read as they are; by name, as annotations are text in this module.
    readers: dict[Any, Callable[[Any], Any]] = {"str": str, "int": operator.index}
    return {one.name: readers.get(one.type, lambda v: v)(data[one.name]) for one in found}


def _read_entity(data: Mapping[str, Any], updated_at: datetime | None) -> EntityStatus:
    now = updated_at or datetime.now(UTC)  # for a time that is missing
    known = {"entity": "?", "phase": "healthy", **_known(EntityStatus, data)}
    known["since"] = parse_time(data.get("since")) or now
    known["next_ping"] = parse_time(data.get("next_ping"))
    known["counts"] = Counts(**_known(Counts, data.get("counts") or {}))
    if drain := known.pop("drain", None):
        known["drain"] = DrainStatus(
            **{
                **_known(DrainStatus, drain),
                "since": parse_time(drain.get("since")) or now,
                "waits_for": tuple(drain.get("waits_for") or ()),
            }
        )
    return EntityStatus(**known)


def _read_backlog_queue(data: Mapping[str, Any]) -> BacklogQueueStatus:
    known = {"path": "", "in_rotation": True, **_known(BacklogQueueStatus, data)}
    return BacklogQueueStatus(**{**known, "until": parse_time(data.get("until"))})


class StatusFile:
    """Keeps `status/<client id>.json` current, on a thread of its own; failures are only logged.

    Args:
        ledger: The ledger's directory, or its URL.
        client_id: The client that the status is about.
        snapshot: Returns the status.
        write_remote: Writes a file of the ledger whole, if the ledger is not a local directory.
            Such a file is not removed at close; its last content says `closed`.
    """

    def __init__(
        self,
        ledger: str,
        client_id: str,
        snapshot: Callable[[], PairStatus],
        write_remote: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self._name = f"{client_id}.json"
        self._path = None if "://" in ledger else Path(ledger) / "status" / self._name
        self._write_remote = write_remote
        self._snapshot = snapshot
        self._wake = threading.Event()
        self._is_closed = False
        self._has_warned = False
        if self._path is not None:
            self._write()
        self._thread = threading.Thread(target=self._run, name="pairbus-status", daemon=True)
        self._thread.start()
        self._at_exit = partial(_end_with_process, weakref.ref(self), os.getpid())
        atexit.register(self._at_exit)

    def notify(self) -> None:
        """Something changed: write soon."""
        self._wake.set()

    def close(self) -> None:
        """Stop, and remove the file; wait at most five seconds for an object store that hangs."""
        atexit.unregister(self._at_exit)
        self._is_closed = True
        self._wake.set()
        self._thread.join(INTERVAL)
        if self._path is None:  # the thread writes the last status: an object store may hang
            if self._thread.is_alive():
                logger.warning("status file %s was not written within %g s", self._name, INTERVAL)
            return
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("status file %s could not be removed: %s", self._name, error)

    def end(self) -> None:
        """Do the same for a process that ends without closing its client."""
        if self._path is None:
            last, ended = self._snapshot, "its process has ended"
            self._snapshot = lambda: replace(last(), state="closed", state_reason=ended)
        self.close()

    def _run(self) -> None:
        if self._path is None:
            self._write()
        while not self._is_closed:
            if self._wake.wait(INTERVAL):
                self._wake.clear()
            if not self._is_closed:
                self._write()
        if self._path is None:
            self._write()

    def _write(self) -> None:
        try:
            data = json.dumps(self._snapshot().as_dict()).encode()
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self._path, data)
            elif self._write_remote is not None:
                self._write_remote(self._name, data)
            self._has_warned = False
        except Exception as error:  # noqa: BLE001  # no send depends on the status file
            # RuntimeError: a dictionary changed while it was copied. The next write includes it.
            if not self._has_warned and not isinstance(error, RuntimeError):
                logger.warning("status file %s could not be written: %s", self._name, error)
                self._has_warned = True


def _end_with_process(reference: weakref.ref[StatusFile], pid: int) -> None:
    status_file = reference()
    if status_file is not None and os.getpid() == pid:  # a forked process has a file of its own
        status_file.end()
