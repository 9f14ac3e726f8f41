"""Creates the entities that a configuration file declares and that do not exist yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pairbus.broker.config import Declared
from pairbus.broker.entities.errors import BrokerError, EntityExistsError
from pairbus.broker.entities.model import QueueDescription, entity_key
from pairbus.broker.settings import BrokerStartError

if TYPE_CHECKING:
    from pairbus.broker.namespace.administration import Administration


def declare(administration: Administration, declared: Declared) -> None:
    """Create the declared entities that do not exist yet."""
    for topic in declared.topics:
        _unless_exists(administration.create, topic)
    for queue in _targets_first(declared.queues):
        _unless_exists(administration.create, queue)
    for item in declared.subscriptions:
        description = item.description
        rules = item.rules
        first = rules[0] if rules else None
        if _unless_exists(administration.create, description, first):
            for rule in (rules or ())[1:]:
                administration.create_rule(description.topic_name, description.name, rule)


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


def _unless_exists(create: Callable[..., Any], *description: Any) -> bool:
    try:
        create(*description)
    except EntityExistsError:
        return False
    except BrokerError as error:
        name = getattr(description[0], "name", "")
        raise BrokerStartError(f"the entity {name!r} cannot be created: {error}") from error
    return True
