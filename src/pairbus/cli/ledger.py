"""`pairbus ledger`: compact a ledger, or show its contents."""

import contextlib
from collections.abc import Iterator
from typing import Any

import click

from pairbus.cli.errors import ExitCode, require
from pairbus.cli.options import ledger_argument, setting
from pairbus.cli.output import emit, is_terminal, json_option
from pairbus.cli.tables import Table


@click.group("ledger")
def command() -> None:
    """Compact a ledger, or show its contents.

    The ledger consists of Parquet files. Paired clients and syphons record in it each charged
    operation and each step of a message through the backlog.

    \b
    Example:
      pairbus ledger show ./ledger
    """


@command.command("compact")
@ledger_argument
@setting(
    "--rows",
    "target",
    type=click.IntRange(2),
    default=1_000_000,
    help="Leave files with at least this many rows as they are.",
)
@json_option
def compact_(ledger: str, target: int) -> None:
    """Merge small files into large ones.

    The command can run while clients and syphons write. If it is killed, no row is lost or counted
    twice; run it again.

    \b
    Example:
      pairbus ledger compact ./ledger
    """
    require("pyarrow", "ledger")
    from pairbus.ledger.compact import compact

    with _progress() as progress:
        done = compact(ledger, target_rows=target, progress=progress)
    table = Table("table", ">files before", ">files after", ">rows", ">repeats dropped")
    for one in done:
        table.add(one.table, one.files_before, one.files_after, one.rows, one.repeats_dropped)
    notes = [f"note: not a whole Parquet file: {name}" for one in done for name in one.unreadable]
    emit(done, [table, *notes])


@command.command("show", short_help="Show the contents of a ledger.")
@ledger_argument
@json_option
def show_(ledger: str) -> None:
    """Show the contents of a ledger: files, rows, times, writers, repeated and missing rows.

    \b
    Example:
      pairbus ledger show ./ledger --json
    """
    require("pyarrow", "ledger")
    from pairbus.ledger import Store
    from pairbus.ledger.plan import plan

    store = Store(ledger)
    store.require_ledger()
    table = Table("table", ">files", ">rows", ">writers", "from", "to", ">repeating files", ">gaps")
    data: list[dict[str, Any]] = []
    notes: list[str] = []
    for name in ("operations", "messages"):
        found = plan(store, name)
        kept = [*found.single, *found.overlapping]
        times = [t for f in kept for t in (f.earliest, f.latest) if t is not None]
        row = {
            "table": name,
            "files": len(kept),
            "rows": found.rows,
            "writers": len({w for f in kept for w in (f.ranges or {})}),
            "from": min(times, default=None),
            "to": max(times, default=None),
            "repeating_files": len(found.repeats),
            "gaps": [str(gap) for gap in found.gaps],
            "unreadable": list(found.unreadable),
        }
        data.append(row)
        table.add(name, row["files"], row["rows"], row["writers"], row["from"], row["to"],
                  row["repeating_files"], len(found.gaps))  # fmt: skip
        notes += [f"note: missing: {gap}" for gap in found.gaps[:20]]
        notes += [f"note: not a whole Parquet file: {file}" for file in found.unreadable[:20]]
    emit(data, [table, *notes])


@contextlib.contextmanager
def _progress() -> Iterator[Any]:
    """Yield a function that moves a progress bar; None if there is no terminal."""
    if not is_terminal():
        yield None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task("compacting")
        yield lambda done, total: bar.update(task, completed=done, total=total)


@command.command("in-doubt", short_help="List messages that a former target may have received.")
@ledger_argument
@json_option
def in_doubt(ledger: str) -> int:
    """List messages that a former target of the syphon may have received.

    After `pairbus syphon run --to`, these are the messages that the syphon received for the former
    target and that have no receipt: the former target may have stored them. They were delivered to
    the new target. The exit code is 1 if there are any.

    \b
    Example:
      pairbus ledger in-doubt ./ledger
    """
    require("pyarrow", "ledger")
    from pairbus.ledger.receipt_index import list_in_doubt

    rows = list_in_doubt(ledger)
    table = Table(
        "message", "destination", "backlog queue", ">number", "delivered",
        empty="no message is in doubt",
    )  # fmt: skip
    for row in rows:
        table.add(row["message_id"], row["destination"], row["backlog_queue"],
                  str(row["sequence_number"]), row["reason"])  # fmt: skip
    emit(rows, table)
    return ExitCode.NEGATIVE if rows else ExitCode.OK
