"""`pairbus cost`: estimate and report the cost of pairing."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from pairbus.cli.cost_options import read_prices, rule_options
from pairbus.cli.cost_report import report_
from pairbus.cli.cost_watch import watch_
from pairbus.cli.errors import ExitCode, fail
from pairbus.cli.options import RATE, SIZE, SPAN, setting
from pairbus.cli.output import emit, json_option
from pairbus.cli.tables import Table
from pairbus.pricing import STAGE_NAMES, format_amount

if TYPE_CHECKING:
    from pairbus.reports.estimate import Charge, Estimate


@click.group("cost")
def command() -> None:
    """Estimate and report the cost of pairing.

    `estimate` computes the cost from the figures that you give. `report` reads the ledger, in which
    paired clients and syphons record every operation that Service Bus charges for.

    \b
    Example:
      pairbus cost estimate --queues 10
    """


@command.command("estimate")
@setting(
    "--clients",
    type=click.IntRange(1),
    default=10,
    help="Paired clients: processes of the application.",
)
@setting(
    "--entities",
    type=click.IntRange(1),
    default=5,
    help="Queues and topics that each client sends to.",
)
@setting(
    "--rate",
    type=RATE,
    default="10/s",
    help="Messages that all clients send together: 50/s, 3000/min.",
)
@setting("--size", type=SIZE, default="1KB", help="Size of a message.")
@setting("--outage", type=SPAN, default="1h", help="Duration of the outage: 90m, 2h.")
@setting("--queues", type=click.IntRange(1), default=10, help="Backlog queues.")
@setting(
    "--subscriptions",
    type=click.IntRange(1),
    default=1,
    help="How many receivers get each message: the subscriptions of a topic, 1 for a queue.",
)
@setting("--batch", type=click.IntRange(1), default=1, help="Messages per sent batch.")
@setting(
    "--ping",
    "ping_interval",
    type=SPAN,
    default="60s",
    help="Time between two pings of an entity by a client.",
)
@setting("--poll", type=SPAN, default="15m", help="Duration of a receive of an idle syphon.")
@setting("--syphons", type=click.IntRange(1), default=1, help="Concurrent syphons.")
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
    from pairbus.reports.estimate import Workload, estimate

    prices, rules = read_prices(values)
    figures = {field.name: values[field.name] for field in fields(Workload)}
    try:
        workload = Workload(**{**figures, "size": int(figures["size"])})
    except ValueError as exc:
        fail(str(exc), code=ExitCode.USAGE)
    result = estimate(workload, prices, rules)
    emit(result, _estimate_tables(result))


def _estimate_tables(result: "Estimate") -> list[Table | str]:
    stages = Table(
        "stage", ">operations", ">low", f">{result.currency}", f">low {result.currency}",
        ">transfer",
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
        "idle syphon", ">receives", ">low", f">{result.currency}", title="While nothing happens"
    )
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


command.add_command(report_)
command.add_command(watch_)
