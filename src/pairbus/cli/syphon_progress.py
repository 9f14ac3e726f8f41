"""The progress of a running syphon: a bar on a terminal, a line every few seconds elsewhere.

All counts are those of the run: the syphon's own totals continue across restarts.
"""

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pairbus.cli.output import bar_column, is_terminal, say, wants_json
from pairbus.monitoring.formatting import duration
from pairbus.monitoring.snapshot import read_syphon

if TYPE_CHECKING:
    from pairbus.spark.syphon import SyphonHandle

__all__ = ["RunProgress", "shown", "summary"]

EVERY = 10.0  # seconds between two lines where there is no terminal
NARROW = 80  # columns: with fewer, the elapsed time is left out


class RunProgress:
    """The status of a syphon, with the counts of one run."""

    def __init__(self, handle: "SyphonHandle") -> None:
        self._handle = handle
        self._before = handle.status()

    def status(self) -> dict[str, Any]:
        """Return the status now, with plain texts for its problems."""
        status = self._handle.status()
        before = self._before["dead_lettered"]
        dead = {
            reason: number - before.get(reason, 0)
            for reason, number in status["dead_lettered"].items()
            if number > before.get(reason, 0)
        }
        now = dt.datetime.now(dt.UTC)
        fresh = read_syphon({**status, "updated_at": now.isoformat()}, now)
        return {
            **status,
            "forwarded": status["forwarded"] - self._before["forwarded"],
            "dead_lettered": dead,
            "problem": fresh["problem"],
            "waits": fresh["waits"],
        }


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
    columns = [
        TextColumn("{task.description:8}"),
        bar_column(None),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TextColumn("{task.fields[speed]}"),
    ]
    if console.width >= NARROW:
        columns.append(TimeElapsedColumn())
    # Nothing is drawn between two calls: reading the status takes a moment.
    with Bar(*columns, console=console, auto_refresh=False, expand=True) as bar:
        task = bar.add_task("starting", total=1, speed="")

        def draw() -> None:
            status = progress.status()
            done = _done(status)
            total = done + (status["remaining"] or 0)
            bar.note = _note(status)
            bar.update(
                task,
                completed=done,
                total=max(total, 1),
                description=status["state"],
                speed=_speed(status),
            )
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


def _done(status: dict[str, Any]) -> int:
    return int(status["forwarded"] + sum(status["dead_lettered"].values()))


def _speed(status: dict[str, Any]) -> str:
    """Return rate and remaining time; an empty text while no message moves."""
    if status["state"] != "running" or not status["rate"]:
        return ""
    rate = f"{status['rate']:,.0f}/s"
    return rate if not status["eta"] else f"{rate}, {duration(max(1, status['eta']))} to go"


def _note(status: dict[str, Any]) -> str:
    """Return the problems, in one line."""
    dead = sum(status["dead_lettered"].values())
    parts = [status["problem"]] if status["state"] == "stalled" else []
    if status.get("throttled_by"):
        parts.append(_throttled(status))
    if dead:
        parts.append(f"{dead:,} dead-lettered")
    if status["waiting"]:
        parts += status["waits"]
    if uncertain := len(status.get("doubtful", [])):
        parts.append(f"{uncertain} queue{'s wait' if uncertain > 1 else ' waits'} for locks to end")
    return "; ".join(parts)


def _throttled(status: dict[str, Any]) -> str:
    return f"throttled by the {status['throttled_by']} ({status['allowed_rate']:,.0f}/s allowed)"


def summary(status: dict[str, Any]) -> str:
    """Return the counts of the run in one line."""
    dead = sum(status["dead_lettered"].values())
    is_stalled = status["state"] == "stalled"
    parts = [
        status["state"] + (f" ({status['problem']})" if is_stalled else ""),
        f"{status['forwarded']:,} forwarded",
    ]
    if dead:
        parts.append(f"{dead:,} dead-lettered")
    if status["remaining"] is not None:
        parts.append(f"{status['remaining']:,} remaining")
    if status["waiting"]:
        parts.append(f"{status['waiting']:,} waiting")
    if speed := _speed(status):
        parts.append(speed)
        if status.get("throttled_by"):
            parts.append(_throttled(status))
    return ", ".join(parts)
