"""Creates and removes the queue and the messages of a drill.

A canary queue in the primary is named `pairbus-drill-` and eight hexadecimal digits, and deletes
itself after an hour without use. Every message of a drill has an id that begins with that name, so
that it can be found in a backlog queue and removed, even after a drill that was killed.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pairbus.client.errors import ClientError
from pairbus.envelope.fields import peek_aliases
from pairbus.monitoring.endpoints import Pair
from pairbus.names import backlog_paths
from pairbus.syphon.rows import as_text

PREFIX = "pairbus-drill-"
LIFETIME = timedelta(hours=1)
_NAME = re.compile(re.escape(PREFIX) + r"[0-9a-f]{8}\Z")
PAGE = 250
MOST_OTHERS = 1000  # messages of applications that a clean-up locks for a moment, at most


def is_canary(name: str) -> bool:
    """Whether a queue of this name was made by a drill."""
    return bool(_NAME.match(name))


def create(pair: Pair, name: str) -> None:
    """Create a canary queue in the primary."""
    with pair.primary_admin() as admin:
        admin.create_queue(
            name,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=LIFETIME,
            auto_delete_on_idle=LIFETIME,
            lock_duration=timedelta(minutes=1),
        )


@dataclass
class Removed:
    """The queues and messages that a clean-up removed, and those that it left, with the reason."""

    queues: list[str] = field(default_factory=list)
    messages: int = 0
    left: list[str] = field(default_factory=list)


def clean(pair: Pair, run: str = PREFIX, *, has_queues: bool = True) -> Removed:
    """Remove messages and canary queues of drills; all of them, or those of one run.

    Args:
        pair: the pair.
        run: prefix of the names of canary queues and of message ids.
        has_queues: there may be canary queues; to find them takes the right Manage.
    """
    removed = Removed()
    with pair.require_secondary().bulk_connection() as connection:
        for path in backlog_paths(pair.primary_namespace.lower(), pair.backlog_queue_count):
            try:
                _clean_queue(connection, path, run, removed)
            except ClientError as exc:
                if str(exc.condition) != "amqp:not-found":
                    removed.left.append(f"messages in {path}: {exc}")
    if not has_queues:
        return removed
    from azure.core.exceptions import ResourceNotFoundError

    with pair.primary_admin() as admin:
        for queue in list(admin.list_queues()):
            if is_canary(queue.name) and queue.name.startswith(run):
                with contextlib.suppress(ResourceNotFoundError):  # it may just have deleted itself
                    admin.delete_queue(queue.name)
                removed.queues.append(queue.name)
    return removed


def _clean_queue(connection: Any, path: str, run: str, removed: Removed) -> None:
    """Remove the drill's messages from one backlog queue; release the others."""
    mine, others = count(connection, path, run)
    if not mine:
        return
    if others > MOST_OTHERS:
        removed.left.append(f"{mine} messages in {path}, among {others:,} of applications")
        return
    receiver = connection.receiver(path)
    held: list[Any] = []
    try:
        while mine > 0 and (got := receiver.receive_now(PAGE)):
            own = [one for one in got if belongs(one, run)]
            held += [one for one in got if not belongs(one, run)]
            if own:
                receiver.complete(own)
            mine -= len(own)
            removed.messages += len(own)
    finally:
        if held:
            receiver.release(held)
        receiver.close()
    if mine > 0:
        removed.left.append(f"{mine} messages in {path}, which a syphon has locked")


def count(connection: Any, path: str, run: str) -> tuple[int, int]:
    """Return how many messages of the drill, and how many others, are in a backlog queue."""
    mine = others = 0
    for page in connection.management(path).peek_pages(PAGE):
        own = sum(belongs(one, run) for one in page)
        mine, others = mine + own, others + len(page) - own
        if others > MOST_OTHERS:
            break
    return mine, others


def message_id(received: Any) -> str:
    """Return the message id of a message that the bulk client received."""
    properties = received.message.properties
    return as_text(properties.message_id) or "" if properties is not None else ""


def belongs(received: Any, run: str) -> bool:
    """Whether a message in a backlog queue is one of the drill's."""
    destination, _ = peek_aliases(received.message.application_properties)
    return message_id(received).startswith(run) or (destination or "").startswith(run)
