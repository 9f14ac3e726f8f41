"""The backlog queues of a pair: find, create, compare, peek.

Paths and properties are those of the specification of paired namespaces: an operator who creates
the queues by hand gets the same queues as `pair_namespace` creates.
"""

import dataclasses
import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pairbus.envelope.fields import peek_aliases
from pairbus.monitoring.endpoints import ConfigurationError, Pair
from pairbus.names import (
    backlog_path,
    backlog_prefix,
    parse_backlog_path,
    reply_queue_path,
    sort_backlog_queues,
)
from pairbus.status import PairStatus
from pairbus.syphon.status_records import SyphonStatus

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

PEEK_PAGE = 250
BODY_SHOWN = 200


@dataclasses.dataclass(frozen=True)
class BacklogQueue:
    """One backlog queue, as the secondary reports it."""

    path: str
    is_used: bool  # its number is below the pair's backlog_queue_count
    messages: int
    dead_letters: int
    size: int


@dataclasses.dataclass(frozen=True)
class PeekedMessage:
    """A message of a backlog queue or of its dead-letter queue."""

    queue: str
    sequence_number: int | None
    destination: str | None
    message_id: str | None
    session_id: str | None
    enqueued_at: dt.datetime | None
    size: int
    state: str = "active"  # or deferred: it waits for its destination
    reason: str | None = None
    description: str | None = None
    body: str | None = None


def path_of(pair: Pair, number: int) -> str:
    """Return the path of a backlog queue."""
    return backlog_path(pair.primary_namespace.lower(), number)


def resolve(pair: Pair, queue: str) -> str:
    """Return the path of a queue that is named by its number or path.

    Raises:
        ConfigurationError: it is not a backlog queue of this pair.
    """
    prefix = backlog_prefix(pair.primary_namespace.lower())
    if queue.isdigit():
        return path_of(pair, int(queue))
    backlog = parse_backlog_path(queue)
    if backlog is None or backlog[0].lower() != pair.primary_namespace.lower():
        raise ConfigurationError(
            f"{queue} is not a backlog queue of {pair.primary_namespace}",
            f"a number, or a path such as {prefix}0",
        )
    return queue


def find(pair: Pair) -> list[BacklogQueue]:
    """Return all backlog queues of the primary in the secondary, by number, unused ones too."""
    with pair.secondary_admin() as admin:
        queues = admin.list_queues_runtime_properties()
        return [
            BacklogQueue(
                queue.name,
                number < pair.backlog_queue_count,
                queue.active_message_count or 0,
                queue.dead_letter_message_count or 0,
                queue.size_in_bytes or 0,
            )
            for number, queue in sort_backlog_queues(pair.primary_namespace, queues)
        ]


def create_missing(
    pair: Pair, count: int, *, drain_first: bool = False
) -> tuple[list[str], list[str]]:
    """Create the backlog queues that are missing; return the paths created and those found.

    Args:
        pair: the pair.
        count: how many backlog queues.
        drain_first: create the reply queue, too, which `recovery="drain_first"` needs.
    """
    from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError

    from pairbus.pairing._sync.backlog_queues import QUEUE_PROPERTIES, REPLY_QUEUE_PROPERTIES

    created, found = [], []
    wanted = {path_of(pair, number): QUEUE_PROPERTIES for number in range(count)}
    if drain_first:
        wanted[reply_queue_path(pair.primary_namespace.lower())] = REPLY_QUEUE_PROPERTIES
    with pair.secondary_admin() as admin:
        for path, properties in wanted.items():
            try:
                admin.get_queue(path)
                found.append(path)
                continue
            except ResourceNotFoundError:
                pass
            try:
                admin.create_queue(path, **properties)
                created.append(path)
            except ResourceExistsError:  # created by another process in between
                found.append(path)
    return created, found


def differences(pair: Pair, paths: list[str]) -> dict[str, list[str]]:
    """Return the properties of existing queues that differ from those pairbus would set."""
    with pair.secondary_admin() as admin:
        backlog = [path for path in paths if parse_backlog_path(path)]
        return {path: wrong for path in backlog if (wrong := _differences(admin, path))}


def draining_clients(statuses: Sequence[PairStatus | SyphonStatus], entity: str) -> list[str]:
    """Return the ids of the clients that report that an entity is draining."""
    return [
        status.client_id
        for status in statuses
        if isinstance(status, PairStatus)
        for one in status.entities
        if one.phase == "draining" and one.entity.lower() == entity.lower()
    ]


def end_draining(pair: Pair, entity: str, client_ids: Sequence[str]) -> None:
    """Ask clients to send to the primary although their backlog is not delivered yet."""
    from pairbus.pairing.fences import release_message

    path = reply_queue_path(pair.primary_namespace.lower())
    with (
        pair.secondary_client(retry_total=1) as client,
        client.get_queue_sender(path) as sender,
    ):
        for client_id in client_ids:
            sender.send_messages(release_message(entity, client_id))


def _differences(admin: "ServiceBusAdministrationClient", path: str) -> list[str]:
    from pairbus.pairing._sync.backlog_queues import MAX_DURATION, QUEUE_PROPERTIES

    queue = admin.get_queue(path)
    wrong = [
        f"{name} is {getattr(queue, name)}, not {wanted}"
        for name, wanted in QUEUE_PROPERTIES.items()
        if wanted != MAX_DURATION and getattr(queue, name) != wanted
    ]
    if queue.requires_session:
        wrong.append("requires_session is set: the syphon cannot read it")
    return wrong


def peek(
    pair: Pair,
    path: str,
    *,
    count: int,
    start: int = 0,
    dead_letters: bool = False,
    with_body: bool = False,
) -> list[PeekedMessage]:
    """Return up to `count` messages of a backlog queue, from sequence number `start` on."""
    kind: dict[str, Any] = {"sub_queue": "deadletter"} if dead_letters else {}
    found: list[PeekedMessage] = []
    with (
        pair.secondary_client(retry_total=1) as client,
        client.get_queue_receiver(path, **kind) as receiver,
    ):
        while len(found) < count:
            page = receiver.peek_messages(
                max_message_count=min(count - len(found), PEEK_PAGE), sequence_number=start
            )
            if not page:
                break
            found += [_peeked(path, message, with_body) for message in page]
            start = (page[-1].sequence_number or 0) + 1
    return found


def _peeked(path: str, message: Any, with_body: bool) -> PeekedMessage:
    destination, session_id = peek_aliases(message.application_properties)
    body = b"".join(message.body) if message.body_type.name == "DATA" else b""
    return PeekedMessage(
        queue=path,
        sequence_number=message.sequence_number,
        destination=destination,
        message_id=message.message_id,
        session_id=session_id,
        enqueued_at=message.enqueued_time_utc,
        size=len(body),
        state=message.state.name.lower(),
        reason=message.dead_letter_reason,
        description=message.dead_letter_error_description,
        body=body[:BODY_SHOWN].decode("utf-8", "replace") if with_body else None,
    )
