"""`pairbus backlog`: the backlog queues in the secondary namespace."""

from collections import Counter
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click

from pairbus.cli.errors import ExitCode, doing, fail
from pairbus.cli.options import pair_options, setting
from pairbus.cli.output import emit, json_option, say
from pairbus.cli.tables import Table, cell
from pairbus.monitoring import backlog_queues
from pairbus.monitoring.endpoints import Pair

if TYPE_CHECKING:
    from pairbus.monitoring.backlog_queues import PeekedMessage
    from pairbus.monitoring.dead_letters import DeadLetter


@click.group("backlog")
def command() -> None:
    """List, create, peek, resubmit and delete backlog queues.

    Backlog queues are in the secondary namespace, NAMESPACE/x-servicebus-transfer/0 and so on. They
    hold the messages that could not be sent to the primary until the syphon forwards them. Messages
    that the syphon cannot deliver are moved to the dead-letter queue of their backlog queue.

    \b
    Example:
      pairbus backlog list --pair orders
    """


def _listing(pair: Pair) -> AbstractContextManager[None]:
    return doing(f"listing the backlog queues of {pair.require_secondary().host}")


@command.command("list")
@json_option
@pair_options
def list_(pair: Pair) -> None:
    """List the backlog queues with their depth and dead letters.

    The list includes queues that the pair does not use, because their number is not below
    backlog_queue_count. `pairbus backlog delete` removes them.

    \b
    Example:
      pairbus backlog list --pair orders
    """
    with _listing(pair):
        found = backlog_queues.find(pair)
    table = Table(
        "queue", ">messages", ">dead letters",
        ">bytes", "used", title=f"Backlog of {pair.primary_namespace}",
        empty=f"no backlog queues of {pair.primary_namespace}; run pairbus pair create",
    )  # fmt: skip
    for queue in found:
        table.add(
            queue.path,
            cell(queue.messages, "yellow" if queue.messages else ""),
            cell(queue.dead_letters, "bold red" if queue.dead_letters else ""),
            queue.size,
            queue.is_used,
        )
    emit(found, table)


@command.command("create")
@json_option
@pair_options
@click.option(
    "--count",
    type=click.IntRange(1, 1000),
    help="Number of backlog queues (default: backlog_queue_count of the pair).",
)
def create(pair: Pair, count: int | None) -> None:
    """Create the backlog queues that are missing.

    `pair_namespace` does the same if its options have `secondary_admin`. Existing queues are not
    changed.

    \b
    Example:
      pairbus backlog create --count 10
    """
    with doing(f"creating the backlog queues in {pair.require_secondary().host}"):
        created, found = backlog_queues.create_missing(pair, count or pair.backlog_queue_count)
    table = Table("queue", "result", title="Backlog queues")
    for path in created:
        table.add(path, cell("created", "green"))
    for path in found:
        table.add(path, "exists")
    emit({"created": created, "found": found}, table)


@command.command("delete")
@pair_options
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--with-messages", is_flag=True, help="Also delete queues that hold messages.")
def delete(pair: Pair, names: tuple[str, ...], yes: bool, with_messages: bool) -> None:
    """Delete the named backlog queues.

    A QUEUE is a number or a path. A queue that holds messages or dead letters is not deleted
    without --with-messages.

    \b
    Example:
      pairbus backlog delete 7 8 9
    """
    with _listing(pair):
        known = {queue.path.lower(): queue for queue in backlog_queues.find(pair)}
    wanted = []
    for path in dict.fromkeys(backlog_queues.resolve(pair, name).lower() for name in names):
        queue = known.get(path)
        if queue is None:
            fail(f"{path} does not exist", "pairbus backlog list")
        held = queue.messages + queue.dead_letters
        if held and not with_messages:
            fail(
                f"{queue.path} holds {queue.messages} messages and {queue.dead_letters} dead "
                "letters; nothing was deleted",
                "drain it with the syphon, or delete the messages too with --with-messages",
            )
        wanted.append(queue.path)
    if not yes:
        listed = ", ".join(wanted)
        _confirm(f"Delete {listed} in {pair.require_secondary().host}?")
    with pair.secondary_admin() as admin:
        for path in wanted:
            with doing(f"deleting {path}"):
                admin.delete_queue(path)
            say(f"deleted {path}")


def _confirm(question: str) -> None:
    try:
        click.confirm(question, abort=True, err=True)
    except (click.Abort, RuntimeError) as exc:  # RuntimeError: the standard input is closed
        if isinstance(exc, click.Abort) and not isinstance(exc.__context__, EOFError):
            raise
        click.echo(err=True)  # after the question
        reason = "nothing was deleted: the standard input has no answer"
        fail(reason, "--yes", code=ExitCode.USAGE)


@command.command("peek")
@json_option
@pair_options
@click.argument("queue", required=False)
@click.option("--dead-letters", is_flag=True, help="Show the dead letters instead.")
@setting("--count", default=20, type=click.IntRange(1, 1000), help="Number of messages.")
@click.option("--from", "start", default=0, help="First sequence number; needs the QUEUE.")
@click.option("--body", is_flag=True, help="Also show the beginning of each body.")
def peek(
    pair: Pair, queue: str | None, dead_letters: bool, count: int, start: int, body: bool
) -> None:
    """Show messages of the backlog without receiving them.

    QUEUE is the number or path of one backlog queue; without it, all backlog queues that hold
    messages are shown. A message whose state is `deferred` waits for its destination; the syphon
    forwards it when the destination accepts messages.

    \b
    Examples:
      pairbus backlog peek --dead-letters
      pairbus backlog peek 0 --body
      pairbus backlog peek contoso/x-servicebus-transfer/3 --json
    """
    if start and queue is None:
        fail("--from needs the QUEUE", "pairbus backlog peek 0 --from 17", code=ExitCode.USAGE)
    found: list[PeekedMessage] = []
    for path in _holding(pair, queue, dead_letters=dead_letters):
        with doing(f"peeking {path}"):
            found += backlog_queues.peek(
                pair, path, count=count - len(found), start=start, dead_letters=dead_letters,
                with_body=body,
            )  # fmt: skip
        if len(found) == count:
            break
    kind = "dead letters" if dead_letters else "messages"
    where = f"the backlog of {pair.primary_namespace}"
    title = f"Backlog of {pair.primary_namespace}"
    if queue is not None:
        where = title = backlog_queues.resolve(pair, queue)
    columns: list[str] = ["queue"] if queue is None else []
    columns += [
        ">sequence", "destination", "message id", "session", "enqueued",
        ">bytes",
    ]  # fmt: skip
    columns += ["reason", "description"] if dead_letters else ["state"]
    columns += ["body"] if body else []
    table = Table(*columns, title=title, empty=f"{where} has no {kind}")
    for m in found:
        table.add(
            *([m.queue] if queue is None else []),
            m.sequence_number, m.destination, m.message_id, m.session_id, m.enqueued_at, m.size,
            *([m.reason, m.description] if dead_letters else [m.state]),
            *([m.body] if body else []),
        )  # fmt: skip
    emit(found, table)


def _holding(pair: Pair, queue: str | None, *, dead_letters: bool) -> list[str]:
    """Return the path of the named queue; without a name, those of the queues with messages."""
    if queue is not None:
        return [backlog_queues.resolve(pair, queue)]
    with _listing(pair):
        found = backlog_queues.find(pair)
    return [one.path for one in found if (one.dead_letters if dead_letters else one.messages)]


@command.command("resubmit", short_help="Put dead letters back, to be forwarded again.")
@json_option
@pair_options
@click.argument("queue", required=False)
@click.option(
    "--sequence",
    "sequences",
    multiple=True,
    type=int,
    help="Only the dead letter with this sequence number; repeatable.",
)
@click.option(
    "--destination",
    "destinations",
    multiple=True,
    help="Only dead letters for this entity; repeatable.",
)
@click.option(
    "--reason", "reasons", multiple=True, help="Only dead letters with this reason; repeatable."
)
@click.option("--all", "everything", is_flag=True, help="All dead letters.")
@click.option("--dry-run", is_flag=True, help="Show the selected dead letters; change nothing.")
def resubmit(
    pair: Pair,
    queue: str | None,
    sequences: tuple[int, ...],
    destinations: tuple[str, ...],
    reasons: tuple[str, ...],
    everything: bool,
    dry_run: bool,
) -> ExitCode:
    """Put dead letters back into their backlog queue, so that the syphon forwards them.

    QUEUE is the number or path of one backlog queue; without it, all backlog queues of the pair are
    searched. Remove the cause first: `pairbus backlog peek --dead-letters` shows the reasons.
    A dead letter is removed only after the backlog queue has confirmed its copy. If the command is
    interrupted, no message is lost; run it again.

    \b
    Examples:
      pairbus backlog resubmit --destination orders --reason DestinationNotFound --dry-run
      pairbus backlog resubmit --destination orders
      pairbus backlog resubmit 0 --sequence 17
      pairbus backlog resubmit --all
    """
    chosen = bool(sequences or destinations or reasons)
    if chosen == everything:
        hint = "--destination NAME, --reason REASON, --sequence N, or --all"
        fail("no dead letters are selected, or both --all and a filter are given", hint,
             code=ExitCode.USAGE)  # fmt: skip
    if sequences and queue is None:
        fail("--sequence needs the QUEUE", "pairbus backlog resubmit 0 --sequence 17",
             code=ExitCode.USAGE)  # fmt: skip
    from pairbus.monitoring import dead_letters

    secondary = pair.require_secondary()
    paths = _holding(pair, queue, dead_letters=True)
    with doing(f"reading dead letters of {secondary.host}"):
        letters = dead_letters.select(
            dead_letters.find(secondary, paths),
            destinations=destinations,
            reasons=reasons,
            sequence_numbers=sequences,
        )
    missing = sorted(set(sequences) - {letter.sequence_number for letter in letters})
    done: dict[str, list[int]] = {}
    for path in paths if not dry_run else ():
        wanted = [letter.sequence_number for letter in letters if letter.queue == path]
        if wanted:
            with doing(f"resubmitting dead letters of {path}"):
                done[path] = dead_letters.resubmit(secondary, path, wanted)
    return _show_resubmitted(letters, done, missing, dry_run=dry_run)


def _show_resubmitted(
    letters: "list[DeadLetter]", done: dict[str, list[int]], missing: list[int], *, dry_run: bool
) -> ExitCode:
    groups = Counter((one.destination or "(none)", one.reason or "(none)") for one in letters)
    table = Table(
        "destination", "reason", ">dead letters", title="Dead letters",
        empty="no dead letter matches",
    )  # fmt: skip
    for (destination, reason), count in sorted(groups.items()):
        table.add(destination, reason, count)
    moved = sum(map(len, done.values()))
    left = len(letters) - moved
    if missing:
        say(f"not found: {', '.join(map(str, missing))}")
    if dry_run:
        say(f"{len(letters)} would be put back; nothing was changed")
    else:
        for path, numbers in done.items():
            say(f"{len(numbers)} back in {path}")
        if left:
            say(f"{left} could not be put back: they are gone, or locked by another process")
    counts = [
        {"destination": destination, "reason": reason, "messages": count}
        for (destination, reason), count in sorted(groups.items())
    ]
    emit({"dry_run": dry_run, "groups": counts, "resubmitted": done, "not_found": missing}, table)
    return ExitCode.NEGATIVE if missing or (left and not dry_run) else ExitCode.OK
