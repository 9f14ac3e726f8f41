"""The entities of a simulated pair: queues, a queue with sessions, and a topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pairbus.broker.entities.model import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.broker.entities.model_properties import EntityStatus
from pairbus.broker.namespace.administration import Administration

SUBSCRIPTION = "all"
SESSIONS = ("s0", "s1")


@dataclass(frozen=True)
class Destination:
    """One entity that messages are sent to.

    Attributes:
        name: its path.
        is_topic: a topic with one subscription; otherwise a queue.
        has_sessions: the queue requires sessions.
        detects: it detects duplicates.
    """

    name: str
    is_topic: bool = False
    has_sessions: bool = False
    detects: bool = False

    @property
    def receiving_path(self) -> str:
        """Where its messages are received from."""
        return f"{self.name}/Subscriptions/{SUBSCRIPTION}" if self.is_topic else self.name

    def sender(self, client: Any) -> Any:
        """A sender of a client of the SDK, or of a paired one."""
        if self.is_topic:
            return client.get_topic_sender(self.name)
        return client.get_queue_sender(self.name)

    # -- administration

    def create(self, admin: Administration) -> None:
        """Create it, with its subscription."""
        if self.is_topic:
            admin.create(TopicDescription(self.name))
            admin.create(SubscriptionDescription(self.name, SUBSCRIPTION))
        else:
            admin.create(
                QueueDescription(
                    self.name,
                    requires_session=self.has_sessions,
                    requires_duplicate_detection=self.detects,
                )
            )

    def exists(self, admin: Administration) -> bool:
        """Whether it exists now."""
        found = admin.list_topics() if self.is_topic else admin.list_queues()
        return any(one.name.lower() == self.name.lower() for one in found)

    def change_status(self, admin: Administration, status: EntityStatus) -> None:
        """Enable or disable it."""
        if self.is_topic:
            admin.update(replace(admin.catalog.topic_entity(self.name).description, status=status))
        else:
            admin.update(replace(admin.catalog.queue_entity(self.name).description, status=status))

    def delete(self, admin: Administration) -> Callable[[Administration], object]:
        """Delete it, and return the function that creates it again with the same properties."""
        if not self.is_topic:
            queue = replace(
                admin.catalog.queue_entity(self.name).description, status=EntityStatus.ACTIVE
            )
            admin.delete_queue(self.name)
            return lambda again: again.create(queue)
        admin.delete(admin.catalog.topic_entity(self.name))
        return self.create


PRIMARY = (
    Destination("orders"),
    Destination("invoices", detects=True),
    Destination("accounts", has_sessions=True),
    Destination("events", is_topic=True),
)
"""The entities of the primary."""
