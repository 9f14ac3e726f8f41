"""`pairbus syphon run`: run the syphon on Spark and show its progress, or calculate its cost."""

from typing import TYPE_CHECKING, Any

import click

from pairbus.cli.errors import ExitCode, fail, require
from pairbus.cli.options import (
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_SPAN,
    Number,
    duration_option,
    pair_options,
    setting,
)
from pairbus.cli.output import emit, json_option, say
from pairbus.cli.progress import starting_spark
from pairbus.cli.syphon_options import build_options, checkpoint_option
from pairbus.cli.syphon_progress import RunProgress, shown, summary
from pairbus.cli.syphon_signals import StopSignals
from pairbus.cli.tables import Table
from pairbus.monitoring.endpoints import Pair
from pairbus.pricing import format_amount

if TYPE_CHECKING:
    from pairbus.options import SyphonOptions


@click.command("run", short_help="Forward the backlog to its destinations.")
@json_option
@pair_options
@checkpoint_option
@click.option("--master", metavar="URL", help="Spark master; local[*] by default.")
@click.option("--ca-file", metavar="FILE", help="PEM file of the certificate authorities to trust.")
@click.option("--queues", "count", type=click.IntRange(1), help="Number of backlog queues.")
@click.option("--until-empty", is_flag=True, help="End when the backlog is empty.")
@click.option("--max-messages", type=click.IntRange(1), metavar="N", help="End after N messages.")
@click.option("--snapshot", is_flag=True, help="Forward only messages present at the start.")
@click.option("--max-duration", type=POSITIVE_SPAN, help="End after this time: 90s, 10m.")
@click.option("--max-messages-per-second", type=POSITIVE, metavar="N", help="Maximum rate.")
@click.option("--max-bytes-per-second", type=POSITIVE, metavar="N", help="Maximum rate.")
@setting(
    "--credits-per-second",
    type=NOT_NEGATIVE,
    default=1000.0,
    metavar="N",
    help="Operations per second that each namespace allows; 0: no limit (Premium).",
)
@click.option(
    "--live-traffic-share",
    type=Number(0, 1, max_open=True),
    default=1 / 3,
    show_default="a third",
    metavar="SHARE",
    help="Share of these operations that is reserved for live traffic.",
)
@setting(
    "--missing-destination",
    type=click.Choice(["wait", "dead-letter"]),
    default="wait",
    help="What to do with messages whose destination does not exist.",
)
@duration_option(
    "--missing-destination-timeout",
    "24h",
    "How long to wait for such a destination before its messages are dead-lettered.",
)
@click.option(
    "--max-messages-per-trigger",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum number of messages of one queue in a micro-batch.",
)
@setting(
    "--ttl-policy",
    type=click.Choice(["full", "deduct"]),
    default="full",
    help="Restore the time to live in full, or minus the time in the backlog.",
)
@duration_option(
    "--long-poll", "15m", "How long one receive waits on an empty queue.", type=POSITIVE_SPAN
)
@click.option(
    "--transform",
    metavar="MODULE:FUNCTION",
    help="A function that takes and returns a DataFrame, applied between restore and delivery.",
)
@click.option(
    "--to",
    "target",
    metavar="CS|VAR|secondary",
    help="Deliver to this namespace instead of a lost primary; requires a ledger.",
)
@click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="OLD=NEW",
    help="Deliver messages for the entity OLD to the entity NEW; repeatable.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Forward nothing; show the messages per destination and the cost.",
)
@click.option(
    "--prices",
    metavar="FILE",
    help="For --dry-run: price list (TOML); default: the newest list in pairbus.",
)
@setting("--tier", default="standard", help="For --dry-run: tier of both namespaces.")
@click.option(
    "--one-region", is_flag=True, help="For --dry-run: both namespaces are in one region."
)
def command(
    pair: Pair,
    checkpoint: str | None,
    count: int | None,
    dry_run: bool,
    **settings: Any,
) -> int:
    """Forward the backlog to its destinations, until stopped or until a given limit is reached.

    With --to, messages go to entities of the same name in another namespace, which may be the
    secondary. A message that has a receipt in the ledger is not sent again. Messages that the
    former target may have received, too, are listed by `pairbus ledger in-doubt`.

    Give connection strings in PAIRBUS_PRIMARY and PAIRBUS_SECONDARY, because other users can see a
    command line. After Ctrl-C or SIGTERM the syphon delivers and settles the messages in flight,
    and ends. The exit code is 1 if messages were dead-lettered in this run.

    \b
    Example:
      pairbus syphon run --pair orders --until-empty
    """
    require("pyarrow", "spark")
    require("pyspark", "spark")
    try:
        options = build_options(pair, checkpoint, count, settings)
        return _dry_run(options, settings) if dry_run else _run(options, settings)
    except ValueError as exc:
        fail(str(exc).splitlines()[0], code=ExitCode.USAGE)


def _run(options: "SyphonOptions", settings: dict[str, Any]) -> int:
    from pairbus.exceptions import SyphonError
    from pairbus.spark.syphon import Bounds, start_syphon

    bounds = Bounds(
        until_empty=settings["until_empty"],
        max_messages=settings["max_messages"],
        snapshot=settings["snapshot"],
        max_duration=settings["max_duration"],
    )
    asked = StopSignals()
    with asked.before_spark():
        say(f"{starting_spark(options.master)} …")
        handle = start_syphon(options, bounds=bounds)
    asked.install()  # after Spark, which installs a handler of its own
    say(f"syphon runs; checkpoint {handle.checkpoint}")
    progress = RunProgress(handle)
    try:
        with shown(progress) as show:
            while not handle.wait(0.25):
                show()
                if asked.signal:
                    say("finishing the messages in flight …")
                    handle.stop()
    except SyphonError:
        if not asked.signal:
            raise
        # The signal went to the whole process group, and ended Spark before us.
        text = "Spark was ended, too; messages in flight return to the backlog within a minute"
        fail(text, code=ExitCode.INTERRUPTED)
    status = progress.status()
    emit(status.to_json(), summary(status))
    handle.wait(0)
    if options.target is not None and options.ledger is not None:
        _say_in_doubt(options.ledger)
    for reason, number in status.counts.dead_lettered.items():
        say(f"dead-lettered: {number:,} ({reason}); pairbus backlog peek --dead-letters")
    return ExitCode.NEGATIVE if status.dead_lettered else ExitCode.OK


def _say_in_doubt(ledger: str) -> None:
    from pairbus.ledger.receipt_index import list_in_doubt

    rows = list_in_doubt(ledger)
    if rows:
        ids = ", ".join(str(row["message_id"]) for row in rows[:5]) + (" …" if rows[5:] else "")
        say(f"in doubt: {len(rows):,} ({ids}); pairbus ledger in-doubt lists them")


def _dry_run(options: "SyphonOptions", settings: dict[str, Any]) -> int:
    from pairbus.pricing import Rules
    from pairbus.reports.dry_run import dry_run
    from pairbus.reports.price_lists import load_prices

    rules = Rules(tier=settings["tier"].lower(), one_region=settings["one_region"])
    prices = load_prices(settings["prices"])
    result = dry_run(options, prices=prices, rules=rules)
    table = Table(
        *("destination", "verdict", "reason"),
        *(f">{name}" for name in ("messages", "bytes")),
        title="Messages per destination",
        empty="the backlog is empty",
    )
    for row in result["rows"]:
        table.add(row["destination"], row["verdict"], row["reason"], row["messages"], row["bytes"])
    costs = result["operations"]
    line = (
        f"{result['messages']:,} messages; billable operations: "
        f"{costs['receive_backlog']:,} to receive, {costs['send_primary']:,} to send, "
        f"{costs['settle']:,} to settle, {costs['total']:,} in all"
    )
    cost = result["cost"]
    price = (
        f"{format_amount(cost['total'])} {cost['currency']}: "
        f"{format_amount(cost['operations'])} for operations, "
        f"{format_amount(cost['transfer'])} for transfer between regions "
        f"(prices of {cost['prices_of']}, {cost['tier']} tier)"
    )
    emit(result, [table, line, price])
    return ExitCode.OK
