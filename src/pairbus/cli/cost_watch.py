"""`pairbus cost watch`: the cost so far, while the ledger is written."""

import contextlib
import datetime as dt
import signal
import tempfile
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from pairbus.cli.cost_options import Moment, read_prices, rule_options
from pairbus.cli.errors import UserError
from pairbus.cli.options import SPAN, ledger_argument, setting
from pairbus.cli.output import is_terminal, json_option, say, wants_json, write_json
from pairbus.cli.progress import ledger_steps
from pairbus.cli.tables import Table
from pairbus.monitoring.formatting import one_line
from pairbus.pricing import STAGE_NAMES, format_amount

if TYPE_CHECKING:
    from pairbus.reports.cost_stream import CostWatch, LiveCost

DAY = dt.timedelta(days=1)


@click.command("watch", short_help="Show the cost as the ledger grows.")
@ledger_argument
@click.option(
    "--from",
    "start",
    type=Moment(),
    metavar="TIME",
    help="First minute, UTC; a day ago by default.",
)
@setting("--every", type=SPAN, default="10s", help="How often the ledger is read.")
@click.option("--once", is_flag=True, help="Show the present cost once, and exit.")
@click.option("--master", metavar="URL", help="Spark master; local[*] by default.")
@rule_options
@json_option
def watch_(ledger: str, **values: Any) -> None:
    """Follow a ledger and show operations and money by stage as they are written.

    Paired clients write once a minute. All operations are priced at the price step given by
    --month-operations, and operations of the application on the primary are not included; `report`
    is exact. Stop it with Ctrl-C. With --json, each change is one line.

    \b
    Example:
      pairbus cost watch ./ledger
    """
    prices, rules = read_prices(values)
    with ledger_steps([ledger], bar_wanted=False) as shown:
        from pairbus.reports.cost_stream import STREAM_SETTINGS, CostWatch

        with (
            tempfile.TemporaryDirectory(prefix="pairbus-", ignore_cleanup_errors=True) as folder,
            shown.spark("watch", values["master"], STREAM_SETTINGS) as spark,
            _screen() as show,
        ):
            watch = CostWatch(
                spark, ledger, prices, rules, report=show,
                since=values["start"] or dt.datetime.now(dt.UTC) - DAY,
                checkpoint=folder, interval=values["every"],
            )  # fmt: skip
            try:
                if values["once"]:
                    watch.catch_up()
                    if not watch.latest().total.operations:
                        show(watch.latest())
                else:
                    _until_interrupted(watch)
            finally:
                watch.stop()


def _until_interrupted(watch: "CostWatch") -> None:
    """Wait for Ctrl-C, or for the end of the query, which is then an error."""
    stopped = threading.Event()
    # Spark's own handler calls Java, and may do so in the middle of another call.
    before = signal.signal(signal.SIGINT, lambda *_: stopped.set())
    try:
        while not stopped.wait(1):
            if not watch.query.isActive:
                raise UserError(
                    f"the watch ended: {one_line(watch.query.exception() or OSError())}"
                )
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _screen() -> Iterator[Any]:
    """Yield a function that shows the latest figures: as a live table, a line, or JSON."""
    if wants_json():
        yield lambda found: write_json(found, indent=None)
    elif not is_terminal():
        yield lambda found: say(_line(found))
    else:
        from rich.live import Live

        lock = threading.Lock()
        with Live("starting Spark …", auto_refresh=False, transient=False) as live:
            live.refresh()

            def show(found: "LiveCost") -> None:
                with lock:
                    live.update(_table(found).rich(live.console.width), refresh=True)

            yield show


def _line(found: "LiveCost") -> str:
    total = found.total
    return (
        f"{found.at:%H:%M:%SZ}  {total.operations:,} operations (+{found.added:,}), "
        f"{format_amount(total.money + total.transfer_money)} {found.currency}"
    )


def _table(found: "LiveCost") -> Table:
    table = Table(
        "stage", ">messages", ">operations", f">{found.currency}", ">transfer",
        title=f"Since {found.since:%Y-%m-%d %H:%MZ}, at {found.at:%H:%M:%SZ}; Ctrl-C ends",
    )  # fmt: skip
    order = list(STAGE_NAMES)
    lines = sorted(found.by_stage, key=lambda line: order.index(line.name))
    for name, spent in [*((STAGE_NAMES[x.name], x) for x in lines), ("total", found.total)]:
        money, transfer = format_amount(spent.money), format_amount(spent.transfer_money)
        table.add(name, spent.messages, spent.operations, money, transfer)
    return table
