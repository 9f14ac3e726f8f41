"""The output of every command: tables or lines for people, JSON for programs.

A reading command looks like this, and does not know whether it writes to a terminal, to a pipe or
as JSON::

    @click.command("list")
    @json_option
    @pair_options                      # from pairbus.cli.options
    def list_(pair: Pair) -> None:
        rows = library_call(pair)      # every number comes from the library
        table = Table("queue", ">messages", title="Backlog queues")
        for row in rows:
            table.add(row.path, cell(row.active, "red" if row.active else ""))
        emit(rows, table)              # JSON gets `rows`, people get the table
"""

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from pairbus.cli.tables import Table
from pairbus.monitoring.formatting import mask, to_plain

F = TypeVar("F", bound=Callable[..., Any])
BULLET = re.compile(r" *(?:(?:-|ok|\d+\.) +)?")  # matches every line


def json_option(command: F) -> F:
    """Give a command the option --json, which `emit` obeys."""

    def remember(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta["pairbus.json"] = True

    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        expose_value=False,
        callback=remember,
        help="Write the result as JSON.",
    )(command)


def wants_json() -> bool:
    """Return whether the running command was asked for JSON."""
    ctx = click.get_current_context(silent=True)
    return bool(ctx and ctx.meta.get("pairbus.json"))


def write_json(data: Any, *, indent: int | None = 2) -> None:
    """Write data to the standard output as JSON."""
    click.echo(json.dumps(to_plain(data), indent=indent, ensure_ascii=False))


def is_terminal() -> bool:
    """Return whether the standard output is a terminal that takes colours and movement."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ


def emit(data: Any, table: Table | str | Iterable[Table | str] = ()) -> None:
    """Write the result: `data` as JSON with --json, else the tables and lines for people."""
    if wants_json():
        write_json(data)
        return
    parts = [table] if isinstance(table, Table | str) else list(table)
    for number, part in enumerate(parts):
        if number and not (isinstance(part, str) and isinstance(parts[number - 1], str)):
            click.echo()  # around every table
        if isinstance(part, str):
            click.echo(wrap(mask(part)) if is_terminal() else mask(part))
        elif is_terminal() and part.rows:
            from rich.console import Console

            console = Console(highlight=False)
            console.print(part.rich(console.width), soft_wrap=True)
        else:
            if len(parts) > 1 and part.title:
                click.echo(part.title)
            click.echo(part.plain())


def wrap(text: str) -> str:
    """Return lines wrapped between words to the width of the terminal, indented as they are."""
    width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(
            line,
            width,
            subsequent_indent=" " * len(BULLET.match(line)[0]),  # type: ignore[index]
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )


def say(line: str) -> None:
    """Print a line for people; silent with --json."""
    if not wants_json():
        click.echo(mask(line))


def bar_column(width: int | None) -> Any:
    """Return the bar of a progress display; rich would draw it in red, the colour of a failure."""
    from rich.progress import BarColumn

    return BarColumn(width, complete_style="cyan", finished_style="green", pulse_style="cyan")
