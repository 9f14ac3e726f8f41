"""The files of a soak: what applications called, when faults were in force, how far it got.

A call is two lines in the file of its application: one before it, one after it. Each line is one
write to the file, so that a killed process leaves at most its last line incomplete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pairbus.names import write_atomically
from simulation.history import Call, History, Window


class Journal:
    """A file to which lines of JSON are added."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(self._file, b"\n")  # ends a line that a killed process left incomplete

    def add(self, **fields: Any) -> None:
        """Add a line."""
        os.write(self._file, json.dumps(fields).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file, without incomplete ones."""
    if not path.exists():
        return
    for line in path.read_text(errors="replace").splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def read_history(folder: Path) -> History:
    """Return all calls of all applications."""
    history = History()
    for path in sorted(folder.glob("*.calls")):
        failed_over: set[str] = set()
        redirected: dict[str, str] = {}  # calls that began while their entity was failed over
        life = ""
        for line in read_lines(path):
            if "began" in line:
                if not line["id"].startswith(life):  # a new process
                    failed_over.clear()
                life = line["id"].rpartition(".")[0] + "."
                history.begin(line["id"], path.stem, line["began"])
                if line["entity"] in failed_over:
                    redirected[line["id"]] = line["entity"]
            elif (call := history.calls.get(line.get("id", ""))) is not None:
                _end(call, line)
                call.is_redirected = redirected.pop(line["id"], None) in failed_over
            elif line.get("event") == "FailedOver":
                failed_over.add(line["entity"])
            elif line.get("event") == "Restored":
                failed_over.discard(line["entity"])
    return history


def _end(call: Call, line: dict[str, Any]) -> None:
    call.ended = line["ended"]
    call.outcome = "ok" if line["is_ok"] else "unknown"


@dataclass(frozen=True, slots=True)
class Struck:
    """One fault that was made: on what, from when to when, and whether it took effect."""

    number: int
    kind: str
    detail: str
    began: float
    ended: float
    took_effect: bool


def read_struck(folder: Path) -> list[Struck]:
    """Return the faults that were made so far."""
    return [Struck(**line) for line in read_lines(folder / "faults.jsonl")]


def windows(struck: list[Struck]) -> list[Window]:
    """Return the times in which something was wrong."""
    return [Window(one.kind, one.began, one.ended) for one in struck]


def read_restarts(folder: Path) -> list[Window]:
    """Return the times between the end of one run of the soak and the start of the next."""
    found = read_lines(folder / "restarts.jsonl")
    return [Window("restart", line["began"], line["ended"]) for line in found]


def last_call(folder: Path) -> float | None:
    """Return when an application last wrote to its history; None if none ever did."""
    return max((path.stat().st_mtime for path in folder.glob("*.calls")), default=None)


@dataclass(slots=True)
class State:
    """What a soak needs to be resumed."""

    seed: int
    faults: int
    primary_port: int = 0
    secondary_port: int = 0
    runs: int = 0
    seconds: float = 0.0

    def save(self, folder: Path) -> None:
        """Write it."""
        write_atomically(folder / "state.json", json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> State | None:
        """Read it; None if there is none."""
        path = folder / "state.json"
        return cls(**json.loads(path.read_text())) if path.exists() else None
