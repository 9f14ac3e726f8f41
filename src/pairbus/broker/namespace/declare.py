"""Creates the entities that a configuration file declares and that do not exist yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pairbus.broker.config import Declared
from pairbus.broker.entities.errors import BrokerError, EntityExistsError
from pairbus.broker.entities.model import (
    EntityDescription,
    QueueDescription,
    RuleDescription,
    entity_key,
)
from pairbus.broker.settings import BrokerStartError

if TYPE_CHECKING:
    from pairbus.broker.namespace.administration import Administration


def declare(administration: Administration, declared: Declared) -> None:
    """Create the declared entities that do not exist yet."""
    top: list[EntityDescription] = [*declared.topics, *_targets_first(declared.queues)]
    for description in top:
        _create(administration, description)
    for item in declared.subscriptions:
        subscription, rules = item.description, item.rules or ()
        if _create(administration, subscription, *rules[:1]):
            for rule in rules[1:]:
                administration.create_rule(subscription.topic_name, subscription.name, rule)


def _targets_first(queues: Iterable[QueueDescription]) -> Iterator[QueueDescription]:
    """Yield each queue after the queues that it forwards to; those of a circle come last."""
    pending = list(queues)
    while pending:
        names = {entity_key(queue.name) for queue in pending}
        ready = [queue for queue in pending if names.isdisjoint(_targets(queue))]
        yield from ready or pending
        pending = [queue for queue in pending if queue not in ready] if ready else []


def _targets(queue: QueueDescription) -> set[str]:
    paths = (queue.forward_to, queue.forward_dead_lettered_messages_to)
    return {entity_key(path) for path in paths if path}


def _create(
    administration: Administration, description: EntityDescription, *rule: RuleDescription
) -> bool:
    """Create an entity with at most one rule; False if it exists."""
    try:
        administration.create(description, *rule)
    except EntityExistsError:
        return False
    except BrokerError as error:
        problem = f"the entity {description.name!r} cannot be created: {error}"
        raise BrokerStartError(problem) from error
    return True
