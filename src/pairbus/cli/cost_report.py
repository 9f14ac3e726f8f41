"""`pairbus cost report`: the cost of the operations in a ledger; also for `pairbus account`."""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pairbus.cli.cost_options import Moment, read_prices, rule_options
from pairbus.cli.errors import ExitCode, fail
from pairbus.cli.options import PAIR_HELP, ledgers_argument, resolve_pair
from pairbus.cli.output import emit, json_option, say
from pairbus.cli.progress import ledger_steps
from pairbus.cli.tables import Table
from pairbus.names import describe_entity
from pairbus.pricing import STAGE_NAMES, format_amount

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pairbus.pricing import PriceList, Rules
    from pairbus.reports.cost_report import CostReport, Line

F = TypeVar("F", bound=Callable[..., Any])


def report_options(command: F) -> F:
    """Give a command the options of a cost report; `CostRequest.read` takes them."""
    for option in (
        click.option("--html", type=click.Path(dir_okay=False), metavar="FILE",
                     help="Write the report as one self-contained page with plots."),
        click.option("--subscriptions", "topics", multiple=True, metavar="TOPIC=N",
                     help="Number of subscriptions of a topic; repeatable."),
        click.option("--to", "end", type=Moment(), metavar="TIME", help="End (exclusive), UTC."),
        click.option("--from", "start", type=Moment(), metavar="TIME", help="First minute, UTC."),
    ):  # fmt: skip
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class CostRequest:
    """The settings of a cost report, checked before Spark starts."""

    prices: "PriceList"
    rules: "Rules"
    choice: dict[str, Any]  # the keyword arguments of `cost_report` and `write_rows`
    html: str | None

    @classmethod
    def read(cls, values: dict[str, Any]) -> "CostRequest":
        """Read the options of a command; a wrong one is reported in one line."""
        start, end = values["start"], values["end"]
        if start and end and start >= end:
            fail(f"--from {start} is not before --to {end}", code=ExitCode.USAGE)
        folder = Path(values["html"] or "").parent
        if not folder.is_dir():
            fail(f"--html: the folder {folder} does not exist", f"mkdir -p {folder}")
        prices, rules = read_prices(values)
        topics = dict(_topic(text) for text in values["topics"])
        choice = {"start": start, "end": end, "subscriptions": topics}
        return cls(prices, rules, choice, values["html"])

    def run(self, spark: "SparkSession", locations: Sequence[str]) -> "CostReport":
        """Run the job of the report, and write its page if --html is given."""
        from pairbus.reports.cost_report import cost_report

        report = cost_report(spark, locations, self.prices, self.rules, **self.choice)
        if self.html:
            from pairbus.reports.cost_page import render

            Path(self.html).write_text(render(report), encoding="utf-8")
        return report

    def write_rows(self, spark: "SparkSession", locations: Sequence[str], file: str) -> int:
        """Write the rows that the totals came from; return their number."""
        from pairbus.reports.cost_report import write_rows

        return write_rows(spark, file, locations, self.prices, self.rules, **self.choice)


@click.command("report", short_help="Report the cost of the operations in a ledger.")
@ledgers_argument
@click.option("--pair", "pair_name", metavar="NAME", help=PAIR_HELP)
@report_options
@click.option(
    "--rows",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the rows behind the totals, with their cost, as Parquet.",
)
@click.option("--master", metavar="URL", help="Spark master; local[*] by default.")
@rule_options
@json_option
def report_(**values: Any) -> None:
    """Report the cost of the operations in a ledger.

    LEDGER is a directory or URL. Several may be given; rows in more than one of them count once.

    \b
    Example:
      pairbus cost report ./ledger --html report.html
    """
    locations = values["ledgers"] or [resolve_pair(values["pair_name"]).require_ledger()]
    request = CostRequest.read(values)
    with (
        ledger_steps(locations) as shown,
        shown.spark("cost", values["master"]) as spark,
    ):
        shown.begin("adding up operations")
        report = request.run(spark, locations)
        if values["rows"]:
            count = request.write_rows(spark, locations, values["rows"])
    emit(report, report_tables(report))
    if values["html"]:
        say(f"page: {values['html']}")
    if values["rows"]:
        say(f"rows: {count:,} in {values['rows']}")


def _topic(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not name or not number.isdigit():
        fail(f"--subscriptions {text!r} is not TOPIC=NUMBER", code=ExitCode.USAGE)
    return name, int(number)


def report_tables(report: "CostReport") -> list[Table | str]:
    """The report for people: totals, then tables by stage, entity, hour and client."""
    span = f"{_when(report.start)} to {_when(report.end)}"
    head = (
        f"{span}: {report.total.operations:,} operations, "
        f"{format_amount(report.total.spent)} {report.currency}; the outage added "
        f"{report.extra.operations:,} operations, "
        f"{format_amount(report.extra.spent)} {report.currency}"
    )
    stages = _line_table("stage", report)
    for line in report.by_stage:
        words = STAGE_NAMES[line.name[0]] + (" (derived)" if line.name[1] else "")
        stages.add(*_line_cells(words + (" *" if line.name[2] else ""), line))
    for name, line in (
        ("total", report.total),
        ("spent anyway", report.anyway),
        ("the outage added", report.extra),
    ):
        stages.add(*_line_cells(name, line))
    tables = [stages]
    for name, lines, name_of in (
        ("entity", report.by_entity[:20], lambda parts: describe_entity(*parts)),
        ("hour", report.by_hour[-48:], lambda parts: parts[0][:16].replace("T", " ")),
        ("client", report.by_client[:20], lambda parts: parts[0]),
    ):
        table = _line_table(name, report)
        for line in lines:
            table.add(*_line_cells(name_of(line.name), line))
        tables.append(table)
    uncertain = (
        f"With the cheapest interpretation of the rules: {report.total.operations_low:,} "
        "operations, "
        f"{format_amount(report.total.money_low + report.total.transfer_money)} {report.currency}. "
        f"Prices of {report.prices_of}, {report.rules.tier} tier. "
        "Derived: operations of the application on the primary. *: added by the outage."
    )
    notes = [f"note: {note}" for note in report.notes]
    return [head, *tables, uncertain, *notes]


def _line_table(name: str, report: "CostReport") -> Table:
    numbers = (">messages", ">operations", ">low", f">{report.currency}", ">transfer")
    return Table(name, *numbers, title=f"By {name}")


def _line_cells(name: str, line: "Line") -> tuple[Any, ...]:
    return (
        name, line.messages, line.operations, line.operations_low, format_amount(line.money),
        format_amount(line.transfer_money),
    )  # fmt: skip


def _when(moment: dt.datetime | None) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%MZ") if moment else "the start"
