"""The stored messages of one queue by sequence number: add, read, change, remove.

Every change is staged in the journal. A :class:`~.queue.Queue` has one store, and adds locks and
the delivery to receivers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from copy import copy

from pairbus.broker.entities.contents import set_properties
from pairbus.broker.entities.context import Context
from pairbus.broker.entities.deadlines import Deadlines
from pairbus.broker.entities.errors import MessageNotFoundError
from pairbus.broker.entities.journal import SEQUENCE_BITS, MessageRow
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

NUMBERS = 1024  # sequence numbers that are reserved together
READ_AHEAD = 128  # bodies that are fetched from the store together


class MessageStore:
    """The stored messages of one queue, subscription or dead-letter queue.

    Args:
        context: shared by the entities of the namespace.
        queue_id: the queue's number, part of the key of each message.
        path: the queue's path.
        publish: makes staged messages visible; the committer calls it when they are durable.
    """

    def __init__(
        self,
        context: Context,
        queue_id: int,
        path: str,
        publish: Callable[[list[StoredMessage], int], None],
    ) -> None:
        self.context = context
        self.queue_id = queue_id
        self.base = queue_id << SEQUENCE_BITS
        self.path = path
        self.publish = publish
        self.default_ttl = NEVER
        self.messages: dict[int, StoredMessage] = {}
        self.ready = ReadyQueue()
        self.deadlines = Deadlines(self.messages)
        self.changed: set[int] = set()
        """Numbers of messages whose latest bytes may not be in the store yet."""
        self.last_number = 0
        self.reserved = 0
        self.size = 0
        self.scheduled_count = 0
        self._is_ordered = True
        """Whether the messages are in the order of their numbers: the first is the lowest."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {len(self.messages)} messages>"

    # --- arrival ----------------------------------------------------------------------------------

    def next_number(self) -> int:
        """A sequence number that was never used before."""
        number = self.last_number = self.last_number + 1
        if number > self.reserved:
            self._reserve(number)
        return number

    def _reserve(self, number: int) -> None:
        # Numbers are reserved in the store in blocks: few writes, and no number is used twice.
        self.reserved = number + NUMBERS - 1
        self.context.journal.numbers.append((self.queue_id, self.reserved))

    def stage(
        self, incoming: Iterable[IncomingMessage], now: int, *, source: str = ""
    ) -> list[StoredMessage]:
        """Number these messages and stage them for the store; they are not visible yet.

        Args:
            incoming: in order.
            now: the time.
            source: the path of the entity that dead-lettered the messages, if any.
        """
        default_ttl = self.default_ttl
        base = self.base
        journal = self.context.journal
        insert = journal.inserts.append
        staged: list[StoredMessage] = []
        size = 0
        number = self.last_number
        for message in incoming:
            number += 1
            if number > self.reserved:
                self._reserve(number)
            stored = StoredMessage()
            ttl = message.ttl
            if default_ttl != NEVER and (ttl is None or ttl > default_ttl):
                ttl = default_ttl
            scheduled = message.scheduled
            if scheduled is not None and scheduled > now:
                stored.state = SCHEDULED
                stored.expires_at = stored.enqueued_time = scheduled
            else:
                stored.state = ACTIVE
                stored.expires_at = NEVER if ttl is None else now + ttl
                stored.enqueued_time = now
            stored.sequence_number = number
            stored.enqueued_sequence_number = message.origin or number
            stored.ttl = ttl
            stored.delivery_count = 0
            stored.size = message.size
            stored.durable = message.durable
            stored.priority = message.priority
            stored.hops = message.hops
            stored.session_id = message.session_id
            stored.dead_letter_source = source or None
            stored.annotations = message.annotations
            stored.bare = message.bare
            size += message.size
            insert(_row(base, stored))
            staged.append(stored)
        self.last_number = number
        self.size += size
        if staged:
            journal.size += size
            journal.arrivals.append((self, staged))
        return staged

    def adopt(self, stored: StoredMessage) -> None:
        """Stage a message from another queue of the same entity; it keeps its number."""
        if stored.sequence_number > self.last_number:
            self.last_number = stored.sequence_number
        else:
            self._is_ordered = False
        self.size += stored.size
        journal = self.context.journal
        journal.size += stored.size
        journal.inserts.append(_row(self.base, stored))
        journal.arrivals.append((self, [stored]))

    def index(self, stored: Iterable[StoredMessage]) -> None:
        """Add messages to the index."""
        messages = self.messages
        push = self.ready.push
        watch = self.deadlines.watch
        for message in stored:
            messages[message.sequence_number] = message
            if message.state == ACTIVE:
                push(message)
            elif message.state == SCHEDULED:
                self.scheduled_count += 1
            if message.expires_at != NEVER:
                watch(message)

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

    def pop_ready(self) -> StoredMessage | None:
        """Take the next ready message, or None."""
        return self.ready.pop()

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
        self.deadlines.clear()

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
        # The bytes are loaded into copies: those of peeked messages must not stay in memory.
        found = [copy(message) if message.bare is None else message for message in found]
        missing = [message for message in found if message.bare is None]
        if missing and self.context.load is not None:
            self.context.load(self, missing)
            self.context.budget.released(sum(message.size for message in missing))
        return [Delivery(b"", 0, message) for message in found]

    def _numbers_from(self, start: int) -> Iterable[int]:
        """The numbers that may be in use, ascending, from *start*."""
        if not self.messages:
            return ()
        start = max(start, next(iter(self.messages)) if self._is_ordered else start, 1)
        if self.last_number - start <= 4 * len(self.messages) + 1000:
            return range(start, self.last_number + 1)
        numbers = sorted(self.messages)
        return numbers[bisect_left(numbers, start) :]

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


def _row(base: int, stored: StoredMessage) -> MessageRow:
    """The row of a message whose bytes are in memory."""
    return (
        base + stored.sequence_number,
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
