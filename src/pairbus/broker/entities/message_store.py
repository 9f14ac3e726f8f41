"""The stored messages of one queue by sequence number: add, read, change, remove.

Every change is staged in the journal. Locks and delivery to receivers are in :mod:`.queue`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pairbus.broker.entities.contents import set_properties
from pairbus.broker.entities.context import Context
from pairbus.broker.entities.errors import MessageNotFoundError
from pairbus.broker.entities.journal import SEQUENCE_BITS
from pairbus.broker.entities.messages import (
    ACTIVE,
    GONE,
    NEVER,
    SCHEDULED,
    Delivery,
    IncomingMessage,
    StoredMessage,
)
from pairbus.broker.entities.ready_queue import ReadyQueue
from pairbus.broker.entities.settings import Settings

if TYPE_CHECKING:
    from pairbus.broker.entities.entity import QueueEntity, TopicEntity

NUMBERS = 1024  # sequence numbers that are reserved together
READ_AHEAD = 128  # bodies that are fetched from the store together


class MessageStore:
    """The stored messages of one queue, subscription or dead-letter queue."""

    is_dead_letter = False

    def __init__(self, context: Context, queue_id: int, path: str, settings: Settings) -> None:
        self.context = context
        self.queue_id = queue_id
        self.base = queue_id << SEQUENCE_BITS
        self.path = path
        self.settings = settings
        self.owner: QueueEntity | TopicEntity | None = None
        self.messages: dict[int, StoredMessage] = {}
        self.ready = ReadyQueue()
        self.schedule: list[tuple[int, int]] = []
        """A heap of due times and numbers of scheduled messages."""
        self.expiry: list[tuple[int, int]] = []
        """A heap of expiry times and numbers; it may contain messages that are removed already."""
        self.changed: set[int] = set()
        """Numbers of messages whose latest bytes may not be in the store yet."""
        self.last_number = 0
        self.reserved = 0
        self.size = 0
        self.scheduled_count = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {len(self.messages)} messages>"

    # --- arrival ----------------------------------------------------------------------------------

    def next_number(self) -> int:
        """A sequence number that was never used before."""
        number = self.last_number = self.last_number + 1
        if number > self.reserved:
            # Numbers are reserved in the store in blocks: few writes, and no number is used twice.
            self.reserved = number + NUMBERS - 1
            self.context.journal.numbers.append((self.queue_id, self.reserved))
        return number

    def stage(
        self, incoming: Iterable[IncomingMessage], now: int, *, source: str = ""
    ) -> list[StoredMessage]:
        """Number these messages and stage them for the store; they are not visible yet.

        Args:
            incoming: in order.
            now: the time.
            source: the path of the entity that dead-lettered the messages, if any.
        """
        default_ttl = self.settings.default_ttl
        base = self.base
        journal = self.context.journal
        insert = journal.inserts.append
        staged: list[StoredMessage] = []
        size = 0
        for message in incoming:
            if self.last_number < self.reserved:
                number = self.last_number = self.last_number + 1
            else:
                number = self.next_number()
            stored = StoredMessage()
            ttl = message.ttl
            if default_ttl != NEVER and (ttl is None or ttl > default_ttl):
                ttl = default_ttl
            scheduled = message.scheduled
            if scheduled is not None and scheduled > now:
                stored.state = state = SCHEDULED
                due = enqueued = scheduled
            else:
                stored.state = state = ACTIVE
                due = NEVER if ttl is None else now + ttl
                enqueued = now
            stored.sequence_number = number
            stored.enqueued_sequence_number = first = message.origin or number
            stored.enqueued_time = enqueued
            stored.expires_at = due
            stored.ttl = ttl
            stored.delivery_count = 0
            stored.size = message.size
            stored.durable = durable = message.durable
            stored.priority = priority = message.priority
            stored.hops = hops = message.hops
            stored.session_id = session_id = message.session_id
            stored.dead_letter_source = source or None
            stored.annotations = annotations = message.annotations
            stored.bare = bare = message.bare
            size += message.size
            insert(
                (
                    base + number,
                    state,
                    enqueued,
                    due,
                    0,
                    message.size,
                    first,
                    ttl,
                    durable | priority << 1 | hops << 9,
                    session_id,
                    source or None,
                    annotations or None,
                    bare,
                )
            )
            staged.append(stored)
        self.size += size
        if staged:
            journal.size += size
            journal.arrivals.append((self, staged))
        return staged

    def adopt(self, stored: StoredMessage) -> None:
        """Stage a message from another queue of the same entity; it keeps its number."""
        self.last_number = max(self.last_number, stored.sequence_number)
        self.size += stored.size
        journal = self.context.journal
        journal.size += stored.size
        journal.inserts.append(
            (
                self.base + stored.sequence_number,
                stored.state,
                stored.enqueued_time,
                stored.expires_at,
                stored.delivery_count,
                stored.size,
                stored.enqueued_sequence_number,
                stored.ttl,
                stored.durable | stored.priority << 1 | stored.hops << 9,
                stored.session_id,
                stored.dead_letter_source,
                stored.annotations or None,
                stored.bare,
            )
        )
        journal.arrivals.append((self, [stored]))

    def index(self, stored: Iterable[StoredMessage]) -> None:
        """Add messages to the index."""
        messages = self.messages
        push = self.ready.push
        for message in stored:
            number = message.sequence_number
            messages[number] = message
            if message.state == ACTIVE:
                push(message)
                if message.expires_at != NEVER:
                    heapq.heappush(self.expiry, (message.expires_at, number))
            elif message.state == SCHEDULED:
                self.scheduled_count += 1
                heapq.heappush(self.schedule, (message.expires_at, number))
            elif message.expires_at != NEVER:
                heapq.heappush(self.expiry, (message.expires_at, number))

    def publish(self, staged: list[StoredMessage], now: int) -> None:
        """Make durable messages visible."""
        raise NotImplementedError

    def withdraw(self, staged: list[StoredMessage]) -> None:
        """Drop staged messages whose group could not be stored."""
        for message in staged:
            message.state = GONE
            self.size -= message.size

    # --- bytes ------------------------------------------------------------------------------------

    def fetch(self, messages: list[StoredMessage]) -> None:
        """Load the bytes of these messages from the store, and those of the next ones."""
        if self.context.load is None:
            return
        missing = [message for message in messages if message.bare is None]
        if not missing:
            return
        if len(missing) < READ_AHEAD:
            fresh = self.ready.fresh
            for index in range(min(READ_AHEAD - len(missing), len(fresh))):
                message = fresh[index]
                if message.bare is None and message.state == ACTIVE:
                    missing.append(message)
        self.context.load(self, missing)

    def drop_bytes(self, deliveries: list[Delivery]) -> None:
        """Drop the bytes of delivered messages from memory; the store has them."""
        for delivery in deliveries:
            message = delivery.message
            if message.bare is not None and message.sequence_number not in self.changed:
                message.bare = message.annotations = None
                self.context.budget.released(message.size)

    # --- changing ---------------------------------------------------------------------------------

    def put_back(self, message: StoredMessage) -> None:
        """Return an active message to its position among the ready ones."""
        self.ready.put_back(message)

    def change(self, message: StoredMessage, properties: Mapping[str, object]) -> None:
        """Set application properties of a stored message."""
        self.fetch([message])
        assert message.bare is not None  # fetched in the line above
        changed = set_properties(message.bare, properties)
        growth = len(changed) - len(message.bare)
        message.bare = changed
        message.size += growth
        self.size += growth
        self.context.budget.grew(growth)
        self.changed.add(message.sequence_number)
        self.context.journal.bodies.append(
            (changed, message.size, self.base + message.sequence_number)
        )

    def stage_update(self, message: StoredMessage) -> None:
        """Stage the current state and delivery count of a message."""
        self.context.journal.updates.append(
            (
                message.state,
                message.expires_at,
                message.delivery_count,
                self.base + message.sequence_number,
            )
        )

    def remove(self, message: StoredMessage) -> None:
        """Remove a message. Its bytes stay on the object for callers that still read them."""
        if message.state == SCHEDULED:
            self.scheduled_count -= 1
        message.state = GONE
        number = message.sequence_number
        del self.messages[number]
        self.size -= message.size
        self.context.journal.deletes.append(self.base + number)
        if message.bare is not None:
            self.context.budget.released(message.size)
        if self.changed:
            self.changed.discard(number)

    def forget(self) -> None:
        """Remove all messages from memory: the entity is deleted."""
        for message in self.messages.values():
            message.state = GONE
            if message.bare is not None:
                self.context.budget.released(message.size)
        self.messages.clear()
        self.changed.clear()
        self.ready = ReadyQueue()
        self.size = 0
        self.schedule.clear()
        self.expiry.clear()

    # --- by number --------------------------------------------------------------------------------

    def peek(
        self, start: int, count: int, session_id: str | None = None, *, max_bytes: int = NEVER
    ) -> list[Delivery]:
        """Up to *count* messages from this number on, in any state; nothing is changed."""
        found: list[StoredMessage] = []
        size = 0
        for number in self._numbers_from(start):
            message = self.messages.get(number)
            if message is None or (session_id is not None and message.session_id != session_id):
                continue
            size += message.size
            if found and size > max_bytes:
                break
            found.append(message)
            if len(found) >= count:
                break
        if self.context.load is not None:
            missing = [message for message in found if message.bare is None]
            if missing:
                self.context.load(self, missing)
        return [Delivery(b"", 0, message) for message in found]

    def _numbers_from(self, start: int) -> Iterable[int]:
        """The numbers that may be in use, ascending, from *start*."""
        if not self.messages:
            return ()
        start = max(start, next(iter(self.messages)) if self.is_index_ordered() else start, 1)
        if self.last_number - start <= 4 * len(self.messages) + 1000:
            return range(start, self.last_number + 1)
        numbers = sorted(self.messages)
        return numbers[bisect_left(numbers, start) :]

    def is_index_ordered(self) -> bool:
        """Whether the index is in the order of numbers, so that its first key is the lowest."""
        return not self.is_dead_letter

    def delete_active(self, count: int, before: int, session_id: str | None) -> int:
        """Remove up to *count* messages that are active, unlocked and enqueued before a time."""
        found = [
            message
            for message in self.messages.values()
            if message.state == ACTIVE
            and message.enqueued_time < before
            and (session_id is None or message.session_id == session_id)
        ]
        found.sort(key=lambda message: message.sequence_number)
        for message in found[:count]:
            self.remove(message)
        return len(found[:count])

    def cancel(self, numbers: Iterable[int]) -> None:
        """Remove scheduled messages; all of them or none."""
        found = [self.messages.get(number) for number in numbers]
        scheduled = [m for m in found if m is not None and m.state == SCHEDULED]
        if len(scheduled) != len(found):
            raise MessageNotFoundError("A scheduled message with this number does not exist.")
        for message in scheduled:
            if message.state == SCHEDULED:  # a number may be named twice
                self.remove(message)
