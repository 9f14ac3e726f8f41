"""Reads a namespace's entities and the index of its messages from the store."""

from __future__ import annotations

import gc
from itertools import groupby
from typing import TYPE_CHECKING

from pairbus.broker.entities.entity import Entity, QueueEntity
from pairbus.broker.entities.journal import SEQUENCE_BITS
from pairbus.broker.entities.messages import NEVER, StoredMessage
from pairbus.broker.entities.model_json import load_description
from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.sessions import SessionQueue
from pairbus.broker.store.store import NUMBER_MASK, Store

if TYPE_CHECKING:
    from pairbus.broker.namespace.administration import Administration
    from pairbus.broker.namespace.catalog import Catalog


def restore(administration: Administration, store: Store) -> None:
    """Fill an empty catalog from the store. Message bodies are read later, when needed."""
    catalog = administration.catalog
    was_enabled = gc.isenabled()
    gc.disable()  # many new objects and no garbage: collection would take longer than reading
    try:
        entities = _entities(catalog, store)
        queues = {q.store.queue_id: q for entity in entities.values() for q in entity.queues}
        for queue_id, number in store.last_numbers().items():
            if queue_id in queues:
                known = queues[queue_id].store
                known.last_number = known.reserved = number
        for queue_id, session_id, state, updated in store.sessions():
            queue = queues.get(queue_id)
            if isinstance(queue, SessionQueue):
                session = queue.store.session(session_id)
                session.state = state
                session.updated = updated
        for entity_id, key, taken in store.seen():
            history = entities[entity_id].history if entity_id in entities else None
            if history is not None:
                history.seen[key] = taken
        _messages(queues, store)
    finally:
        if was_enabled:
            gc.enable()
    now = administration.clock()
    for entity in entities.values():
        if entity.history is not None:
            entity.history.arm()
        for queue in entity.queues:
            queue.accessed = now
            queue.arm()
            queue.dispatch(now)  # continue forwarding
        administration.watch_idle(entity)


def _entities(catalog: Catalog, store: Store) -> dict[int, Entity]:
    entities: dict[int, Entity] = {}
    for entity_id, description, rules, created, updated in store.entities():
        entity = catalog.add(entity_id, load_description(description), created)
        entity.updated = updated
        if isinstance(entity, QueueEntity):
            for line in rules.splitlines():
                entity.rules.put(load_description(line))
        entities[entity_id] = entity
    catalog.last_id = store.last_entity_id()
    return entities


def _messages(queues: dict[int, Queue], store: Store) -> None:
    sizes: dict[int, int] = {}
    moment = 0
    for queue_id, rows in groupby(store.messages(), lambda row: row[0] >> SEQUENCE_BITS):
        queue = queues.get(queue_id)
        if queue is None:
            continue
        messages: list[StoredMessage] = []
        size = 0
        for row in rows:
            message = StoredMessage()
            message.sequence_number = number = row[0] & NUMBER_MASK
            message.state = row[1]
            # Equal numbers share one object, which saves 100 MB with a million messages.
            if row[2] != moment:
                moment = row[2]
            message.enqueued_time = moment
            message.expires_at = NEVER if row[3] == NEVER else row[3]
            message.delivery_count = row[4]
            message.size = sizes.setdefault(row[5], row[5])
            message.enqueued_sequence_number = number if row[6] == number else row[6]
            message.ttl = row[7]
            flags = row[8]
            message.durable = bool(flags & 1)
            message.priority = flags >> 1 & 0xFF
            message.hops = flags >> 9
            message.session_id = row[9]
            message.dead_letter_source = row[10]
            message.annotations = message.bare = None
            size += row[5]
            messages.append(message)
        queue.store.index(messages)
        queue.store.size = size
        queue.store.last_number = max(queue.store.last_number, number)
