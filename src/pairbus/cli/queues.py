"""The backlog queues of a pair, for the commands: find, create, check, delete.

Paths and properties are those of the specification of paired namespaces: an operator who creates
the queues by hand gets what `pair_namespace` would create.
"""

import dataclasses
from typing import TYPE_CHECKING

from pairbus.cli.output import ExitCode, doing, fail
from pairbus.monitoring.configuration import Pair
from pairbus.monitoring.sources import queue_number
from pairbus.pairing.core.rotation import backlog_path

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient


@dataclasses.dataclass(frozen=True)
class BacklogQueue:
    """One backlog queue, as the secondary tells it."""

    path: str
    is_used: bool  # its number is below the pair's backlog_queue_count
    messages: int
    dead_letters: int
    size: int


def path_of(pair: Pair, number: int) -> str:
    """The path of a backlog queue."""
    return backlog_path(pair.primary_namespace.lower(), number)


def resolve(pair: Pair, queue: str) -> str:
    """A queue as the user names it: its number, or its path; only backlog queues of this pair."""
    prefix = path_of(pair, 0)[:-1]
    if queue.isdigit():
        return prefix + str(int(queue))
    number = queue.lower().removeprefix(prefix)
    if queue.lower() == number or not number.isdigit():
        fail(
            f"{queue} is not a backlog queue of {pair.primary_namespace}",
            f"a number, or a path such as {prefix}0",
            code=ExitCode.USAGE,
        )
    return queue


def find(pair: Pair) -> list[BacklogQueue]:
    """All backlog queues of the pair's primary in the secondary, by number, extra ones too."""
    prefix = path_of(pair, 0)[:-1]
    found = []
    what = f"listing the backlog queues of {pair.require_secondary().host}"
    with doing(what), pair.secondary_admin() as admin:
        for queue in admin.list_queues_runtime_properties():
            name = queue.name or ""
            if not name.lower().startswith(prefix):
                continue
            number = queue_number(name)[0]
            found.append(
                BacklogQueue(
                    name,
                    number < pair.backlog_queue_count,
                    queue.active_message_count or 0,
                    queue.dead_letter_message_count or 0,
                    queue.size_in_bytes or 0,
                )
            )
    return sorted(found, key=lambda q: queue_number(q.path))


def create_missing(pair: Pair, count: int) -> tuple[list[str], list[str]]:
    """Create the backlog queues that are missing; return the paths created and those found."""
    from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError

    from pairbus.pairing._sync.backlog_queues import QUEUE_PROPERTIES

    created, found = [], []
    with pair.secondary_admin() as admin:
        for number in range(count):
            path = path_of(pair, number)
            with doing(f"creating {path} in {pair.require_secondary().host}"):
                try:
                    admin.get_queue(path)
                    found.append(path)
                    continue
                except ResourceNotFoundError:
                    pass
                try:
                    admin.create_queue(path, **QUEUE_PROPERTIES)
                    created.append(path)
                except ResourceExistsError:  # somebody else was faster
                    found.append(path)
    return created, found


def differences(pair: Pair, paths: list[str]) -> dict[str, list[str]]:
    """Properties of existing queues that are not as pairbus would have created them."""
    with pair.secondary_admin() as admin, doing("reading the properties of the backlog queues"):
        return {path: wrong for path in paths if (wrong := _differences(admin, path))}


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
