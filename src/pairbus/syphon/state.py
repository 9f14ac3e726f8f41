"""The state directory of a syphon: files between operator, driver, coordinator and tasks.

    controls/*.json one file for each control that the operator set; they survive restarts
    control.json    all controls in one file, as versions up to 0.1 wrote them; only read
    stop            exists while the syphon is asked to end
    results/*.json  reports of tasks; the coordinator reads and removes them
    waiting.json    destinations that must not be sent to, and the probe of each
    held.json       messages that stay locked, for a restart
    progress.json   totals, written by the coordinator when they change
    target.json     the namespace to deliver to, and messages that a former one may have
    primary.json    when the primary could be reached again after a failure
    status.json     the status that `syphon status` shows
    journal/        see `pairbus.syphon.journal`
    deferred/*.json sequence numbers of deferred messages: see `pairbus.syphon.deferred`
    search.json     queues to search for deferred messages, and from which sequence number on

Every file is replaced atomically. The directory may be an object store: then a file is an object.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from pairbus.runtime import AsyncRuntime, Runtime, ThreadRuntime
from pairbus.syphon.deferred import DeferredNumbers
from pairbus.syphon.object_files import StateFiles, is_url, open_files
from pairbus.syphon.records import (
    BlockedRecord,
    Control,
    HeldRecord,
    TaskReport,
)
from pairbus.syphon.retarget import TargetRecord
from pairbus.syphon.status_records import ProgressRecord

__all__ = ["StateDirectory"]


class StateDirectory:
    """The state directory of one syphon.

    Args:
        location: a directory, which `create` makes, or the URL of an object store.
        runtime: whose files and random ids are used.
    """

    def __init__(
        self, location: str | PurePath, runtime: "AsyncRuntime | Runtime | None" = None
    ) -> None:
        self.location = str(location)
        self._runtime = runtime or ThreadRuntime()
        self._files, self.path = open_files(location, self._runtime)
        self.is_remote = is_url(location)
        self._halted: tuple[float, bool] | None = None  # when it was read, and its value
        self._control: Control | None = None  # as last read

    def create(self) -> "StateDirectory":
        """Make the directory, readable by its owner only."""
        self._files.make_folder(self.path, mode=0o700)
        self._files.make_folder(self.path / "results")
        return self

    # -- controls

    def control(self) -> Control:
        """Return the controls that the operator set; defaults for the others.

        While they cannot be read, the last known ones apply: a syphon that is paused stays paused.

        Raises:
            OSError: they cannot be read, and never were.
        """
        try:
            together = self._require("control.json")
            files = {name: self._require(f"controls/{name}.json") for name in Control.names()}
        except OSError:
            if self._control is None:
                raise
        else:
            self._control = Control.from_files(files, together)
        return self._control

    def change_controls(self, **changes: Any) -> Control:
        """Set some controls and leave the others as they are; return all of them.

        Each control has a file of its own, so that two processes that change different controls at
        the same time cannot overwrite each other's change.

        Raises:
            TypeError: there is no such control.
        """
        files = Control(**changes).to_files()
        self._files.make_folder(self.path / "controls", mode=0o700)
        for name in changes:
            self.write(f"controls/{name}.json", files[name])
        return self.control()

    # -- start and stop

    @property
    def is_stopping(self) -> bool:
        """Whether the syphon is asked to end."""
        return self._files.info(self.path / "stop") is not None

    @property
    def is_halted(self) -> bool:
        """Whether nothing more may be read: the syphon is asked to end, or paused.

        Readers call this often; an object store is asked once per second.
        """
        now = self._runtime.monotonic()
        if not self.is_remote or self._halted is None or now - self._halted[0] > 1:
            self._halted = (now, self.is_stopping or self.control().paused)
        return self._halted[1]

    def ask_to_stop(self) -> None:
        """Ask readers, sinks and the coordinator to finish their current work and stop."""
        self._files.write(self.path / "stop", b"")

    def begin_run(self) -> None:
        """Start a new run: totals continue, the state of the last run is forgotten.

        Raises:
            OSError: the state cannot be read or written.
        """
        self._files.remove(self.path / "stop")
        if self.is_known:
            self.write_progress(self.progress().for_new_run())

    # -- reports of tasks

    def report(self, report: TaskReport) -> None:
        """Write a report for the coordinator."""
        self._files.make_folder(self.path / "results")
        name = f"results/{self._runtime.uuid4().hex}.json"
        # If a report is lost, locks expire by themselves; but a deferred message that is not
        # recorded is not found again.
        self.write(name, report.to_json(), sync=bool(report.deferred))

    def reports(self) -> Iterator[tuple[PurePath, TaskReport]]:
        """Yield the reports of tasks; the caller removes each one with `remove`.

        A file that lost its content in a power failure gives an empty report.
        """
        for name in _json_files(self._files, self.path / "results"):
            try:
                data = self._require(f"results/{name}")
            except OSError:
                continue  # it is read the next time
            yield self.path / "results" / name, TaskReport.from_json(data)

    def has_reports(self) -> bool:
        """Whether the coordinator has not yet read all reports."""
        return bool(_json_files(self._files, self.path / "results"))

    def remove(self, path: PurePath) -> None:
        """Remove a report that was read."""
        self._files.remove(path)

    # -- the coordinator's records

    def progress(self) -> ProgressRecord:
        """Return the totals; zeros where there are none.

        Raises:
            OSError: they cannot be read.
        """
        return ProgressRecord.from_json(self._require("progress.json"))

    def write_progress(self, record: ProgressRecord) -> None:
        """Replace the totals."""
        self.write("progress.json", record.to_json())

    def held(self) -> HeldRecord:
        """Return the messages that a former coordinator held."""
        return HeldRecord.from_json(self._require("held.json"))

    def write_held(self, record: HeldRecord) -> None:
        """Replace the messages that are held."""
        self.write("held.json", record.to_json())

    def blocked(self) -> BlockedRecord:
        """Return the destinations that must not be sent to."""
        return BlockedRecord.from_json(self._require("waiting.json"))

    def write_blocked(self, record: BlockedRecord) -> None:
        """Replace the destinations that must not be sent to."""
        self.write("waiting.json", record.to_json())

    @property
    def deferred_pages(self) -> "StatePages":
        """The sequence numbers of deferred messages, in pages."""
        return StatePages(self._files, self.path / "deferred", self._runtime)

    def unsearched(self) -> dict[str, int]:
        """Return the queues to search for deferred messages, each with the next number."""
        return {queue: int(first) for queue, first in self._require("search.json").items()}

    def write_unsearched(self, queues: Mapping[str, int]) -> None:
        """Replace the queues to search."""
        self.write("search.json", dict(queues), sync=True)

    # -- the primary

    def reachable_at(self) -> float:
        """Return when the primary could last be reached after a failure; 0 if never."""
        return float(self.read("primary.json").get("reachable_at") or 0.0)

    def write_reachable(self, at: float) -> None:
        """Record that the primary could be reached at this time."""
        self.write("primary.json", {"reachable_at": at})

    # -- the target

    @property
    def is_known(self) -> bool:
        """Whether a syphon has worked here before."""
        return self._find("progress.json") is not None

    def target(self) -> TargetRecord:
        """Return which namespace the backlog goes to; an empty record in a new directory."""
        return TargetRecord.from_json(self._require("target.json"))

    def write_target(self, record: TargetRecord) -> None:
        """Replace the target."""
        self.write("target.json", record.to_json())

    # -- any file

    def write(self, name: str, data: Any, *, sync: bool = False) -> None:
        """Replace a file of the directory with this JSON.

        Args:
            name: the file.
            data: its content.
            sync: return only when it survives a power failure.
        """
        self._files.write(self.path / name, json.dumps(data).encode(), sync=sync)

    def read(self, name: str) -> dict[str, Any]:
        """Read a JSON file of the directory; empty where there is none, or it cannot be read."""
        try:
            return self._require(name)
        except OSError:
            return {}

    def _require(self, name: str) -> dict[str, Any]:
        """Read a file; one that cannot be read now must not count as missing.

        Raises:
            OSError: it cannot be read.
        """
        return self._find(name) or {}

    def _find(self, name: str) -> dict[str, Any] | None:
        try:
            data = json.loads(self._files.read(self.path / name))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return data if isinstance(data, dict) else None


def _json_files(files: StateFiles, folder: PurePath) -> list[str]:
    """Return the names of the complete JSON files in a folder."""
    return [n for n in files.list(folder) if n.endswith(".json") and not n.startswith(".")]


class StatePages:
    """The folder of the pages of deferred messages.

    Args:
        files: of the state directory.
        folder: the folder.
        runtime: makes names.
    """

    def __init__(
        self, files: StateFiles, folder: PurePath, runtime: "AsyncRuntime | Runtime"
    ) -> None:
        self._files = files
        self._folder = folder
        self._runtime = runtime

    def names(self) -> list[str]:
        """Return the names of all pages."""
        return _json_files(self._files, self._folder)

    def read(self, name: str) -> DeferredNumbers:
        """Return a page; empty if there is none, or it is no JSON of a page."""
        try:
            return DeferredNumbers.from_json(json.loads(self._files.read(self._folder / name)))
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return DeferredNumbers()

    def write(self, name: str, page: DeferredNumbers) -> None:
        """Replace a page; it survives a power failure."""
        self._files.make_folder(self._folder)
        self._files.write(self._folder / name, json.dumps(page.to_json()).encode(), sync=True)

    def remove(self, name: str) -> None:
        """Remove a page; a missing one is fine."""
        self._files.remove(self._folder / name)

    def new_name(self) -> str:
        """Return a name that no page has."""
        return f"{self._runtime.uuid4().hex}.json"
