"""Entities: a description, and the queues that hold its messages."""

from __future__ import annotations

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
    """The base of queues, topics and subscriptions."""

    description: EntityDescription
    main: Queue

    def __init__(self, context: Context, entity_id: int, settings: Settings, now: int) -> None:
        self.context = context
        self.entity_id = entity_id
        self.settings = settings
        self.created = now
        self.updated = now
        self.history: History | None = None
        self.is_deleted = False
        self.watched_idle = 0  # the idle time for which a timer is set already
        if settings.duplicate_window:
            self.history = History(
                context,
                entity_id,
                settings.duplicate_window,
                partitioned=settings.partitioned,
            )

    @property
    def queues(self) -> tuple[Queue, ...]:
        """All queues of this entity."""
        raise NotImplementedError

    @property
    def accessed(self) -> int:
        """When a client last sent or received here."""
        return max(self.created, *(queue.accessed for queue in self.queues))

    @property
    def size(self) -> int:
        """Bytes of all messages, dead letters included."""
        raise NotImplementedError

    @property
    def send_credits(self) -> int:
        """Credits that a message sent to this entity costs."""
        return MESSAGE

    @property
    def weight(self) -> int:
        """Bytes that count against the quota, including an overhead for each message."""
        raise NotImplementedError

    def configure(self, description: EntityDescription, now: int) -> None:
        """Apply a new description."""
        self.description = description
        self.settings = settings_of(description)
        self.updated = now
        if self.history is not None:
            self.history.window = self.settings.duplicate_window
        self.main.configure(self.settings, now)

    def idle_deadline(self) -> int:
        """When this entity is deleted unless it is used before."""
        if self.settings.idle == NEVER or any(queue.receivers for queue in self.queues):
            return NEVER
        return max(self.accessed, self.updated) + self.settings.idle


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
        settings = settings_of(description)
        super().__init__(context, entity_id, settings, now)
        self.description = description
        self.topic = topic
        self.rules = RuleSet()
        self.path = (
            description.path
            if isinstance(description, SubscriptionDescription)
            else description.name
        )
        kind = SessionQueue if settings.requires_session else Queue
        first = entity_id * PARTS
        self.main = kind(context, first, self.path, settings)
        dead = _dead_letter_settings(settings)
        self.dead = DeadLetterQueue(context, first + 1, f"{self.path}/{DEAD_LETTER}", dead)
        self.transfer_dead = DeadLetterQueue(
            context,
            first + 2,
            f"{self.path}/{TRANSFER_DEAD_LETTER}",
            Settings(lock_duration=settings.lock_duration),
        )
        for queue in self.queues:
            queue.owner = self

    @property
    def queues(self) -> tuple[Queue, ...]:
        """Its own queue, the dead letters and the transfer dead letters."""
        return self.main, self.dead, self.transfer_dead

    @property
    def size(self) -> int:
        """Bytes of all messages, dead letters included."""
        return sum(queue.store.size for queue in self.queues)

    @property
    def weight(self) -> int:
        """Bytes that count against the quota, including an overhead for each message."""
        main, dead, transfer = self.main.store, self.dead.store, self.transfer_dead.store
        count = len(main.messages) + len(dead.messages) + len(transfer.messages)
        return main.size + dead.size + transfer.size + OVERHEAD * count

    def configure(self, description: EntityDescription, now: int) -> None:
        """Apply a new description."""
        super().configure(description, now)
        self.dead.configure(_dead_letter_settings(self.settings), now)


class TopicEntity(_Entity):
    """A topic: messages are copied to its subscriptions; only scheduled ones are stored here."""

    description: TopicDescription

    def __init__(
        self, context: Context, entity_id: int, description: TopicDescription, now: int
    ) -> None:
        super().__init__(context, entity_id, settings_of(description), now)
        self.description = description
        self.path = description.name
        self.subscriptions: dict[str, QueueEntity] = {}
        self.main = Queue(context, entity_id * PARTS, self.path, self.settings)
        self.main.owner = self

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queue of scheduled messages."""
        return (self.main,)

    @property
    def size(self) -> int:
        """Bytes of all messages in all subscriptions, and of scheduled ones."""
        return self.main.store.size + sum(s.size for s in self.subscriptions.values())

    @property
    def send_credits(self) -> int:
        """One credit for the message, and one for each filter that is evaluated for it."""
        return MESSAGE + MESSAGE * sum(len(s.rules.rules) for s in self.subscriptions.values())

    @property
    def weight(self) -> int:
        """Bytes that count against the quota, of scheduled messages and all subscriptions."""
        scheduled = self.main.store.size + OVERHEAD * len(self.main.store.messages)
        return scheduled + sum(s.weight for s in self.subscriptions.values())


Entity = QueueEntity | TopicEntity


def _dead_letter_settings(settings: Settings) -> Settings:
    return Settings(
        lock_duration=settings.lock_duration,
        can_receive=settings.can_receive,
        forward_to=settings.forward_dead_letters_to,
    )
