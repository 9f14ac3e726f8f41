"""`pairbus account`: reconciliation and cost report in one run, with one start of Java."""

from typing import Any

import click

from pairbus.cli.cost_options import rule_options
from pairbus.cli.cost_report import CostRequest, report_options, report_tables
from pairbus.cli.errors import ExitCode
from pairbus.cli.options import ledgers_argument
from pairbus.cli.output import emit, json_option, say
from pairbus.cli.progress import ledger_steps
from pairbus.cli.reconcile import (
    backlog_options,
    peeked_backlog,
    reconciled,
    reconciliation_tables,
)
from pairbus.monitoring.endpoints import Pair


@click.command("account")
@ledgers_argument
@backlog_options
@report_options
@click.option("--master", metavar="URL", help="Spark master; local[*] by default.")
@rule_options
@json_option
def command(pair: Pair, **values: Any) -> ExitCode:
    """Account for every message of an outage, and report the cost.

    This is `pairbus reconcile` and `pairbus cost report` in one run. The exit code is that of
    `reconcile`; --from and --to choose the operations of the cost report only.

    \b
    Example:
      pairbus account ./ledger --pair orders --html outage.html
    """
    locations = values["ledgers"] or [pair.require_ledger()]
    request = CostRequest.read(values)
    with (
        ledger_steps(locations) as shown,
        peeked_backlog(None if values["no_peek"] else pair, locations[0], shown) as waiting,
        shown.spark("account", values["master"]) as spark,
    ):
        shown.begin("matching messages with receipts")
        messages = reconciled(spark, locations, waiting, values["limit"])
        shown.begin("adding up operations")
        cost = request.run(spark, locations)
    emit(
        {"reconciliation": messages, "cost": cost},
        [*reconciliation_tables(messages), "", *report_tables(cost)],
    )
    if values["html"]:
        say(f"page: {values['html']}")
    return ExitCode.OK if messages.balanced else ExitCode.NEGATIVE
