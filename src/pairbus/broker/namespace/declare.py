"""Creates the entities that a configuration file declares and that do not exist yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pairbus.broker.config import Declared
from pairbus.broker.entities.errors import BrokerError, EntityExistsError
from pairbus.broker.settings import BrokerStartError

if TYPE_CHECKING:
    from pairbus.broker.namespace.administration import Administration


def declare(administration: Administration, declared: Declared) -> None:
    """Create the declared entities that do not exist yet."""
    for queue in _forwarding_last(declared.queues):
        _unless_exists(administration.create_queue, queue)
    for topic in declared.topics:
        _unless_exists(administration.create_topic, topic)
    for item in declared.subscriptions:
        description = item.description
        rules = item.rules
        first = rules[0] if rules else None
        if _unless_exists(administration.create_subscription, description, first):
            for rule in (rules or ())[1:]:
                administration.create_rule(description.topic_name, description.name, rule)


def _forwarding_last(queues: Iterable[Any]) -> list[Any]:
    return sorted(queues, key=lambda q: bool(q.forward_to or q.forward_dead_lettered_messages_to))


def _unless_exists(create: Callable[..., Any], *description: Any) -> bool:
    try:
        create(*description)
    except EntityExistsError:
        return False
    except BrokerError as error:
        name = getattr(description[0], "name", "")
        raise BrokerStartError(f"the entity {name!r} cannot be created: {error}") from error
    return True
