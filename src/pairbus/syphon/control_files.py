"""The files beside the checkpoint: what the operator wants, what the tasks report, how it stands.

    controls/*.json one file for each control that the operator set; they survive restarts
    control.json    all controls in one file, as versions up to 0.1 wrote them; only read
    stop            there while the syphon is asked to end
    results/*.json  reports of tasks, read and removed by the keeper
    waiting.json    which destinations wait, and the one message of each that may try
    held.json       messages in the waiting room, for a restart
    progress.json   totals, written by the keeper when they change
    status.json     what `syphon status` shows

Every file is written whole: under a temporary name, then renamed.
"""

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pairbus.names import write_atomically

__all__ = ["Control", "StateDir"]


@dataclass(frozen=True, slots=True)
class Control:
    """What the operator wants."""

    paused: bool = False
    max_messages_per_second: float | None = None
    max_bytes_per_second: float | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Control":
        """Read the controls; a value that makes no sense counts as not set."""
        return cls(
            paused=bool(data.get("paused", False)),
            max_messages_per_second=_rate(data.get("max_messages_per_second")),
            max_bytes_per_second=_rate(data.get("max_bytes_per_second")),
        )


class StateDir:
    """The state directory of one syphon."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def create(self) -> "StateDir":
        """Make the directory, for the owner's eyes only."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.path / "results").mkdir(exist_ok=True)
        return self

    # -- controls

    def control(self) -> Control:
        """The controls that the operator set; defaults for the others."""
        return Control.from_json({**self.read("control.json"), **self._control_records()})

    def change_controls(self, **changes: Any) -> Control:
        """Set some controls and leave the others as they are; return all of them.

        Each control has a file of its own, so that two processes that change different controls at
        the same time cannot overwrite each other's change.

        Raises:
            TypeError: there is no such control.
        """
        Control(**changes)
        folder = self.path / "controls"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, value in changes.items():
            _write_whole(folder / f"{name}.json", {"value": value})
        return self.control()

    def _control_records(self) -> dict[str, Any]:
        names = [field.name for field in fields(Control)]
        found = {name: self._read(f"controls/{name}.json") for name in names}
        return {name: record.get("value") for name, record in found.items() if record is not None}

    # -- stop

    @property
    def stopping(self) -> bool:
        """Whether it is asked to end."""
        return (self.path / "stop").exists()

    @property
    def halted(self) -> bool:
        """Whether nothing more is to be read: it is asked to end, or paused."""
        return self.stopping or self.control().paused

    def ask_to_stop(self) -> None:
        """Ask reader, sink and keeper to finish what they have in hand."""
        (self.path / "stop").touch()

    def begin(self) -> None:
        """A new run begins: totals go on, and what a former run said of its end is forgotten."""
        (self.path / "stop").unlink(missing_ok=True)
        old = self.read("progress.json")
        if old:
            over = dict.fromkeys(("begun", "empty", "drained", "released", "listening"), False)
            rest: dict[str, Any] = {"problem": None, "in_flight": 0, "doubtful": []}
            self.write("progress.json", {**old, **over, **rest})

    # -- reports of tasks

    def report(self, data: Mapping[str, Any]) -> None:
        """Leave a report for the keeper."""
        folder = self.path / "results"
        folder.mkdir(parents=True, exist_ok=True)
        _write_whole(folder / f"{uuid.uuid4().hex}.json", data)

    def reports(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """The reports that wait to be read; whoever has used one removes it."""
        folder = self.path / "results"
        if not folder.is_dir():
            return
        for path in sorted(folder.glob("[!.]*.json")):
            with contextlib.suppress(OSError, ValueError):
                yield path, json.loads(path.read_text())

    # -- the rest

    def write(self, name: str, data: Any) -> None:
        """Write one of the files, whole."""
        _write_whole(self.path / name, data)

    def read(self, name: str) -> dict[str, Any]:
        """Read one of the files; empty where there is none."""
        return self._read(name) or {}

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            data = json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return None
        return data if isinstance(data, dict) else None


def _rate(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _write_whole(path: Path, data: Any) -> None:
    write_atomically(path, json.dumps(data), mode=0o600)
