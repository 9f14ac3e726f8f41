"""What the demo looks like: one live display on a terminal, plain lines in a pipe."""

import dataclasses
import threading
import time
from typing import Any

import click

from pairbus.monitoring.formatting import duration


@dataclasses.dataclass
class Progress:
    """What is shown now."""

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


class Display:
    """Shows a progress as it changes; a context manager."""

    def __init__(self, progress: Progress, *, drawn: bool = False) -> None:
        self.progress = progress
        self._drawn = drawn
        self._live: Any = None
        self._started = time.monotonic()
        self._last = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> "Display":
        if self._drawn:
            from rich.live import Live

            self._live = Live(get_renderable=self.render, refresh_per_second=4, transient=False)
            self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live:
            self._live.__exit__(None, None, None)
            self._live = None

    def say(self, text: str) -> None:
        """Something happened."""
        with self._lock:
            self.progress.news = [*self.progress.news[-5:], f"{self._clock()} {text}"]
        if not self._live:
            click.echo(f"{self._clock()} {text}")

    def act(self, text: str) -> None:
        """The next act begins."""
        self.progress.act += 1
        self.progress.doing = text
        self.say(f"== {self.progress.acts[self.progress.act]}: {text}")

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
        """The display, as rich draws it."""
        from rich.box import SIMPLE_HEAD
        from rich.console import Group
        from rich.padding import Padding
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        s = self.progress
        acts = Text()
        for number, name in enumerate(s.acts):
            style = "green" if number < s.act else "bold cyan" if number == s.act else "dim"
            mark = "✔" if number < s.act else "▶" if number == s.act else "·"
            acts.append(f"{mark} {name}   ", style=style)
        table = Table(box=SIMPLE_HEAD, expand=False)
        for name in ("entity", "sends go to"):
            table.add_column(name)
        for name in ("sent", "via backlog", "arrived", "send errors retried"):
            table.add_column(name, justify="right")
        for entity, row in s.counts.items():
            phase = s.phases.get(entity, "healthy")
            where = {"failed_over": Text("the backlog", "bold red"),
                     "suspect": Text("primary, failing", "yellow")}.get(
                phase, Text("primary", "green"))  # fmt: skip
            figures = (row["sent"], row["backlog"], row["arrived"], row["retries"])
            table.add_row(entity, where, *[f"{figure:,}" for figure in figures])
        colour = {"up": "green", "killed": "bold red"}.get(s.primary, "yellow")
        state = Text.assemble(
            ("primary contoso ", ""), (s.primary, colour),
            ("   backlog in contoso-dr ", ""), (f"{s.backlog:,}", "yellow" if s.backlog else ""),
            (f"   {duration(time.monotonic() - self._started)}", "dim"),
        )  # fmt: skip
        parts: list[Any] = [acts, Text(), Text(s.doing, "bold"), state, table]
        if s.to_drain:
            done = min(s.drained, s.to_drain)
            parts += [
                Text(f"drain  {done:,} of {s.to_drain:,}"),
                # A bar alone ends no line: what comes next would stand beside it.
                Padding(ProgressBar(total=s.to_drain, completed=done, width=60)),
            ]
        parts += [Text(line, "dim") for line in s.news]
        if s.page:
            parts.append(Text(f"live page: {s.page}", "cyan"))
        return Panel(Group(*parts), title="pairbus demo", border_style="blue")
