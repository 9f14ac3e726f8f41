"""How a running syphon is shown: a bar on a terminal, a line now and then elsewhere."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pairbus.cli.output import is_terminal, say, wants_json
from pairbus.monitoring.formatting import duration

if TYPE_CHECKING:
    from pairbus.spark.syphon import SyphonHandle

__all__ = ["line_of", "shown"]

EVERY = 10.0  # seconds between two lines where there is no terminal
NARROW = 80  # columns: with fewer, the time that has passed is left out


@contextlib.contextmanager
def shown(handle: "SyphonHandle") -> Iterator[Callable[[], None]]:
    """Give a function that shows how it stands: on a terminal by a bar; nothing with --json."""
    if wants_json():
        yield lambda: None
    elif is_terminal():
        with _bar(handle) as draw:
            yield draw
    else:
        yield _teller(handle)


@contextlib.contextmanager
def _bar(handle: "SyphonHandle") -> Iterator[Callable[[], None]]:
    """One line with the bar, and below it, if there is something to say, one with that."""
    from rich import get_console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
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
        BarColumn(bar_width=None),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TextColumn("{task.fields[speed]}"),
    ]
    if console.width >= NARROW:
        columns.append(TimeElapsedColumn())
    begun_with = _done(handle.status())  # totals go on over restarts, the bar is this run's
    # Nothing is drawn between two calls: a status takes a moment, and nobody sees more.
    with Bar(*columns, console=console, auto_refresh=False, expand=True) as bar:
        task = bar.add_task("starting", total=1, speed="")

        def draw() -> None:
            status = handle.status()
            done = _done(status) - begun_with
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
            draw()  # as it ended


def _teller(handle: "SyphonHandle") -> Callable[[], None]:
    said: dict[str, Any] = {"at": 0.0, "line": ""}

    def tell() -> None:
        now = time.monotonic()
        if now - said["at"] < EVERY:
            return
        line = line_of(handle.status())
        if line != said["line"]:
            say(line)
        said.update(at=now, line=line)

    return tell


def _done(status: dict[str, Any]) -> int:
    return int(status["forwarded"] + sum(status["dead_lettered"].values()))


def _speed(status: dict[str, Any]) -> str:
    if status["state"] == "stopped":
        return ""
    rate = f"{status['rate']:,.0f}/s"
    return rate if not status["eta"] else f"{rate}, {duration(max(1, status['eta']))} to go"


def _note(status: dict[str, Any]) -> str:
    """What a person should know besides the numbers of the bar."""
    dead, parts = sum(status["dead_lettered"].values()), []
    if status["stalled"]:
        parts.append(status["stalled"])
    if status.get("throttled_by"):
        parts.append(_throttled(status))
    if dead:
        parts.append(f"{dead:,} dead-lettered")
    if status["waiting"]:
        parts.append(f"{status['waiting']:,} wait for {', '.join(status['waiting_for'])}")
    doubtful = len(status.get("doubtful", []))
    if doubtful:
        parts.append(f"{doubtful} queue{'s wait' if doubtful > 1 else ' waits'} for locks to end")
    return "; ".join(parts)


def _throttled(status: dict[str, Any]) -> str:
    return f"throttled by the {status['throttled_by']} ({status['allowed_rate']:,.0f}/s allowed)"


def line_of(status: dict[str, Any]) -> str:
    """How it stands, in one line."""
    dead = sum(status["dead_lettered"].values())
    parts = [
        f"{status['state']}" + (f" ({status['stalled']})" if status["stalled"] else ""),
        f"{status['forwarded']:,} forwarded",
    ]
    if dead:
        parts.append(f"{dead:,} dead-lettered")
    if status["remaining"] is not None:
        parts.append(f"{status['remaining']:,} remaining")
    if status["waiting"]:
        parts.append(f"{status['waiting']:,} waiting")
    if status["rate"] and status["state"] != "stopped":
        parts.append(f"{status['rate']:,.0f}/s")
        if status.get("throttled_by"):
            parts.append(_throttled(status))
    return ", ".join(parts)
