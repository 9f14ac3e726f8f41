"""`pairbus backlog`: the backlog queues in the secondary namespace."""

from typing import Any

import click

from pairbus.cli import queues
from pairbus.cli.output import (
    Column,
    ExitCode,
    Table,
    cell,
    doing,
    emit,
    fail,
    json_option,
    say,
)
from pairbus.monitoring.configuration import Pair, pair_options


@click.group("backlog")
def group() -> None:
    """List, create, peek, resubmit and delete backlog queues.

    Backlog queues are in the secondary namespace, NAMESPACE/x-servicebus-transfer/0 and so on. They
    keep what could not be sent to the primary, until the syphon brings it home. Those that it could
    not deliver are their dead letters.

    \b
    Example:
      pairbus backlog list --pair orders
    """


@group.command("list")
@json_option
@pair_options
def list_(pair: Pair) -> None:
    """List the backlog queues with their depth and dead letters.

    Queues that the pair does not use (their number is not below backlog_queue_count) are listed
    too: `pairbus backlog delete` removes those that you name.

    \b
    Example:
      pairbus backlog list --pair orders
    """
    found = queues.find(pair)
    table = Table(
        "queue", Column("messages", right=True), Column("dead letters", right=True),
        Column("bytes", right=True), "used", title=f"Backlog of {pair.primary_namespace}",
        empty=f"no backlog queues of {pair.primary_namespace}; pairbus backlog create makes them",
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


@group.command("create")
@json_option
@pair_options
@click.option("--count", type=click.IntRange(1, 1000), help="How many (default: the pair's).")
def create(pair: Pair, count: int | None) -> None:
    """Create the backlog queues that are missing.

    `pair_namespace` does the same when an application starts. A queue that exists is left as it is.

    \b
    Example:
      pairbus backlog create --count 10
    """
    created, found = queues.create_missing(pair, count or pair.backlog_queue_count)
    table = Table("queue", "was", title="Backlog queues")
    for path in created:
        table.add(path, cell("created", "green"))
    for path in found:
        table.add(path, "there")
    emit({"created": created, "found": found}, table)


@group.command("delete")
@pair_options
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--with-messages", is_flag=True, help="Delete a queue that holds messages, too.")
def delete(pair: Pair, names: tuple[str, ...], yes: bool, with_messages: bool) -> None:
    """Delete the backlog queues that are named, and no others.

    A QUEUE is a number or a path. One that holds messages or dead letters is refused.

    \b
    Example:
      pairbus backlog delete 7 8 9
    """
    known = {queue.path.lower(): queue for queue in queues.find(pair)}
    wanted = []
    for name in names:
        queue = known.get(queues.resolve(pair, name).lower())
        if queue is None:
            fail(f"{queues.resolve(pair, name)} does not exist", "pairbus backlog list")
        held = queue.messages + queue.dead_letters
        if held and not with_messages:
            fail(
                f"{queue.path} holds {queue.messages} messages and {queue.dead_letters} dead "
                "letters; nothing was deleted",
                "drain it with the syphon, or --with-messages to lose them",
            )
        wanted.append(queue.path)
    if not yes:
        listed = ", ".join(wanted)
        click.confirm(f"Delete {listed} in {pair.require_secondary().host}?", abort=True, err=True)
    with pair.secondary_admin() as admin:
        for path in wanted:
            with doing(f"deleting {path}"):
                admin.delete_queue(path)
            say(f"deleted {path}")


@group.command("peek")
@json_option
@pair_options
@click.argument("queue")
@click.option("--dead-letters", is_flag=True, help="Peek the dead letters instead.")
@click.option("--count", default=20, show_default=True, type=click.IntRange(1, 1000),
              help="How many messages.")  # fmt: skip
@click.option("--from", "start", default=0, help="Sequence number to begin with.")
@click.option("--body", is_flag=True, help="Show the beginning of the bodies, too.")
def peek(pair: Pair, queue: str, dead_letters: bool, count: int, start: int, body: bool) -> None:
    """Look at messages of a backlog QUEUE without taking them.

    \b
    Examples:
      pairbus backlog peek 0
      pairbus backlog peek contoso/x-servicebus-transfer/3 --dead-letters --json
    """
    path = queues.resolve(pair, queue)
    rows: list[dict[str, Any]] = []
    with doing(f"peeking {path}"), pair.secondary_client(retry_total=1) as client:
        kind: dict[str, Any] = {"sub_queue": "deadletter"} if dead_letters else {}
        with client.get_queue_receiver(path, **kind) as receiver:
            while len(rows) < count:
                page = receiver.peek_messages(
                    max_message_count=min(count - len(rows), 250), sequence_number=start
                )
                if not page:
                    break
                rows += [describe(message, body) for message in page]
                start = (page[-1].sequence_number or 0) + 1
    columns: list[str | Column] = [
        Column("sequence", right=True), "destination", "message id", "session", "enqueued",
        Column("bytes", right=True),
    ]  # fmt: skip
    columns += ["reason"] if dead_letters else []
    columns += ["body"] if body else []
    table = Table(*columns, title=path, empty=f"{path} has none")
    for row in rows:
        table.add(*[value for name, value in row.items() if name != "description"])
    emit(rows, table)


def describe(message: Any, with_body: bool) -> dict[str, Any]:
    """A peeked message for people: where it goes and why it is here."""
    properties = {
        key.decode() if isinstance(key, bytes) else key: value
        for key, value in (message.application_properties or {}).items()
    }

    def text(name: str) -> str | None:
        value = properties.get(name)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    body = b"".join(message.body) if message.body_type.name == "DATA" else b""
    row = {
        "sequence_number": message.sequence_number,
        "destination": text("x-ms-path"),
        "message_id": message.message_id,
        "session_id": text("x-ms-sessionid"),
        "enqueued_at": message.enqueued_time_utc,
        "size": len(body),
    }
    if message.dead_letter_reason or message.dead_letter_error_description:
        row["reason"] = message.dead_letter_reason
        row["description"] = message.dead_letter_error_description
    if with_body:
        row["body"] = body[:200].decode("utf-8", "replace")
    return row


@group.command("resubmit", short_help="Put dead letters back, to be tried again.")
@json_option
@pair_options
@click.argument("queue")
@click.option("--sequence", "sequences", multiple=True, type=int, help="Only this one; repeat.")
@click.option("--all", "everything", is_flag=True, help="All dead letters.")
def resubmit(pair: Pair, queue: str, sequences: tuple[int, ...], everything: bool) -> None:
    """Put dead letters of a backlog QUEUE back into it, so that the syphon tries them again.

    Mend the cause first: `pairbus backlog peek QUEUE --dead-letters` shows the reasons. A dead
    letter is removed only after its copy was taken.

    \b
    Examples:
      pairbus backlog resubmit 0 --sequence 17
      pairbus backlog resubmit 0 --all
    """
    if bool(sequences) == everything:
        fail("say which dead letters", "--sequence N, or --all", code=ExitCode.USAGE)
    path = queues.resolve(pair, queue)
    from pairbus.cli.resubmit import resubmit as put_back

    with doing(f"resubmitting dead letters of {path}"):
        done, missing = put_back(pair.require_secondary(), path, set(sequences) or None)
    if missing:
        say(f"not found: {', '.join(map(str, missing))}")
    say(f"{len(done)} back in {path}")
    emit({"queue": path, "resubmitted": done, "not_found": missing})
    if missing:
        raise click.exceptions.Exit(ExitCode.NEGATIVE)
