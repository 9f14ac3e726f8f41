"""`pairbus pair`: pair two namespaces, and show their status."""

import click

from pairbus.cli.errors import ExitCode, doing, fail
from pairbus.cli.options import pair_options
from pairbus.cli.output import emit, json_option
from pairbus.cli.tables import Table, cell
from pairbus.monitoring import backlog_queues
from pairbus.monitoring.endpoints import Pair
from pairbus.monitoring.formatting import brief, duration
from pairbus.monitoring.records import EntityState

COLOURS = {
    "failed_over": "bold red",
    "suspect": "yellow",
    "draining": "cyan",
    "healthy": "green",
}
STATES = {
    "starting": "cyan",
    "running": "green",
    "idle": "green",
    "paused": "yellow",
    "stopped": "dim",
}


@click.group("pair")
def command() -> None:
    """Pair two namespaces, and show their status.

    A pair is a primary namespace, to which an application sends, and a secondary namespace, which
    stores its messages during an outage.

    \b
    Example:
      pairbus pair status --pair orders
    """


@command.command("create", short_help="Create the backlog queues, and check them.")
@json_option
@pair_options
@click.option(
    "--count",
    type=click.IntRange(1, 1000),
    help="Number of backlog queues (default: backlog_queue_count of the pair).",
)
@click.option(
    "--drain-first", is_flag=True, help="Create the reply queue for recovery=drain_first, too."
)
def create(pair: Pair, count: int | None, drain_first: bool) -> None:
    """Create and check the backlog queues in the secondary.

    The command can be repeated. It creates the queues that are missing, as `pair_namespace` does
    with `secondary_admin`, and lists the properties of existing queues that differ. It needs the
    right Manage on the secondary.

    \b
    Example:
      pairbus pair create --pair orders
    """
    primary, secondary = pair.require_primary(), pair.require_secondary()
    if primary.host.lower() == secondary.host.lower():
        fail(
            f"primary and secondary are the same namespace, {primary.host}",
            "a namespace in another region as the secondary",
            code=ExitCode.USAGE,
        )
    with doing(f"creating the backlog queues in {secondary.host}"):
        created, found = backlog_queues.create_missing(
            pair, count or pair.backlog_queue_count, drain_first=drain_first
        )
        different = backlog_queues.differences(pair, found)
    table = Table("queue", "result", "note", title=f"{pair.primary_namespace} → {secondary.host}")
    for path in created:
        table.add(path, cell("created", "green"), "")
    for path in found:
        table.add(path, "exists", cell("; ".join(different.get(path, ())), "yellow"))
    emit({"created": created, "found": found, "differences": different}, table)


@command.command("status", short_help="Show entities, backlog and syphon of a pair.")
@json_option
@pair_options
def status(pair: Pair) -> None:
    """Show entities, backlog and syphon of a pair, as reported by clients and the secondary.

    Clients and syphons report through the ledger: give the paired client the option `ledger`.

    \b
    Example:
      pairbus pair status --pair orders --json
    """
    if not (pair.ledger or pair.secondary):
        pair.require_ledger()
    from pairbus.monitoring.monitor import read_snapshot

    with doing("reading the pair's status"):
        snapshot = read_snapshot(pair)
    entities = Table(
        "entity", "state", "since", "why", "next ping", ">to primary",
        ">to backlog", title="Entities", empty="no client reports now",
    )  # fmt: skip
    for e in snapshot.entities:
        waits = e.next_ping_in
        entities.add(
            e.entity,
            cell(e.phase.replace("_", " "), COLOURS.get(e.phase, "")),
            duration(e.seconds),
            why(e),
            "-" if waits is None else f"in {duration(waits)}",
            e.counts.sent_primary,
            e.counts.sent_backlog,
        )
    backlog = Table(
        "queue", ">messages", ">oldest",
        ">dead letters", "rotation", title="Backlog", empty="no backlog queues",
    )  # fmt: skip
    for q in snapshot.backlog.queues:
        rotation = {True: cell("in"), None: cell(None)}.get(
            q.in_rotation, cell(f"out: {brief(q.reason)}", "yellow")
        )
        backlog.add(
            q.path,
            cell(q.active, "yellow" if q.active else ""),
            duration(q.oldest_age),
            cell(q.dead_letters, "bold red" if q.dead_letters else ""),
            rotation,
        )
    syphons = Table(
        "syphon", "state", ">forwarded", ">remaining", ">per second", "done in", "why",
        title="Syphon", empty="no syphon has reported",
    )  # fmt: skip
    for s in snapshot.syphons:
        is_moving = s.state == "running"
        syphons.add(
            s.id,
            cell(s.state, STATES.get(s.state, "bold red")),
            s.forwarded,
            s.remaining,
            s.rate if is_moving else None,
            duration(s.eta) if is_moving else "-",
            s.problem if s.state in ("stalled", "silent") else None,
        )
    lines = [snapshot.headline, *[f"! {problem}" for problem in snapshot.problems]]
    emit(snapshot, ["\n".join(lines), entities, backlog, syphons])


def why(entity: EntityState) -> str | None:
    """Return why an entity is in its state, in a few words."""
    if entity.overdue_fences:
        return f"no answer to the fence in {', '.join(entity.overdue_fences)}"
    return brief(entity.last_error) if entity.phase not in ("healthy", "draining") else None


@command.command("end-draining", short_help="Stop waiting for the fences of an entity.")
@json_option
@pair_options
@click.argument("entity")
@click.option("--client-id", "ids", multiple=True, metavar="ID", help="Only this client.")
def end_draining(pair: Pair, entity: str, ids: tuple[str, ...]) -> None:
    """Let clients send to the primary although their backlog for ENTITY is not delivered yet.

    With recovery="drain_first" a client waits until the syphon has answered its fences. If a fence
    is not answered (no syphon runs, or the fence was dead-lettered), this command ends the wait.
    Messages may then overtake those that are still in the backlog. Clients are found through the
    ledger, or named with --client-id. It needs the right Send on the reply queue.

    \b
    Example:
      pairbus pair end-draining orders --pair orders
    """
    waiting = list(ids)
    if not waiting:
        from pairbus.monitoring.sources import read_statuses

        ledger = pair.require_ledger()
        with doing("reading the clients' status"):
            waiting = backlog_queues.draining_clients(read_statuses(ledger), entity)
    if not waiting:
        fail(f"no client reports that {entity} is draining", "--client-id")
    with doing(f"writing to the reply queue of {pair.require_secondary().host}"):
        backlog_queues.end_draining(pair, entity, waiting)
    table = Table("client", title=f"{entity}: clients that now send to the primary")
    for client_id in waiting:
        table.add(client_id)
    emit({"entity": entity, "clients": waiting}, table)
