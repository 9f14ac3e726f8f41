"""The administration of a namespace: create, get, list, update and delete entities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from pairbus.broker.entities.context import Context
from pairbus.broker.entities.entity import Entity, QueueEntity, TopicEntity
from pairbus.broker.entities.errors import EntityExistsError, EntityNotFoundError
from pairbus.broker.entities.messages import NEVER
from pairbus.broker.entities.model import (
    DEFAULT_RULE,
    EntityDescription,
    QueueDescription,
    RuleDescription,
    RuntimeProperties,
    SubscriptionDescription,
    TopicDescription,
    check_forwarding,
    check_update,
    entity_key,
)
from pairbus.broker.entities.model_json import dump_description
from pairbus.broker.entities.model_limits import (
    MAX_ENTITIES,
    MAX_RULES,
    MAX_SUBSCRIPTIONS,
    check_count,
)
from pairbus.broker.filters.compiled import check_rule
from pairbus.broker.namespace.catalog import Catalog
from pairbus.broker.namespace.tiers import for_tier
from pairbus.broker.settings import Tier

_KINDS = {
    QueueDescription: "queue",
    TopicDescription: "topic",
    SubscriptionDescription: "subscription",
}
"""How the store names the kinds of entities."""

D = TypeVar("D", bound=EntityDescription)


class Administration:
    """Changes the entities of a catalog. A change applies from the next call on.

    Args:
        name: the namespace's name.
        catalog: the entities.
        context: shared by the entities.
        clock: the time in milliseconds.
        tier: the tier whose entities are accepted.
    """

    def __init__(
        self,
        name: str,
        catalog: Catalog,
        context: Context,
        clock: Callable[[], int],
        tier: Tier = Tier.PREMIUM,
    ) -> None:
        self.name = name
        self.catalog = catalog
        self.context = context
        self.clock = clock
        self.tier = tier

    # --- queues, topics and subscriptions ---------------------------------------------------------

    def create(
        self, description: EntityDescription, rule: RuleDescription | None = None
    ) -> EntityDescription:
        """Create an entity; returns the description with defaults filled in.

        A subscription begins with one rule: the given one, or one that matches every message.
        """
        catalog = self.catalog
        siblings = catalog.siblings(description)
        description = for_tier(description, self.tier).validated()
        if entity_key(description.name) in siblings:
            raise EntityExistsError(f"The entity '{description.path}' exists already.")
        is_subscription = isinstance(description, SubscriptionDescription)
        if is_subscription:
            check_count(len(siblings), MAX_SUBSCRIPTIONS, "subscriptions of a topic")
        else:
            check_count(len(siblings), MAX_ENTITIES, "queues and topics of a namespace")
        check_forwarding(description, catalog.find)
        rule = self._checked(rule or DEFAULT_RULE)
        entity = catalog.add(catalog.last_id + 1, description, self.clock())
        if isinstance(entity, QueueEntity) and is_subscription:
            entity.rules.put(rule)
        self._save(entity)
        return description

    def update(self, description: EntityDescription) -> EntityDescription:
        """Change an entity; returns the new description."""
        entity = self.catalog.siblings(description).get(entity_key(description.name))
        if entity is None or type(entity.description) is not type(description):
            raise EntityNotFoundError(f"The entity '{description.path}' was not found.")
        description = for_tier(description, self.tier, entity.description).validated()
        check_update(entity.description, description)
        check_forwarding(description, self.catalog.find)
        entity.configure(description, self.clock())
        self._save(entity)
        return description

    def list_queues(self) -> list[QueueDescription]:
        """All queues, by name."""
        return _sorted(self.catalog.by_key, QueueDescription)

    def list_topics(self) -> list[TopicDescription]:
        """All topics, by name."""
        return _sorted(self.catalog.by_key, TopicDescription)

    def list_subscriptions(self, topic_name: str) -> list[SubscriptionDescription]:
        """All subscriptions of a topic, by name."""
        found = self.catalog.topic_entity(topic_name).subscriptions
        return _sorted(found, SubscriptionDescription)

    def delete_queue(self, name: str) -> None:
        """Delete a queue and its messages; its receivers are closed."""
        self.delete(self.catalog.queue_entity(name))

    def delete(self, entity: Entity) -> None:
        """Delete a queue, topic or subscription, and everything that belongs to it."""
        self.catalog.remove(entity)
        self.context.changed()

    # --- rules ------------------------------------------------------------------------------------

    def create_rule(
        self, topic_name: str, subscription: str, rule: RuleDescription, *, is_update: bool = False
    ) -> RuleDescription:
        """Add a rule to a subscription, or change one."""
        entity = self.catalog.subscription_entity(topic_name, subscription)
        rule = self._checked(rule)
        if not is_update:
            check_count(len(entity.rules.rules), MAX_RULES, "rules of a subscription")
        entity.rules.put(rule, is_update=is_update)
        entity.main.accessed = self.clock()
        self._save(entity)
        return rule

    def _checked(self, rule: RuleDescription) -> RuleDescription:
        rule = check_rule(rule)
        return rule if rule.created_at_utc else replace(rule, created_at_utc=utc(self.clock()))

    def list_rules(self, topic_name: str, subscription: str) -> list[RuleDescription]:
        """All rules of a subscription, by name."""
        rules = self.catalog.subscription_entity(topic_name, subscription).rules.rules
        return [rule for _, rule in sorted(rules.items())]

    def delete_rule(self, topic_name: str, subscription: str, name: str) -> None:
        """Remove a rule from a subscription."""
        entity = self.catalog.subscription_entity(topic_name, subscription)
        entity.rules.remove(name)
        self._save(entity)

    # --- runtime ----------------------------------------------------------------------------------

    def runtime(self, path: str) -> RuntimeProperties:
        """Counts, sizes and times of the queue, topic or subscription at this path."""
        entity = self.catalog.entity(path)
        times = (utc(entity.created), utc(entity.updated), utc(entity.accessed))
        if isinstance(entity, TopicEntity):
            return RuntimeProperties(
                *times,
                size_in_bytes=entity.size,
                scheduled_message_count=entity.main.store.scheduled_count,
                subscription_count=len(entity.subscriptions),
            )
        main = entity.main.store
        transfer = entity.main.transfer_count()
        return RuntimeProperties(
            *times,
            size_in_bytes=entity.size,
            total_message_count=sum(len(queue.store.messages) for queue in entity.queues),
            active_message_count=len(main.messages) - main.scheduled_count - transfer,
            transfer_message_count=transfer,
            dead_letter_message_count=len(entity.dead.store.messages),
            scheduled_message_count=main.scheduled_count,
            transfer_dead_letter_message_count=len(entity.transfer_dead.store.messages),
        )

    def _save(self, entity: Entity) -> None:
        topic = None
        rules: list[str] = []
        if isinstance(entity, QueueEntity):
            topic = entity.topic
            rules = [dump_description(rule) for rule in entity.rules.rules.values()]
        self.context.journal.entities.append(
            (
                "entity",
                (
                    entity.entity_id,
                    _KINDS[type(entity.description)],
                    None if topic is None else topic.entity_id,
                    dump_description(entity.description),
                    "\n".join(rules),
                    entity.created,
                    entity.updated,
                ),
            )
        )
        self.watch_idle(entity)
        self.context.changed()

    # --- automatic deletion of idle entities ------------------------------------------------------

    def watch_idle(self, entity: Entity) -> None:
        """Delete the entity when it has been idle for ``auto_delete_on_idle``."""
        if entity.settings.idle != entity.watched_idle:
            entity.watched_idle = entity.settings.idle
            if entity.settings.idle != NEVER:
                _IdleWatch(self, entity)


class _IdleWatch:
    """Checks whether an entity is idle, and again later while it is in use."""

    def __init__(self, administration: Administration, entity: Entity) -> None:
        self._administration = administration
        self._entity = entity
        self._idle = entity.settings.idle
        self.next_due = administration.clock() + self._idle
        administration.context.arm(self.next_due, self)

    def tick(self, now: int) -> None:
        """Delete the entity if it is idle."""
        self.next_due = NEVER
        entity = self._entity
        if entity.is_deleted or entity.settings.idle != self._idle:
            return  # deleted, or watched with another duration
        since = entity.idle_since()
        if since + self._idle <= now:
            self._administration.delete(entity)
            return
        self.next_due = min(since, now) + self._idle
        self._administration.context.arm(self.next_due, self)


def _sorted(entities: Mapping[str, Entity], kind: type[D]) -> list[D]:
    """The descriptions of one kind, by name."""
    found = [entity.description for _, entity in sorted(entities.items())]
    return [description for description in found if isinstance(description, kind)]


def utc(milliseconds: int) -> datetime:
    """A time of the broker as a datetime."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
