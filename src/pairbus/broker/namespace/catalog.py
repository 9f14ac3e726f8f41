"""The entities of a namespace by path."""

from __future__ import annotations

from typing import Any

from pairbus.broker.entities.context import Context
from pairbus.broker.entities.entity import (
    DEAD_LETTER,
    PARTS,
    TRANSFER_DEAD_LETTER,
    Entity,
    QueueEntity,
    TopicEntity,
)
from pairbus.broker.entities.errors import BrokerError, EntityNotFoundError, NotAllowedError
from pairbus.broker.entities.messages import NEVER
from pairbus.broker.entities.model import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    entity_key,
)
from pairbus.broker.entities.queue import Queue

_DEAD = "/" + DEAD_LETTER.lower()
_TRANSFER_DEAD = "/" + TRANSFER_DEAD_LETTER.lower()
_SUBSCRIPTIONS = "/subscriptions/"
MAX_CACHED = 10_000


class Catalog:
    """Entities by path. The case of a path makes no difference."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.by_key: dict[str, Entity] = {}
        """Queues and topics; subscriptions belong to their topic."""
        self.last_id = 0
        self._queues: dict[str, Queue] = {}  # a cache by address, as receivers write it
        self._targets: dict[str, Entity] = {}  # a cache by address, as senders write it

    def __repr__(self) -> str:
        return f"<Catalog {len(self.by_key)} queues and topics>"

    def find(self, path: str) -> Entity | None:
        """The queue or topic at this path, or None."""
        return self.by_key.get(entity_key(path))

    def entity(self, path: str) -> Entity:
        """The queue, topic or subscription at this path, or whose dead-letter queue it is.

        Raises:
            EntityNotFoundError: there is none.
        """
        key = entity_key(path)
        for suffix in (_TRANSFER_DEAD, _DEAD):
            if key.endswith(suffix):
                key = key[: -len(suffix)]
                break
        found = self.by_key.get(key)
        if found is not None:
            return found
        topic_key, separator, name = key.rpartition(_SUBSCRIPTIONS)
        topic = self.by_key.get(topic_key) if separator else None
        if topic is not None and name in topic.subscriptions:
            return topic.subscriptions[name]
        raise EntityNotFoundError(
            f"The messaging entity '{path}' could not be found. To know more visit "
            "https://aka.ms/sbResourceMgrExceptions."
        )

    def queue_at(self, path: str) -> Queue:
        """The queue, subscription or dead-letter queue at this path, to receive from.

        Raises:
            EntityNotFoundError: there is none, or the path is a topic's dead-letter queue.
        """
        queue = self._queues.get(path)
        if queue is not None:
            return queue
        entity = self.entity(path)
        key = entity_key(path)
        number = 2 if key.endswith(_TRANSFER_DEAD) else 1 if key.endswith(_DEAD) else 0
        if number >= len(entity.queues):
            raise EntityNotFoundError(f"The messaging entity '{path}' could not be found.")
        queue = entity.queues[number]
        if len(self._queues) > MAX_CACHED:
            self._queues.clear()
        self._queues[path] = queue
        return queue

    def queue_entity(self, name: str) -> QueueEntity:
        """The queue of this name; EntityNotFoundError if there is none."""
        found = self.find(name)
        if isinstance(found, QueueEntity):
            return found
        raise EntityNotFoundError(f"Queue '{name}' was not found.")

    def topic_entity(self, name: str) -> TopicEntity:
        """The topic of this name; EntityNotFoundError if there is none."""
        found = self.find(name)
        if isinstance(found, TopicEntity):
            return found
        raise EntityNotFoundError(f"Topic '{name}' was not found.")

    def subscription_entity(self, topic_name: str, name: str) -> QueueEntity:
        """A subscription of a topic; EntityNotFoundError if there is none."""
        found = self.topic_entity(topic_name).subscriptions.get(name.lower())
        if found is None:
            raise EntityNotFoundError(f"Subscription '{topic_name}/{name}' was not found.")
        return found

    def siblings(self, description: EntityDescription) -> dict[str, Any]:
        """The entities among which this one has its name, by name in lower case.

        Raises:
            EntityNotFoundError: the topic of a subscription does not exist.
        """
        if isinstance(description, SubscriptionDescription):
            return self.topic_entity(description.topic_name).subscriptions
        return self.by_key

    def add(self, entity_id: int, description: EntityDescription, created: int) -> Entity:
        """Make an entity and add it; a subscription after its topic."""
        entity: Entity
        match description:
            case TopicDescription():
                entity = TopicEntity(self._context, entity_id, description, created)
            case QueueDescription():
                entity = QueueEntity(self._context, entity_id, description, created)
            case SubscriptionDescription():
                topic = self.topic_entity(description.topic_name)
                entity = QueueEntity(self._context, entity_id, description, created, topic)
        self.siblings(description)[entity_key(description.name)] = entity
        self.last_id = max(self.last_id, entity_id)
        return entity

    def all_entities(self) -> list[Entity]:
        """Queues, topics and subscriptions."""
        found: list[Entity] = []
        for top in self.by_key.values():
            found += [top, *top.subscriptions.values()]
        return found

    def target(self, path: str) -> Entity:
        """The queue or topic that accepts messages sent to this path.

        Raises:
            EntityNotFoundError: there is none.
            NotAllowedError: it is a subscription or a dead-letter queue.
        """
        entity = self._targets.get(path)
        if entity is not None:
            return entity
        entity = self.find(path) or self.entity(path)
        if not isinstance(entity, TopicEntity) and entity.topic is not None:
            raise NotAllowedError(f"'{path}' is a subscription: send to its topic.")
        if "$" in path:
            raise NotAllowedError(f"'{path}' takes no messages from senders.")
        if len(self._targets) > MAX_CACHED:
            self._targets.clear()
        self._targets[path] = entity
        return entity

    def clear(self, error: BrokerError) -> None:
        """Forget all entities and close their receivers with *error*."""
        for entity in self.all_entities():
            self._end(entity, error)
        self.by_key.clear()

    def remove(self, entity: Entity) -> None:
        """Close the receivers of an entity, and delete it with all that belongs to it."""
        for subscription in list(entity.subscriptions.values()):
            self.remove(subscription)
        del self.siblings(entity.description)[entity_key(entity.description.name)]
        gone = f"The messaging entity '{entity.path}' was deleted."
        self._end(entity, EntityNotFoundError(gone))
        self._context.journal.purges.append(
            ("drop", (entity.entity_id, entity.entity_id * PARTS, PARTS))
        )

    def _end(self, entity: Entity, error: BrokerError) -> None:
        entity.is_deleted = True
        self._queues.clear()
        self._targets.clear()
        if entity.history is not None:
            entity.history.next_due = NEVER
        for queue in entity.queues:
            queue.end_receivers(error)
            queue.forget()
            queue.next_due = NEVER

    def return_numbers(self) -> None:
        """Return unused sequence numbers to the store; only before a clean shutdown."""
        for entity in self.all_entities():
            store = entity.main.store
            if store.reserved > store.last_number:
                store.reserved = store.last_number
                self._context.journal.numbers.append((store.queue_id, store.last_number))
