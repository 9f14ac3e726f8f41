"""`pairbus reconcile`: account for every message that went through the backlog."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pairbus.cli.errors import ExitCode, doing, fail
from pairbus.cli.options import ledgers_argument, namespace_options, setting
from pairbus.cli.output import emit, json_option
from pairbus.cli.progress import Steps, ledger_steps
from pairbus.cli.tables import Table, cell
from pairbus.monitoring.endpoints import Pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pairbus.reports.reconciliation import Reconciliation

COLUMNS = (
    ("expected", "messages"), ("once", "once"), ("more_than_once", "more than once"),
    ("dead_lettered", "dead-lettered"), ("expired", "expired"), ("completed", "completed"),
    ("waiting", "waiting"), ("lost", "lost"), ("unrecorded", "unrecorded"),
    ("out_of_order", "out of order"),
)  # fmt: skip


F = TypeVar("F", bound=Callable[..., Any])


def backlog_options(command: F) -> F:
    """Give a command the options of a reconciliation; it gets `pair: Pair`."""
    limit = setting("--limit", type=click.IntRange(1, 10_000), default=20,
                    help="Maximum number of messages to list for each finding.")  # fmt: skip
    no_peek = click.option("--no-peek", is_flag=True, help="Do not peek the backlog queues.")
    return namespace_options(no_peek(limit(command)))


@click.command("reconcile")
@ledgers_argument
@backlog_options
@click.option("--master", metavar="URL", help="Spark master; local[*] by default.")
@json_option
def command(pair: Pair, **values: Any) -> ExitCode:
    """Account for every message that went through the backlog.

    LEDGER is a directory or URL. Several may be given; rows in more than one of them count once. If
    the secondary is given, its backlog queues are peeked to find the messages that still wait
    there; otherwise these messages count as lost. The exit code is 1 if a message was lost or
    delivered more than once, else 0.

    \b
    Example:
      pairbus reconcile ./ledger --pair orders
    """
    locations = values["ledgers"] or [pair.require_ledger()]
    with (
        ledger_steps(locations) as shown,
        peeked_backlog(None if values["no_peek"] else pair, locations[0], shown) as waiting,
        shown.spark("reconcile", values["master"]) as spark,
    ):
        shown.begin("matching messages with receipts")
        result = reconciled(spark, locations, waiting, values["limit"])
    emit(result, reconciliation_tables(result))
    return ExitCode.OK if result.balanced else ExitCode.NEGATIVE


def reconciled(
    spark: "SparkSession", locations: Sequence[str], waiting: str | None, limit: int
) -> "Reconciliation":
    """Run the reconciliation's job; `waiting` is the file of the messages that were peeked."""
    from pairbus.reports.reconciliation import balance

    rows = spark.read.parquet(f"file://{waiting}") if waiting else None
    return balance(spark, locations, rows, limit=limit)


@contextlib.contextmanager
def peeked_backlog(pair: Pair | None, ledger: str, shown: Steps) -> Iterator[str | None]:
    """Peek the backlog queues into a temporary file; None without a pair or its secondary."""
    if pair is None or pair.secondary is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="pairbus-") as folder:
        shown.begin(f"peeking the backlog queues of {pair.secondary.host}")
        file = str(Path(folder) / "waiting.parquet")
        _peek(pair, file, ledger)
        yield file


def _peek(pair: Pair, file: str, ledger: str) -> None:
    from pairbus.ledger import LedgerWriter
    from pairbus.monitoring.backlog_queues import find
    from pairbus.reports.backlog_peek import peek_backlog, save_peeked

    endpoint = pair.require_secondary()
    with doing(f"listing the backlog queues of {endpoint.host}"):
        paths = [queue.path for queue in find(pair)]
    if not paths:
        fail(
            f"{endpoint.host} has no backlog queues of {pair.primary_namespace}",
            "--primary-namespace, or --no-peek to leave them out",
        )
    what = f"peeking the backlog queues of {endpoint.host}"
    with LedgerWriter(ledger, client_id="reconcile") as writer:
        writer.count(endpoint.host, "$namespace", "management", "list", messages=0)

        def count(entity: str, seen: int) -> None:  # by message, as a receive is
            writer.count(
                endpoint.host, entity, "management", "peek", messages=seen, billable=max(1, seen)
            )

        with doing(what), endpoint.bulk_connection() as connection:
            save_peeked(peek_backlog(connection, paths, count=count), file)


def reconciliation_tables(result: "Reconciliation") -> list[Table | str]:
    """The result for people: the verdict, the destinations, and the listed messages."""
    parts: list[Table | str] = [result.verdict]
    table = Table("destination", *[f">{words}" for _, words in COLUMNS], title="By destination")
    for row in (*result.by_destination, {"destination": "in all", **result.totals}):
        table.add(row["destination"] or "(none)", *[_count_cell(row, n) for n, _ in COLUMNS])
    parts.append(table)
    for title, rows in (
        ("Lost", result.lost),
        ("Delivered more than once", result.more_than_once),
        ("Unrecorded by their sender (no loss)", result.unrecorded),
    ):
        if rows:
            parts.append(_message_table(title, rows))
    if result.out_of_order:
        found = Table("destination", "session", "message", "number", "after", title="Out of order")
        for row in result.out_of_order:
            found.add(row["destination"], row["session_id"], row["message_id"],
                      str(row["sequence_number"]), str(row["after"]))  # fmt: skip
        parts.append(found)
    parts.extend(
        f"note: {row['minute']:%Y-%m-%d %H:%MZ}: {row['writer']} counted {row['counted']:,} "
        f"backlogged message(s) and recorded {row['noted']:,}"
        for row in result.missed_minutes
    )
    parts.extend(f"note: {note}" for note in result.notes)
    if result.totals["unsettled"]:
        parts.append(
            f"note: {result.totals['unsettled']:,} forwarded message(s) are still in the backlog: "
            "a syphon may send them again"
        )
    return parts


def _count_cell(row: Any, name: str) -> Any:
    value = row[name]
    bad = value and name in ("lost", "more_than_once")
    return cell(value, "bold red" if bad else "yellow" if value and name == "out_of_order" else "")


def _message_table(title: str, rows: Any) -> Table:
    table = Table(
        "destination", "message", "session", "backlog queue", "first seen", "last seen", "client",
        title=title,
    )  # fmt: skip
    keys = ("destination", "message_id", "session_id", "backlog_queue", "first_seen", "last_seen")
    for row in rows:
        table.add(*[row[key] for key in (*keys, "client_id")])
    return table
