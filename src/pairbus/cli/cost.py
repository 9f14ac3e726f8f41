"""`pairbus cost`: estimate what pairing costs, and report what it did cost."""

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairbus.cli.cost_options import (
    RATE,
    SIZE,
    SPAN,
    Moment,
    read_rules,
    rule_options,
)
from pairbus.cli.cost_watch import watch_
from pairbus.cli.errors import ExitCode, UserError, fail, require
from pairbus.cli.options import PAIR_HELP, ledgers_argument, resolve_pair
from pairbus.cli.output import emit, json_option, say
from pairbus.cli.progress import spark_progress
from pairbus.cli.tables import Column, Table
from pairbus.pricing import STAGE_NAMES, format_amount

if TYPE_CHECKING:
    from pairbus.reports.cost_report import CostReport, Line
    from pairbus.reports.estimate import Charge, Estimate


@click.group()
def group() -> None:
    """Estimate and report the cost of pairing.

    `estimate` computes the cost from the figures that you give. `report` reads the ledger, in which
    paired clients and syphons record every operation that Service Bus charges for.

    \b
    Example:
      pairbus cost estimate --queues 10
    """


# ------------------------------------------------------------------ estimate


@group.command("estimate")
@click.option(
    "--clients",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Paired clients: processes of the application.",
)
@click.option(
    "--entities",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Queues and topics that each client sends to.",
)
@click.option(
    "--rate",
    type=RATE,
    default="10/s",
    show_default=True,
    help="Messages that all clients send together: 50/s, 3000/min.",
)
@click.option("--size", type=SIZE, default="1KB", show_default=True, help="Size of a message.")
@click.option("--outage", type=SPAN, default="1h", show_default=True, help="Duration: 90m, 2h.")
@click.option(
    "--queues", type=click.IntRange(1), default=10, show_default=True, help="Backlog queues."
)
@click.option(
    "--subscriptions",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many receivers get each message: the subscriptions of a topic, 1 for a queue.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Messages per sent batch.",
)
@click.option(
    "--ping",
    "ping_interval",
    type=SPAN,
    default="60s",
    show_default=True,
    help="Time between two pings of an entity by a client.",
)
@click.option(
    "--poll",
    type=SPAN,
    default="15m",
    show_default=True,
    help="Duration of a receive of an idle syphon.",
)
@click.option(
    "--syphons", type=click.IntRange(1), default=1, show_default=True, help="Concurrent syphons."
)
@rule_options
@json_option
def estimate_(**values: Any) -> None:  # fmt: skip
    """Estimate the cost of an outage, and of an idle syphon.

    Every option has a default. Some billing rules of Service Bus are not documented precisely; an
    option selects the interpretation of each. `low` is the cost with the cheapest interpretation.

    \b
    Example:
      pairbus cost estimate --clients 20 --rate 500/s --outage 2h
    """
    from pairbus.pricing import PriceError
    from pairbus.reports.estimate import Workload, estimate
    from pairbus.reports.price_lists import load_prices

    try:
        workload = Workload(
            clients=values["clients"], entities=values["entities"], rate=values["rate"],
            size=int(values["size"]), outage=values["outage"], queues=values["queues"],
            subscriptions=values["subscriptions"], batch=values["batch"],
            ping_interval=values["ping_interval"], poll=values["poll"], syphons=values["syphons"],
        )  # fmt: skip
        result = estimate(workload, load_prices(values["prices"]), read_rules(values))
    except PriceError as exc:
        raise UserError(str(exc)) from exc
    except ValueError as exc:
        raise UserError(str(exc), code=ExitCode.USAGE) from exc
    emit(result, _estimate_tables(result))


def _estimate_tables(result: "Estimate") -> list[Table | str]:
    stages = Table(
        "stage", Column("operations", right=True), Column("low", right=True),
        Column(result.currency, right=True), Column("low", right=True),
        Column("transfer", right=True),
        title=f"An outage of {result.workload.outage / 60:g} minutes, {result.messages:,} messages",
    )  # fmt: skip
    for charge in result.stages:
        derived = " (derived)" if charge.derived else ""
        stages.add(*_charge_cells(STAGE_NAMES[charge.stage] + derived, charge))
    for name, charge in (
        ("total", result.total),
        ("spent anyway", result.anyway),
        ("the outage adds", result.extra),
    ):
        stages.add(*_charge_cells(name, charge))
    idle = Table(
        "idle syphon", Column("receives", right=True), Column("low", right=True),
        Column(result.currency, right=True), title="While nothing happens",
    )  # fmt: skip
    for span, charge in result.idle.items():
        idle.add(f"per {span}" if span != "30 days" else "in 30 days", charge.operations,
                 charge.operations_low, format_amount(charge.money))  # fmt: skip
    idle.add("pairing, once", result.setup.operations, result.setup.operations_low,
             format_amount(result.setup.money))  # fmt: skip
    return [stages, idle, "", "Assumed:", *[f"  - {line}" for line in result.assumptions]]


def _charge_cells(name: str, charge: "Charge") -> tuple[Any, ...]:
    return (
        name, charge.operations, charge.operations_low, format_amount(charge.money),
        format_amount(charge.money_low), format_amount(charge.transfer_money),
    )  # fmt: skip


# ------------------------------------------------------------------ report


@group.command("report", short_help="Report the cost of the operations in a ledger.")
@ledgers_argument
@click.option("--pair", "pair_name", metavar="NAME", help=PAIR_HELP)
@click.option("--from", "start", type=Moment(), metavar="TIME", help="First minute, UTC.")
@click.option("--to", "end", type=Moment(), metavar="TIME", help="End (exclusive), UTC.")
@click.option(
    "--subscriptions",
    "topics",
    multiple=True,
    metavar="TOPIC=N",
    help="Number of subscriptions of a topic; repeatable.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the report as one self-contained page with plots.",
)
@click.option(
    "--rows",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the rows behind the totals, with their cost, as Parquet.",
)
@click.option("--master", metavar="URL", help="Spark master; local[*] by default.")
@rule_options
@json_option
def report_(**values: Any) -> None:  # fmt: skip
    """Report the cost of the operations in a ledger.

    LEDGER is a folder or URL. Several may be given; rows that occur in more than one count once.

    \b
    Example:
      pairbus cost report ./ledger --html report.html
    """
    from pairbus.pricing import PriceError
    from pairbus.reports.price_lists import load_prices

    for module in ("pyarrow", "pyspark"):
        require(module, "spark")
    from pairbus.ledger.store import LedgerError

    start, end = values["start"], values["end"]
    if start and end and start >= end:
        fail(f"--from {start} is not before --to {end}", code=ExitCode.USAGE)
    locations = values["ledgers"] or [resolve_pair(values["pair_name"]).require_ledger()]
    topics = dict(_topic(text) for text in values["topics"])
    rules = read_rules(values)
    try:
        prices = load_prices(values["prices"])
        prices.tier(rules.tier)
        from pairbus.ledger import Store

        for location in locations:  # before Spark starts: a wrong folder is reported immediately
            Store(location).require_ledger()
        with spark_progress("cost", values["master"]) as spark:
            from pairbus.reports.cost_report import cost_report

            report = cost_report(
                spark, locations, prices, rules, start=start, end=end, subscriptions=topics
            )
            if values["rows"]:
                from pairbus.reports.cost_report import write_rows

                count = write_rows(
                    spark, values["rows"], locations, prices, rules,
                    start=start, end=end, subscriptions=topics,
                )  # fmt: skip
    except (PriceError, LedgerError) as exc:
        raise UserError(str(exc)) from exc
    if values["html"]:
        from pairbus.reports.cost_page import render

        Path(values["html"]).write_text(render(report), encoding="utf-8")
    emit(report, _report_tables(report))
    if values["html"]:
        say(f"page: {values['html']}")
    if values["rows"]:
        say(f"rows: {count:,} in {values['rows']}")


def _topic(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not name or not number.isdigit():
        fail(f"--subscriptions {text!r} is not TOPIC=NUMBER", code=ExitCode.USAGE)
    return name, int(number)


def _report_tables(report: "CostReport") -> list[Table | str]:
    span = f"{_when(report.start)} to {_when(report.end)}"
    head = (
        f"{span}: {report.total.operations:,} operations, "
        f"{format_amount(report.total.spent)} {report.currency}; the outage added "
        f"{report.extra.operations:,} operations, "
        f"{format_amount(report.extra.spent)} {report.currency}"
    )
    stages = _line_table("stage", report, title="By stage")
    for line in report.by_stage:
        words = STAGE_NAMES[line.name[0]] + (" (derived)" if line.name[1] else "")
        stages.add(*_line_cells(words + (" *" if line.name[2] else ""), line))
    for name, line in (
        ("total", report.total),
        ("spent anyway", report.anyway),
        ("the outage added", report.extra),
    ):
        stages.add(*_line_cells(name, line))
    entities = _line_table("entity", report, title="By entity")
    for line in report.by_entity[:20]:
        entities.add(*_line_cells("/".join(line.name), line))
    hours = _line_table("hour", report, title="By hour")
    for line in report.by_hour[-48:]:
        hours.add(*_line_cells(line.name[0][:16].replace("T", " "), line))
    clients = _line_table("client", report, title="By client")
    for line in report.by_client[:20]:
        clients.add(*_line_cells(line.name[0], line))
    uncertain = (
        f"Uncertain rules read cheapest: {report.total.operations_low:,} operations, "
        f"{format_amount(report.total.money_low + report.total.transfer_money)} {report.currency}. "
        f"Prices of {report.prices_of}, {report.rules.tier} tier. "
        "Derived: operations of the application on the primary. *: added by the outage."
    )
    notes = [f"note: {note}" for note in report.notes]
    return [head, stages, entities, hours, clients, uncertain, *notes]


def _line_table(name: str, report: "CostReport", *, title: str) -> Table:
    return Table(
        name, Column("messages", right=True), Column("operations", right=True),
        Column("low", right=True), Column(report.currency, right=True),
        Column("transfer", right=True), title=title,
    )  # fmt: skip


def _line_cells(name: str, line: "Line") -> tuple[Any, ...]:
    return (
        name, line.messages, line.operations, line.operations_low, format_amount(line.money),
        format_amount(line.transfer_money),
    )  # fmt: skip


def _when(moment: dt.datetime | None) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%MZ") if moment else "the start"


group.add_command(watch_)
