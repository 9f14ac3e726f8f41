"""Which messages of the drill have arrived, and what remains in the backlog.

From its canary queue the drill receives. From a queue of the user it only peeks, because other
consumers have a right to the messages: one that left the backlog and is not seen there was received
by them.
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

    Each look opens connections of its own: the service closes one that has had no link for a
    minute, and a syphon may take longer to start.

    Args:
        pair: the pair.
        run: beginning of the message ids, and the name of the canary queue.
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

    def look(self) -> None:
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
                self._note(entity, one)
            receiver.complete(got)
        receiver.close()

    def _peek(self, primary: BulkConnection, entity: str) -> None:
        for page in primary.management(entity).peek_pages(PAGE):
            for one in page:
                if belongs(one, self._run):
                    self._note(entity, one)

    def _note(self, entity: str, one: Any) -> None:
        name = message_id(one)
        self._seen[entity, one.sequence_number] = name
        if one.enqueued_time is not None:
            self.enqueued[name] = one.enqueued_time / 1000

    def in_backlog(self) -> dict[str, float]:
        """Return the drill's messages in the backlog queues, with the secondary's time of each."""
        found: dict[str, float] = {}
        for path, one in self._peek_backlog():
            del path
            if belongs(one, self._run):
                found[message_id(one)] = (one.enqueued_time or 0) / 1000
        return found

    def others_in_backlog(self) -> int:
        """Return how many messages of applications are in the backlog queues, up to a page each."""
        return sum(not belongs(one, self._run) for _, one in self._peek_backlog(most=PAGE))

    def _peek_backlog(self, most: int = 1 << 31) -> Iterator[tuple[str, Any]]:
        pair = self._pair
        with pair.require_secondary().bulk_connection() as secondary:
            for path in backlog_paths(pair.primary_namespace.lower(), pair.backlog_queue_count):
                count = 0
                for page in secondary.management(path).peek_pages(PAGE):
                    yield from ((path, one) for one in page)
                    count += len(page)
                    if count >= most:
                        break
