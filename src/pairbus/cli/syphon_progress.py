"""The progress of a running syphon: a bar on a terminal, a line every few seconds elsewhere.

All counts are those of the run: the syphon's own totals continue across restarts.
"""

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pairbus.cli.output import bar_column, is_terminal, say, wants_json
from pairbus.monitoring.formatting import duration
from pairbus.monitoring.snapshot import read_syphon
from pairbus.syphon.status_records import SyphonStatus

if TYPE_CHECKING:
    from pairbus.spark.syphon import SyphonHandle

__all__ = ["RunProgress", "RunStatus", "shown", "summary"]

EVERY = 10.0  # seconds between two lines where there is no terminal
NARROW = 80  # columns: with fewer, the elapsed time is left out


@dataclass(frozen=True)
class RunStatus:
    """The status of a syphon with the counts of one run, and plain texts for its problems."""

    counts: SyphonStatus
    problem: str
    waits: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**self.counts.to_json(), "problem": self.problem, "waits": self.waits}

    @property
    def dead_lettered(self) -> int:
        """How many messages were dead-lettered in this run."""
        return sum(self.counts.dead_lettered.values())


class RunProgress:
    """The status of a syphon, with the counts of one run."""

    def __init__(self, handle: "SyphonHandle") -> None:
        self._handle = handle
        self._before = SyphonStatus.from_json(handle.status())

    def status(self) -> RunStatus:
        """Return the status now."""
        status = SyphonStatus.from_json(self._handle.status())
        before = self._before.dead_lettered
        counts = replace(
            status,
            forwarded=status.forwarded - self._before.forwarded,
            dead_lettered={
                reason: number - before.get(reason, 0)
                for reason, number in status.dead_lettered.items()
                if number > before.get(reason, 0)
            },
        )
        now = dt.datetime.now(dt.UTC)
        fresh = read_syphon(replace(status, updated_at=now.isoformat()), now)
        return RunStatus(counts, fresh.problem, fresh.waits)


@contextlib.contextmanager
def shown(progress: RunProgress) -> Iterator[Callable[[], None]]:
    """Yield a function that shows the progress: a bar on a terminal; nothing with --json."""
    if wants_json():
        yield lambda: None
    elif is_terminal():
        with _bar(progress) as draw:
            yield draw
    else:
        yield _lines(progress)


@contextlib.contextmanager
def _bar(progress: RunProgress) -> Iterator[Callable[[], None]]:
    """Draw one line with the bar, and below it one with problems, if there are any."""
    from rich import get_console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn
    from rich.table import Table
    from rich.text import Text

    class Bar(Progress):
        note = ""

        def get_renderables(self) -> Iterator[Table | Text]:
            yield self.make_tasks_table(self.tasks)
            if self.note:
                yield Text(self.note, style="yellow", no_wrap=True, overflow="ellipsis")

    console = get_console()
    if console.color_system is None:
        console.no_color = True  # else a bar of unknown length is drawn as a full one
    columns = [
        TextColumn("{task.description:8}"),
        bar_column(None),
        TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[speed]}"),
    ]
    if console.width >= NARROW:
        columns.append(TimeElapsedColumn())
    # Nothing is drawn between two calls: reading the status takes a moment.
    with Bar(*columns, console=console, auto_refresh=False, expand=True) as bar:
        task = bar.add_task("starting", total=None, count="", speed="")

        def draw() -> None:
            status = progress.status()
            done, left = status.counts.forwarded + status.dead_lettered, status.counts.remaining
            total = None if left is None else max(done + left, 1)
            bar.note = _note(status)
            bar.tasks[0].total = total  # `update` would ignore None, which is a bar without a share
            bar.update(
                task,
                completed=done,
                count=f"{done:,}" if total is None else f"{done:,} of {total:,}",
                description=status.counts.state,
                speed=_speed(status.counts),
            )
            bar.tasks[0].finished_time = None  # a full bar is no end: the time goes on
            bar.refresh()

        draw()
        try:
            yield draw
        finally:
            draw()  # the final state


def _lines(progress: RunProgress) -> Callable[[], None]:
    last: dict[str, Any] = {"at": 0.0, "line": ""}

    def print_line() -> None:
        now = time.monotonic()
        if now - last["at"] < EVERY:
            return
        line = summary(progress.status())
        if line != last["line"]:
            say(line)
        last.update(at=now, line=line)

    return print_line


def _speed(counts: SyphonStatus) -> str:
    """Return rate and remaining time; an empty text while no message moves."""
    if counts.state != "running" or not counts.rate:
        return ""
    rate = f"{counts.rate:,.0f}/s"
    return rate if not counts.eta else f"{rate}, {duration(max(1, counts.eta))} to go"


def _note(status: RunStatus) -> str:
    """Return the problems, in one line."""
    counts = status.counts
    parts = [status.problem] if counts.state == "stalled" else []
    if counts.throttled_by:
        parts.append(_throttled(counts))
    if status.dead_lettered:
        parts.append(f"{status.dead_lettered:,} dead-lettered")
    if counts.waiting:
        parts += status.waits
    if uncertain := len(counts.uncertain):
        parts.append(f"{uncertain} queue{'s wait' if uncertain > 1 else ' waits'} for locks to end")
    return "; ".join(parts)


def _throttled(counts: SyphonStatus) -> str:
    return f"throttled by the {counts.throttled_by} ({counts.allowed_rate or 0:,.0f}/s allowed)"


def summary(status: RunStatus) -> str:
    """Return the counts of the run in one line."""
    counts = status.counts
    parts = [
        counts.state + (f" ({status.problem})" if counts.state == "stalled" else ""),
        f"{counts.forwarded:,} forwarded",
    ]
    if status.dead_lettered:
        parts.append(f"{status.dead_lettered:,} dead-lettered")
    if counts.remaining is not None:
        parts.append(f"{counts.remaining:,} remaining")
    if counts.waiting:
        parts.append(f"{counts.waiting:,} waiting")
    if speed := _speed(counts):
        parts.append(speed)
        if counts.throttled_by:
            parts.append(_throttled(counts))
    return ", ".join(parts)
