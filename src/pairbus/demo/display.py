"""The demo on the screen: one live picture of fixed height on a terminal, plain lines in a pipe."""

import contextlib
import dataclasses
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import click

from pairbus.monitoring.formatting import duration

WIDTH, HEIGHT = 80, 24  # of the smallest terminal that shows everything
NEWS = 6  # lines
ENTITIES = 3


@dataclasses.dataclass
class Progress:
    """The figures and news that are shown."""

    acts: list[str]
    act: int = -1
    doing: str = ""
    page: str = ""
    counts: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    phases: dict[str, str] = dataclasses.field(default_factory=dict)
    primary: str = "starting"
    backlog: int = 0
    drained: int = 0
    to_drain: int = 0
    news: list[str] = dataclasses.field(default_factory=list)


@contextlib.contextmanager
def standard_error_kept() -> Iterator[None]:
    """Keep the standard error of child processes away from the picture.

    Java and Spark's Python workers inherit the terminal, and their lines would break the picture.
    They are shown at the end, if the demo fails.
    """
    with tempfile.TemporaryFile() as kept:
        terminal = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(terminal, kept.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


class Display:
    """Shows the progress of the demo as it changes; a context manager."""

    def __init__(self, progress: Progress, *, drawn: bool = False) -> None:
        self.progress = progress
        self._drawn = drawn
        self._live: Any = None
        self._open = contextlib.ExitStack()
        self._started = time.monotonic()
        self._last = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> "Display":
        if self._drawn:
            from rich.live import Live

            self._open.enter_context(standard_error_kept())
            self._live = self._open.enter_context(
                Live(get_renderable=self.render, refresh_per_second=4, transient=False)
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live = None
        self._open.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """Show a line of news."""
        with self._lock:
            self.progress.news = [*self.progress.news[-NEWS + 1 :], f"{self._clock()} {text}"]
        if not self._live:
            click.echo(f"{self._clock()} {text}")

    def act(self, text: str) -> None:
        """Begin the next act."""
        self.progress.act += 1
        self.progress.doing = text
        self.say(f"== {self.progress.acts[self.progress.act]}: {text}")

    def show_page(self, link: str) -> None:
        """Show the link of the live page; in the picture it has its own line, and is never cut."""
        self.progress.page = link
        if not self._live:
            click.echo(f"{self._clock()} live page: {link}")

    def update(self, **changes: Any) -> None:
        """Show new figures; in a pipe a line every five seconds."""
        for name, value in changes.items():
            setattr(self.progress, name, value)
        now = time.monotonic()
        if not self._live and now - self._last >= 5:
            self._last = now
            click.echo(f"{self._clock()} {self.summary()}")

    def summary(self) -> str:
        """The figures in one line."""
        parts = [
            f"{entity} sent {row['sent']} arrived {row['arrived']} via backlog {row['backlog']}"
            for entity, row in self.progress.counts.items()
        ]
        drain = (
            f"; drained {self.progress.drained} of {self.progress.to_drain}"
            if self.progress.to_drain
            else ""
        )
        return "; ".join(parts) + f"; in the backlog {self.progress.backlog}{drain}"

    def _clock(self) -> str:
        return f"{time.monotonic() - self._started:6.1f}s"

    def render(self) -> Any:
        """Return the picture as a rich renderable, of the same height at every time."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        def line(text: str, style: str = "") -> Text:
            return Text(text, style, no_wrap=True, overflow="ellipsis")

        s = self.progress
        acts = line("")
        for number, name in enumerate(s.acts):
            style = "green" if number < s.act else "bold cyan" if number == s.act else "dim"
            mark = "✔" if number < s.act else "▶" if number == s.act else "·"
            acts.append(f"{mark} {name}  ", style=style)
        colour = {"up": "green", "killed": "bold red"}.get(s.primary, "yellow")
        state = Text.assemble(
            ("primary contoso ", ""), (s.primary, colour),
            ("   backlog in contoso-dr ", ""), (f"{s.backlog:,}", "yellow" if s.backlog else ""),
            (f"   {duration(time.monotonic() - self._started)}", "dim"),
        )  # fmt: skip
        done = min(s.drained, s.to_drain)
        drain = Table.grid(padding=(0, 1))
        drain.add_row(
            line(f"drained {done:,} of {s.to_drain:,}"),
            ProgressBar(
                total=max(1, s.to_drain), completed=done, width=40,
                complete_style="green", finished_style="green",
            ),
        )  # fmt: skip
        news = [*s.news, *[""] * (NEWS - len(s.news))]
        parts: list[Any] = [
            acts, line(""), line(s.doing, "bold"), state, line(""), self._entities(), line(""),
            drain, line(""), *[line(text, "dim") for text in news],
            line(f"live page: {s.page}" if s.page else "", "cyan"),
        ]  # fmt: skip
        return Panel(Group(*parts), title="pairbus demo", border_style="blue")

    def _entities(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for name in ("entity", "sends go to"):
            table.add_column(name, no_wrap=True)
        for name in ("sent", "via backlog", "arrived", "retried"):
            table.add_column(name, justify="right", no_wrap=True)
        places = {
            "failed_over": Text("the backlog", "bold red"),
            "suspect": Text("primary, failing", "yellow"),
        }
        for entity, row in self.progress.counts.items():
            phase = self.progress.phases.get(entity, "healthy")
            figures = (row["sent"], row["backlog"], row["arrived"], row["retries"])
            where = places.get(phase, Text("primary", "green"))
            table.add_row(entity, where, *[f"{figure:,}" for figure in figures])
        for _ in range(ENTITIES - len(self.progress.counts)):
            table.add_row("")
        return table
