"""The entities of a namespace by path."""

from __future__ import annotations

from collections.abc import Callable

from pairbus.broker.entities.context import Context
from pairbus.broker.entities.entity import (
    DEAD_LETTER,
    PARTS,
    TRANSFER_DEAD_LETTER,
    Entity,
    QueueEntity,
    TopicEntity,
)
from pairbus.broker.entities.errors import BrokerError, EntityNotFoundError
from pairbus.broker.entities.messages import NEVER
from pairbus.broker.entities.model import EntityDescription, entity_key
from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.router import Router

_DEAD = "/" + DEAD_LETTER.lower()
_TRANSFER_DEAD = "/" + TRANSFER_DEAD_LETTER.lower()
_SUBSCRIPTIONS = "/subscriptions/"
MAX_CACHED = 10_000


class Catalog:
    """Entities by path. Paths do not differ by case."""

    def __init__(self, context: Context, clock: Callable[[], int]) -> None:
        self.context = context
        self.clock = clock
        self.entities_by_key: dict[str, Entity] = {}  # queues and topics
        self._paths: dict[str, Queue] = {}  # addresses as clients write them: a cache
        self.targets: dict[str, Entity] = {}  # likewise, of those who send
        self.last_id = 0
        self.router = Router(context, self._find)

    # --- by path ----------------------------------------------------------------------------------

    def _find(self, path: str) -> Entity | None:
        return self.entities_by_key.get(entity_key(path))

    def entity(self, path: str) -> Entity:
        """The queue, topic or subscription at this path, or of which this path is a part.

        Raises:
            EntityNotFoundError: there is none.
        """
        key = entity_key(path)
        for suffix in (_TRANSFER_DEAD, _DEAD):
            if key.endswith(suffix):
                key = key[: -len(suffix)]
                break
        found = self.entities_by_key.get(key)
        if found is not None:
            return found
        topic_key, separator, name = key.rpartition(_SUBSCRIPTIONS)
        topic = self.entities_by_key.get(topic_key) if separator else None
        if isinstance(topic, TopicEntity) and name in topic.subscriptions:
            return topic.subscriptions[name]
        raise EntityNotFoundError(
            f"The messaging entity '{path}' could not be found. To know more visit "
            "https://aka.ms/sbResourceMgrExceptions."
        )

    def queue_at(self, path: str) -> Queue:
        """What can be received from at this path: queue, subscription or dead-letter queue.

        Raises:
            EntityNotFoundError: there is nothing, or it is a topic's dead-letter queue.
        """
        queue = self._paths.get(path)
        if queue is not None:
            return queue
        entity = self.entity(path)
        key = entity_key(path)
        if key.endswith(_TRANSFER_DEAD) and isinstance(entity, QueueEntity):
            queue = entity.transfer_dead
        elif key.endswith(_DEAD) and isinstance(entity, QueueEntity):
            queue = entity.dead
        elif key.endswith(_DEAD):
            raise EntityNotFoundError(f"The messaging entity '{path}' could not be found.")
        else:
            queue = entity.main
        if len(self._paths) > MAX_CACHED:
            self._paths.clear()
        self._paths[path] = queue
        return queue

    def exists(self, path: str) -> bool:
        """Whether there is an entity at this path."""
        try:
            self.entity(path)
        except EntityNotFoundError:
            return False
        return True

    def _queue_entity(self, name: str) -> QueueEntity:
        found = self._find(name)
        if isinstance(found, QueueEntity):
            return found
        raise EntityNotFoundError(f"Queue '{name}' was not found.")

    def _topic_entity(self, name: str) -> TopicEntity:
        found = self._find(name)
        if isinstance(found, TopicEntity):
            return found
        raise EntityNotFoundError(f"Topic '{name}' was not found.")

    def _subscription_entity(self, topic_name: str, name: str) -> QueueEntity:
        found = self._topic_entity(topic_name).subscriptions.get(name.lower())
        if found is None:
            raise EntityNotFoundError(f"Subscription '{topic_name}/{name}' was not found.")
        return found

    def _next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def _describe(self, path: str) -> EntityDescription | None:
        found = self._find(path)
        return None if found is None else found.description

    def all_entities(self) -> list[Entity]:
        """Queues, topics and subscriptions."""
        found: list[Entity] = []
        for top in self.entities_by_key.values():
            found.append(top)
            if isinstance(top, TopicEntity):
                found += top.subscriptions.values()
        return found

    def leave(self, error: BrokerError) -> None:
        """Forget all entities and close their receivers: what memory has is not what is kept."""
        for entity in self.all_entities():
            entity.is_deleted = True
            for queue in entity.queues:
                queue.end_receivers(error)
                queue.forget()
        self.entities_by_key.clear()
        self._paths.clear()
        self.targets.clear()

    # --- keeping ----------------------------------------------------------------------------------

    def _drop(self, entity: Entity) -> None:
        entity.is_deleted = True
        self._paths.clear()
        self.targets.clear()
        if entity.history is not None:
            entity.history.next_due = NEVER
        gone = EntityNotFoundError(f"The messaging entity '{entity.path}' was deleted.")
        for queue in entity.queues:
            queue.end_receivers(gone)
            queue.forget()
            queue.next_due = NEVER
        self.context.journal.purges.append(
            ("drop", (entity.entity_id, entity.entity_id * PARTS, PARTS))
        )

    def return_numbers(self) -> None:
        """Give reserved sequence numbers back that were not used: for a tidy end only."""
        for entity in self.all_entities():
            queue = entity.main
            if queue.reserved > queue.last_number:
                queue.reserved = queue.last_number
                self.context.journal.numbers.append((queue.queue_id, queue.last_number))
