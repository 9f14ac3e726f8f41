"""`pairbus syphon status`: the state and the progress of a syphon."""

import datetime as dt
from dataclasses import replace

import click

from pairbus.cli.errors import ExitCode, fail
from pairbus.cli.options import pair_options
from pairbus.cli.output import emit, json_option
from pairbus.cli.syphon_options import checkpoint_option, find_state
from pairbus.cli.tables import Table, cell
from pairbus.monitoring.endpoints import Pair
from pairbus.monitoring.formatting import duration
from pairbus.monitoring.timeline import age
from pairbus.status import parse_time
from pairbus.syphon.status_records import SyphonStatus


@click.command("status")
@json_option
@pair_options
@checkpoint_option
def command(pair: Pair, checkpoint: str | None, state: str | None) -> int:
    """Show the state and the progress of the syphon.

    \b
    Example:
      pairbus syphon status --pair orders --json
    """
    directory = find_state(pair, checkpoint, state)
    found = directory.read("status.json")
    if not found:
        fail(f"the syphon at {directory.path} has not reported yet")
    status = SyphonStatus.from_json(found)
    from pairbus.monitoring.snapshot import read_syphon
    from pairbus.monitoring.sources import ENDED, process_exists

    if status.state != "stopped":
        is_alive = process_exists(status)
        if is_alive is None:
            seconds = age(status.updated_at, dt.datetime.now(dt.UTC))
            is_alive = seconds is not None and seconds < 120
        if not is_alive:
            status = replace(status, state="stopped", stalled=ENDED)
    now = dt.datetime.now(dt.UTC)
    seen = read_syphon(replace(status, updated_at=now.isoformat()), now)
    colours = {
        "starting": "cyan", "running": "green", "idle": "green", "paused": "yellow",
        "stalled": "red",
    }  # fmt: skip
    table = Table("what", "value", title=f"Syphon {status.id}")
    state_text = status.state + (f": {seen.problem}" if status.stalled else "")
    table.add("state", cell(state_text, colours.get(status.state, "")))
    table.add("primary", status.primary)
    table.add("secondary", status.secondary)
    table.add("forwarded in all runs", status.forwarded)
    table.add("remaining", status.remaining)
    table.add("in flight", status.in_flight)
    table.add("oldest", duration(status.oldest_age))
    if status.state == "running" and status.rate:
        table.add("rate per second", status.rate)
        table.add("time left", duration(status.eta))
    if status.allowed_rate is not None:
        table.add("allowed per second", status.allowed_rate)
    if status.throttled_by:
        table.add("throttled by", cell(f"the {status.throttled_by}", "yellow"))
    table.add("last progress", parse_time(status.last_progress))
    for reason, number in status.dead_lettered.items():
        table.add("dead-lettered", cell(f"{number:,}: {reason}", "red"))
    if status.ledger_problem:
        table.add("ledger", cell(status.ledger_problem, "red"))
    if status.ledger_dropped_rows:
        table.add("ledger rows dropped", cell(f"{status.ledger_dropped_rows:,}", "red"))
    for wait in seen.waits:
        table.add("waiting", cell(wait, "yellow"))
    for queue in status.uncertain:
        text = f"{queue}: waits until the locks of a lost reader expire, to keep the order"
        table.add("waiting", cell(text, "yellow"))
    queues = Table("queue", ">active", ">dead letters",
                   title="Backlog queues")  # fmt: skip
    for counts in status.queues:
        queues.add(counts.path, counts.active, counts.dead_letters)
    emit(status.to_json(), [table, queues])
    return ExitCode.NEGATIVE if status.state == "stalled" else ExitCode.OK
