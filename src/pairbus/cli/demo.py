"""`pairbus demo`: an outage on this machine, with an account of every message."""

import threading
from typing import TYPE_CHECKING

import click

from pairbus.cli.errors import ExitCode, exit_on_signals, fail, require
from pairbus.cli.output import emit, is_terminal, say, write_json
from pairbus.cli.tables import Table
from pairbus.monitoring.formatting import one_line

if TYPE_CHECKING:
    from pairbus.demo.message_account import Verdict


@click.command("demo")
@click.option("--fast", is_flag=True, help="A short outage: about half a minute in total.")
@click.option("--keep", is_flag=True, help="Keep the namespaces running afterwards, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Write the verdict as JSON in the last line.")
@click.option("--no-page", is_flag=True, help="Do not serve the live page.")
def command(fast: bool, keep: bool, as_json: bool, no_page: bool) -> ExitCode:
    """Run an outage on this machine, and show that no message is lost.

    The demo starts two embedded namespaces as processes, pairs them, sends from four senders, kills
    the primary (kill -9), continues to send, restarts the primary, waits until pings detect it,
    drains the backlog with the syphon on Spark, and accounts for every message. It takes about two
    minutes.

    The exit code is 0 if no message was lost, none arrived twice at a destination with duplicate
    detection, the order was kept as documented, and the ledger balances; otherwise 1.

    \b
    Examples:
      pairbus demo
      pairbus demo --fast --json
    """
    require("pyarrow", "all")
    require("pyspark", "all")
    require("aiohttp", "all")
    from pairbus.demo.scenario import play
    from pairbus.demo.setup import FAST, NORMAL

    # As with Ctrl-C, the demo stops all the processes that it started.
    exit_on_signals()
    try:
        verdict, scenario = play(FAST if fast else NORMAL, drawn=is_terminal(), page=not no_page)
    except (RuntimeError, OSError) as exc:
        fail(f"the demo failed: {one_line(exc)}")
    try:
        show(verdict)
        if as_json:
            write_json(verdict, indent=None)
        if keep:
            say("")
            say("Both namespaces and the live page are still running. In another shell:")
            for name, value in scenario.pair.environment().items():
                click.echo(f"  export {name}='{value}'")
            say("Press Ctrl-C to stop.")
            threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        scenario.close()
    return ExitCode.OK if verdict.ok else ExitCode.NEGATIVE


def show(verdict: "Verdict") -> None:
    """The verdict for people."""
    table = Table("", ">messages", title="Messages")
    table.add("sent", verdict.sent)
    table.add("of these through the backlog", verdict.through_backlog)
    table.add("delivered", verdict.delivered)
    table.add("lost", verdict.lost)
    table.add("arrived twice", verdict.duplicates)
    table.add("  where duplicates are detected", verdict.duplicates_where_detected)
    table.add("out of the promised order", verdict.out_of_order)
    table.add("send errors that the senders retried", verdict.retries)
    cost = verdict.cost
    bill = Table(
        "stage", ">messages", ">operations",
        f">cost, {cost.get('currency', '')}",
        title=f"Cost (prices of {cost.get('prices_of', '?')})",
    )  # fmt: skip
    for row in cost.get("stages", ()):
        stage = row["stage"].replace("_", " ") + (", derived" if row.get("is_derived") else "")
        bill.add(stage, row["messages"], row["operations"], f"{float(row['cost']):.6f}")
    bill.add("total", "", cost.get("operations"), f"{float(cost.get('total', 0)):.6f}")
    line = (
        f"VERDICT: nothing lost. {verdict.sent:,} sent, {verdict.delivered:,} delivered, "
        f"{verdict.through_backlog:,} through the backlog, {verdict.lost} lost, order kept."
        if verdict.ok
        else "VERDICT: " + "; ".join(verdict.problems)
    )
    emit(verdict, [table, bill, verdict.reconciliation, line])
