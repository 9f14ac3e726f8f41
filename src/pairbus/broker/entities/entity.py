"""Entities: a description, and the queues that hold its messages."""

from __future__ import annotations

from dataclasses import replace

from pairbus.broker.entities.context import Context
from pairbus.broker.entities.credits import MESSAGE
from pairbus.broker.entities.dedup import History
from pairbus.broker.entities.messages import NEVER
from pairbus.broker.entities.model import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.rules import RuleSet
from pairbus.broker.entities.sessions import SessionQueue
from pairbus.broker.entities.settings import Settings, settings_of

DEAD_LETTER = "$DeadLetterQueue"
TRANSFER_DEAD_LETTER = "$Transfer/$DeadLetterQueue"
OVERHEAD = 256  # bytes that each message counts against a quota in addition to its size
PARTS = 4  # queue numbers that an entity has: its own, dead letters, transfer dead letters, spare


class DeadLetterQueue(Queue):
    """Messages stay until they are received: no time to live, no delivery limit."""

    is_dead_letter = True


class _Entity:
    """The base of queues, topics and subscriptions.

    Attributes:
        main: its own queue.
        queues: its own queue, the dead letters and the transfer dead letters; a topic has only
            its own, for scheduled messages.
        subscriptions: those of a topic, by name in lower case.
        watched_idle: the idle time for which a timer was set last.
    """

    description: EntityDescription
    queues: tuple[Queue, ...]

    def __init__(self, context: Context, entity_id: int, path: str, settings: Settings, now: int):
        self.entity_id = entity_id
        self.path = path
        self.settings = settings
        self.created = now
        self.updated = now
        self.subscriptions: dict[str, QueueEntity] = {}
        self.is_deleted = False
        self.watched_idle = NEVER
        self.history: History | None = None
        if window := settings.duplicate_window:
            self.history = History(context, entity_id, window, partitioned=settings.partitioned)
        kind = SessionQueue if settings.requires_session else Queue
        self.main = kind(context, entity_id * PARTS, path, settings)

    @property
    def accessed(self) -> int:
        """When a client last sent or received here."""
        return max(self.created, *(queue.accessed for queue in self.queues))

    @property
    def size(self) -> int:
        """Bytes of all messages: with dead letters, and those of a topic's subscriptions."""
        own = sum(queue.store.size for queue in self.queues)
        return own + sum(subscription.size for subscription in self.subscriptions.values())

    @property
    def send_credits(self) -> int:
        """Credits of a message sent here: one, and one for each filter evaluated for it."""
        credits = MESSAGE
        for subscription in self.subscriptions.values():
            credits += MESSAGE * len(subscription.rules.rules)
        return credits

    @property
    def weight(self) -> int:
        """Bytes that count against the quota: the size, and an overhead for each message."""
        size = count = 0
        for queue in self.queues:
            store = queue.store
            size += store.size
            count += len(store.messages)
        size += OVERHEAD * count
        if self.subscriptions:
            size += sum(subscription.weight for subscription in self.subscriptions.values())
        return size

    def configure(self, description: EntityDescription, now: int) -> None:
        """Apply a new description."""
        self.description = description
        self.settings = settings_of(description)
        self.updated = now
        if self.history is not None:
            self.history.window = self.settings.duplicate_window
        self.main.configure(self.settings, now)

    def idle_since(self) -> int:
        """When this entity was used last; NEVER while it is in use.

        A scheduled message, a forwarding target and a receiver keep it in use, and the use of a
        subscription is a use of its topic.
        """
        is_used = self.settings.forward_to is not None or self.main.store.scheduled_count > 0
        if is_used or any(queue.receivers for queue in self.queues):
            return NEVER
        subscriptions = (subscription.idle_since() for subscription in self.subscriptions.values())
        return max(self.accessed, self.updated, *subscriptions)


class QueueEntity(_Entity):
    """A queue or a subscription, with its dead-letter queues."""

    description: QueueDescription | SubscriptionDescription

    def __init__(
        self,
        context: Context,
        entity_id: int,
        description: QueueDescription | SubscriptionDescription,
        now: int,
        topic: TopicEntity | None = None,
    ) -> None:
        path = description.path
        super().__init__(context, entity_id, path, settings_of(description), now)
        self.description = description
        self.topic = topic
        self.rules = RuleSet()
        dead, transfer_dead = _dead_letter_settings(self.settings)
        first = self.main.store.queue_id
        self.dead = DeadLetterQueue(context, first + 1, f"{path}/{DEAD_LETTER}", dead)
        self.transfer_dead = DeadLetterQueue(
            context, first + 2, f"{path}/{TRANSFER_DEAD_LETTER}", transfer_dead
        )
        self.queues = (self.main, self.dead, self.transfer_dead)
        for queue in self.queues:
            queue.owner = self

    def configure(self, description: EntityDescription, now: int) -> None:
        """Apply a new description."""
        super().configure(description, now)
        dead, transfer_dead = _dead_letter_settings(self.settings)
        self.dead.configure(dead, now)
        self.transfer_dead.configure(transfer_dead, now)


class TopicEntity(_Entity):
    """A topic: messages are copied to its subscriptions; only scheduled ones are stored here."""

    description: TopicDescription

    def __init__(
        self, context: Context, entity_id: int, description: TopicDescription, now: int
    ) -> None:
        super().__init__(context, entity_id, description.name, settings_of(description), now)
        self.description = description
        self.queues = (self.main,)
        self.main.owner = self


Entity = QueueEntity | TopicEntity


def _dead_letter_settings(settings: Settings) -> tuple[Settings, Settings]:
    """The settings of the dead letters and of the transfer dead letters of an entity."""
    transfer_dead = Settings(lock_duration=settings.lock_duration, can_receive=settings.can_receive)
    return replace(transfer_dead, forward_to=settings.forward_dead_letters_to), transfer_dead
