"""Which messages of the drill have arrived, and which are still in the backlog.

The drill receives from its canary queue. It only peeks a queue of the user, because the messages
there are for other consumers: a message that left the backlog and is not in the queue was received
by one of them.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pairbus.client import BulkConnection
from pairbus.client.errors import ClientError
from pairbus.drill.canary import PAGE, belongs, message_id
from pairbus.monitoring.endpoints import Pair
from pairbus.names import backlog_paths


class Arrivals:
    """The messages of one drill, at their destinations and in the backlog.

    Each call opens its own connections: the service closes a connection that has had no link for a
    minute, and a syphon may take longer to start.

    Args:
        pair: the pair.
        run: prefix of the message ids, and name of the canary queue.
        entities: the destinations.
    """

    def __init__(self, pair: Pair, run: str, entities: list[str]) -> None:
        self._pair = pair
        self._run = run
        self._entities = entities
        self._seen: dict[tuple[str, int], str] = {}
        self.enqueued: dict[str, float] = {}
        """When the primary took each message, by its own clock."""

    @property
    def counts(self) -> Counter[str]:
        """How often each id arrived."""
        return Counter(self._seen.values())

    def update(self) -> None:
        """Receive from the canary queue, or peek the queues of the user."""
        with self._pair.require_primary().bulk_connection() as primary:
            for entity in self._entities:
                if entity == self._run:
                    self._receive(primary, entity)
                else:
                    with contextlib.suppress(ClientError):  # a topic has nothing to peek
                        self._peek(primary, entity)

    def _receive(self, primary: BulkConnection, entity: str) -> None:
        receiver = primary.receiver(entity)
        while got := receiver.receive_now(PAGE):
            for one in got:
                self._add(entity, one)
            receiver.complete(got)
        receiver.close()

    def _peek(self, primary: BulkConnection, entity: str) -> None:
        for page in primary.management(entity).peek_pages(PAGE):
            for one in page:
                if belongs(one, self._run):
                    self._add(entity, one)

    def _add(self, entity: str, one: Any) -> None:
        name = message_id(one)
        self._seen[entity, one.sequence_number] = name
        if one.enqueued_time is not None:
            self.enqueued[name] = one.enqueued_time / 1000

    def in_backlog(self) -> dict[str, float]:
        """Return the drill's messages in the backlog queues, with the secondary's time of each."""
        return {
            message_id(one): (one.enqueued_time or 0) / 1000
            for one in self._peek_backlog()
            if belongs(one, self._run)
        }

    def others_in_backlog(self) -> int:
        """Return how many messages of applications are in the backlog queues, up to a page each."""
        return sum(not belongs(one, self._run) for one in self._peek_backlog(most=PAGE))

    def _peek_backlog(self, most: int = 1 << 31) -> Iterator[Any]:
        pair = self._pair
        with pair.require_secondary().bulk_connection() as secondary:
            for path in backlog_paths(pair.primary_namespace.lower(), pair.backlog_queue_count):
                count = 0
                for page in secondary.management(path).peek_pages(PAGE):
                    yield from page
                    count += len(page)
                    if count >= most:
                        break
