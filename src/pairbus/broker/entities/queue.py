"""A queue: messages in order, locks, deferral, schedules, expiry, and who is served next.

The same class keeps a queue, a subscription, a dead-letter queue, and the scheduled messages of a
topic. It decides in memory, at once, and notes in the journal what must be kept; a message that
was sent becomes visible when :meth:`Queue.publish` is called, after its group is durable.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .contents import set_properties
from .context import Context
from .errors import (
    ArgumentError,
    BrokerError,
    EntityDisabledError,
    MessageLockLostError,
    MessageNotFoundError,
)
from .journal import SEQUENCE_BITS
from .lane import Lane
from .messages import (
    ACTIVE,
    DEFERRED,
    GONE,
    LOCKED,
    LOCKED_DEFERRED,
    NEVER,
    SCHEDULED,
    Delivery,
    IncomingMessage,
    Outcome,
    StoredMessage,
)
from .settings import Settings

if TYPE_CHECKING:
    from .entity import QueueEntity, TopicEntity
    from .receiver import Receiver

SERVE = 256  # messages that one receiver gets before the next one has its turn
NUMBERS = 1024  # sequence numbers that are reserved together
READ_AHEAD = 128  # bodies that are fetched from the store together
LOCK_LOST = (
    "The lock supplied is invalid. Either the lock expired, or the message has already been "
    "removed from the queue."
)


class Queue:
    """The messages of one entity, and the rules for receiving them."""

    is_dead_letter = False

    def __init__(self, context: Context, queue_id: int, path: str, settings: Settings) -> None:
        self.context = context
        self.queue_id = queue_id
        self.base = queue_id << SEQUENCE_BITS
        self.path = path
        self.settings = settings
        self.messages: dict[int, StoredMessage] = {}
        self.locks: dict[bytes, StoredMessage] = {}
        self.changed: set[int] = set()
        """Numbers of messages whose bytes the store may not have in their last form yet."""
        self.lane = Lane()
        self.waiting: deque[Receiver] = deque()
        self.receivers: set[Receiver] = set()
        self.last_number = 0
        self.reserved = 0
        self.size = 0
        self.scheduled_count = 0
        self.next_due = NEVER
        self.accessed = 0
        self.is_retrying = False  # a forward that was refused is tried again in a while
        self.owner: QueueEntity | TopicEntity | None = None
        self._schedule: list[tuple[int, int]] = []
        self._expiry: list[tuple[int, int]] = []
        self._locks_in_order = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {len(self.messages)} messages>"

    # --- coming in --------------------------------------------------------------------------------

    def next_number(self) -> int:
        """A sequence number that was never given before."""
        number = self.last_number = self.last_number + 1
        if number > self.reserved:
            # The store learns of numbers in blocks: it seldom writes, and none is used twice.
            self.reserved = number + NUMBERS - 1
            self.context.journal.numbers.append((self.queue_id, self.reserved))
        return number

    def stage(
        self, incoming: Iterable[IncomingMessage], now: int, *, source: str = ""
    ) -> list[StoredMessage]:
        """Number these messages and note them for the store; nobody sees them yet.

        Args:
            incoming: in order.
            now: the time.
            source: the path where the message was dead-lettered, if it comes from there.
        """
        default_ttl = self.settings.default_ttl
        base = self.base
        insert = self.context.journal.inserts.append
        staged: list[StoredMessage] = []
        size = 0
        for message in incoming:
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
            self.context.journal.arrivals.append((self, staged))
        return staged

    def adopt(self, stored: StoredMessage) -> None:
        """Note a message for the store that keeps its number: it comes from a parent queue."""
        self.last_number = max(self.last_number, stored.sequence_number)
        self.size += stored.size
        journal = self.context.journal
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

    def publish(self, staged: list[StoredMessage], now: int) -> None:
        """Make durable messages visible, and serve those who wait."""
        if self.owner is not None and self.owner.is_deleted:
            return  # deleted while they were on their way
        self.index(staged)
        self.context.budget.admit(staged)
        if self._schedule:
            self.arm_at(self._schedule[0][0])
        if self._expiry:
            self.arm_at(self._expiry[0][0])
            self._tidy_expiry()
        self.dispatch(now)

    def index(self, stored: Iterable[StoredMessage]) -> None:
        """Take messages into the index; at start-up this is all that happens to them."""
        messages = self.messages
        push = self.lane.push
        for message in stored:
            number = message.sequence_number
            messages[number] = message
            if message.state == ACTIVE:
                push(message)
                if message.expires_at != NEVER:
                    heapq.heappush(self._expiry, (message.expires_at, number))
            elif message.state == SCHEDULED:
                self.scheduled_count += 1
                heapq.heappush(self._schedule, (message.expires_at, number))
            elif message.expires_at != NEVER:
                heapq.heappush(self._expiry, (message.expires_at, number))

    def withdraw(self, staged: list[StoredMessage]) -> None:
        """Forget messages whose group could not be stored."""
        for message in staged:
            message.state = GONE
            self.size -= message.size

    # --- going out --------------------------------------------------------------------------------

    def wants(self, receiver: Receiver) -> None:
        """A receiver has credit: it waits for its turn."""
        if not receiver.is_waiting:
            receiver.is_waiting = True
            self.waiting.append(receiver)

    def dispatch(self, now: int) -> None:
        """Give waiting messages to waiting receivers, each in its turn."""
        waiting = self.waiting
        if self.settings.forward_to is not None:
            self.context.router.pump(self, now)
            return
        if not self.settings.can_receive:
            return
        while waiting and self.lane:
            receiver = waiting.popleft()
            receiver.is_waiting = False
            if receiver.credit <= 0:
                continue
            deliveries = self.take(receiver, min(receiver.credit, SERVE), now)
            if not deliveries:
                self.wants(receiver)
                break
            receiver.hand_over(deliveries, now)
            if receiver.credit > 0 and not receiver.is_closed:
                self.wants(receiver)

    def take(self, receiver: Receiver, limit: int, now: int) -> list[Delivery]:
        """Lock (or remove) up to *limit* messages for a receiver."""
        taken: list[StoredMessage] = []
        pop = self.next_of
        while len(taken) < limit:
            message = pop(receiver)
            if message is None:
                break
            if message.expires_at <= now:
                self.expire(message, now)
                continue
            taken.append(message)
        return self.lend(taken, receiver, now) if taken else []

    def next_of(self, receiver: Receiver) -> StoredMessage | None:
        """The next message for a receiver, taken from the lane."""
        return self.lane.pop()

    def lend(
        self, taken: list[StoredMessage], receiver: Receiver, now: int, state: int = LOCKED
    ) -> list[Delivery]:
        """Turn messages that left the lane into deliveries of this receiver."""
        self.fetch(taken)
        if receiver.is_destructive:
            for message in taken:
                self.remove(message)
            return [Delivery(b"", 0, message) for message in taken]
        until = self.lock_end(receiver, now)
        locks = self.locks
        new_token = self.context.new_token
        deliveries = []
        for message in taken:
            token = new_token()
            message.state = state
            message.lock_token = token
            message.locked_until = until
            message.holder = receiver
            locks[token] = message
            deliveries.append(Delivery(token, until, message))
        self.arm_at(until)
        return deliveries

    def lock_end(self, receiver: Receiver, now: int) -> int:
        """When a lock that is taken now ends."""
        return now + self.settings.lock_duration

    def fetch(self, messages: list[StoredMessage]) -> None:
        """See to it that these messages have their bytes, and read ahead while at it."""
        if self.context.load is None:
            return
        missing = [message for message in messages if message.bare is None]
        if not missing:
            return
        if len(missing) < READ_AHEAD:
            fresh = self.lane.fresh
            for index in range(min(READ_AHEAD - len(missing), len(fresh))):
                message = fresh[index]
                if message.bare is None and message.state == ACTIVE:
                    missing.append(message)
        self.context.load(self, missing)

    def drop_bytes(self, deliveries: list[Delivery]) -> None:
        """Leave the bytes of what was just delivered to the store: memory is short of room."""
        for delivery in deliveries:
            message = delivery.message
            if message.bare is not None and message.sequence_number not in self.changed:
                message.bare = message.annotations = None
                self.context.budget.released(message.size)

    # --- settling ---------------------------------------------------------------------------------

    def settle(
        self,
        token: bytes,
        outcome: Outcome,
        now: int,
        *,
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> bool:
        """Settle one locked message; False when the lock is lost."""
        if outcome is Outcome.DEAD_LETTER and self.is_dead_letter:
            raise ArgumentError("A message in a dead-letter queue cannot be dead-lettered again.")
        message = self.locks.get(token)
        if message is None:
            return False
        if message.locked_until <= now:
            self.lose(message, now)
            return False
        del self.locks[token]
        if outcome is Outcome.COMPLETE:
            self.remove(message)
            return True
        if outcome is Outcome.RELEASE:
            self.give_back(message, now, counted=False)
            self.dispatch(now)
            return True
        if properties:
            self.change(message, properties)
        if outcome is Outcome.ABANDON:
            self.give_back(message, now, counted=True)
            self.dispatch(now)
        elif outcome is Outcome.DEFER:
            message.state = DEFERRED
            message.delivery_count += 1
            self.note(message)
            if message.expires_at != NEVER:
                heapq.heappush(self._expiry, (message.expires_at, message.sequence_number))
                self.arm_at(message.expires_at)
        else:
            self.context.router.dead_letter(self, message, reason, description, now)
        return True

    def on_close(self, receiver: Receiver, now: int) -> None:
        """A receiver closed: the locks it holds run on."""
        if receiver.is_waiting:
            self.waiting.remove(receiver)
            receiver.is_waiting = False

    def lose(self, message: StoredMessage, now: int) -> None:
        """A lock ended by itself: back to its place, one delivery counted."""
        self.locks.pop(message.lock_token, None)
        self.give_back(message, now, counted=True)

    def give_back(self, message: StoredMessage, now: int, *, counted: bool) -> None:
        """Return a message that is no longer locked to where it was taken from."""
        was_deferred = message.state == LOCKED_DEFERRED
        message.holder = None
        message.state = DEFERRED if was_deferred else ACTIVE
        if counted:
            message.delivery_count += 1
            if message.delivery_count >= self.settings.max_delivery_count and (
                not self.is_dead_letter
            ):
                self.context.router.dead_letter(
                    self,
                    message,
                    "MaxDeliveryCountExceeded",
                    "Message could not be consumed after "
                    f"{self.settings.max_delivery_count} delivery attempts.",
                    now,
                )
                return
        if message.expires_at <= now:
            self.expire(message, now)
            return
        if counted:
            self.note(message)
        if message.expires_at != NEVER:
            heapq.heappush(self._expiry, (message.expires_at, message.sequence_number))
            self.arm_at(message.expires_at)
        if not was_deferred:
            self.put_back(message)

    def put_back(self, message: StoredMessage) -> None:
        """Let an active message wait in its place again."""
        self.lane.put_back(message)

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

    def note(self, message: StoredMessage) -> None:
        """Keep a message's new state and delivery count."""
        self.context.journal.updates.append(
            (
                message.state,
                message.expires_at,
                message.delivery_count,
                self.base + message.sequence_number,
            )
        )

    def remove(self, message: StoredMessage) -> None:
        """Take a message out for good. Its bytes stay on the object for who still reads them."""
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

    def expire(self, message: StoredMessage, now: int) -> None:
        """The message outlived its time to live: dead-letter or drop it."""
        if self.settings.dead_letter_on_expiration:
            self.context.router.dead_letter(
                self,
                message,
                "TTLExpiredException",
                "The message expired and was dead lettered.",
                now,
            )
        else:
            self.remove(message)

    # --- by number --------------------------------------------------------------------------------

    def peek(
        self, start: int, count: int, session_id: str | None = None, *, max_bytes: int = NEVER
    ) -> list[Delivery]:
        """Up to *count* messages from this number on, in any state, nothing changed."""
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
        start = max(start, next(iter(self.messages)) if self.lane_in_order() else start, 1)
        if self.last_number - start <= 4 * len(self.messages) + 1000:
            return range(start, self.last_number + 1)
        numbers = sorted(self.messages)
        return numbers[bisect_left(numbers, start) :]

    def lane_in_order(self) -> bool:
        """Whether the index is in the order of numbers, so that its first key is the lowest."""
        return not self.is_dead_letter

    def cancel(self, numbers: Iterable[int]) -> None:
        """Remove scheduled messages; all of them or none."""
        found = [self.messages.get(number) for number in numbers]
        scheduled = [m for m in found if m is not None and m.state == SCHEDULED]
        if len(scheduled) != len(found):
            raise MessageNotFoundError("A scheduled message with this number does not exist.")
        for message in scheduled:
            if message.state == SCHEDULED:  # a number may be named twice
                self.remove(message)

    def receive_deferred(
        self, numbers: Iterable[int], receiver: Receiver, now: int
    ) -> list[Delivery]:
        """Lock deferred messages by their numbers; all of them or none."""
        found = [self.messages.get(number) for number in dict.fromkeys(numbers)]
        session = receiver.session_id
        deferred = [
            m
            for m in found
            if m is not None
            and m.state == DEFERRED
            and m.expires_at > now
            and (session is None or m.session_id == session)
        ]
        if len(deferred) != len(found):
            raise MessageNotFoundError(
                "Failed to find one or more of the deferred messages, or they are locked."
            )
        return self.lend(deferred, receiver, now, LOCKED_DEFERRED)

    def renew(self, tokens: Iterable[bytes], now: int) -> list[int]:
        """New ends of these locks; nothing is renewed if one of them is lost."""
        held = [self.locks.get(token) for token in tokens]
        alive = [m for m in held if m is not None and m.locked_until > now]
        if len(alive) != len(held):
            raise MessageLockLostError(LOCK_LOST)
        if self.settings.requires_session:
            raise ArgumentError("Messages of a session are locked with it: renew the session.")
        until = now + self.settings.lock_duration
        for message in alive:
            message.locked_until = until
            self.locks[message.lock_token] = self.locks.pop(message.lock_token)
        return [until] * len(alive)

    # --- time -------------------------------------------------------------------------------------

    def configure(self, settings: Settings, now: int) -> None:
        """Obey new settings from now on."""
        if settings.lock_duration < self.settings.lock_duration:
            self._locks_in_order = False
        self.settings = settings
        if not settings.can_receive:
            self.end_receivers(
                EntityDisabledError(
                    f"Messaging entity '{self.path}' is currently disabled for receiving."
                )
            )
        self.arm()
        self.dispatch(now)

    def due(self) -> int:
        """When something happens here by itself."""
        soonest = NEVER
        if self.locks:
            if self._locks_in_order:
                soonest = next(iter(self.locks.values())).locked_until
            else:
                soonest = min(message.locked_until for message in self.locks.values())
        if self._schedule:
            soonest = min(soonest, self._schedule[0][0])
        if self._expiry:
            soonest = min(soonest, self._expiry[0][0])
        return soonest

    def arm(self) -> None:
        """Ask to be called when something is due."""
        self.arm_at(self.due())

    def arm_at(self, due: int) -> None:
        """Ask to be called at a time, if that is sooner than was asked before."""
        if due < self.next_due:
            self.next_due = due
            self.context.arm(due, self)

    def tick(self, now: int) -> None:
        """Let happen what is due: locks end, schedules begin, messages expire."""
        self.next_due = NEVER
        self._end_locks(now)
        self._begin_scheduled(now)
        self._expire_due(now)
        self.arm()
        self.dispatch(now)

    def _end_locks(self, now: int) -> None:
        ended = []
        for message in self.locks.values():
            if message.locked_until <= now:
                ended.append(message)
            elif self._locks_in_order:
                break
        for message in ended:
            self.lose(message, now)
        if not self.locks:
            self._locks_in_order = True

    def _begin_scheduled(self, now: int) -> None:
        begun = []
        while self._schedule and self._schedule[0][0] <= now:
            due, number = heapq.heappop(self._schedule)
            message = self.messages.get(number)
            if message is not None and message.state == SCHEDULED and message.expires_at == due:
                begun.append(message)
        if begun:
            self.context.router.activate(self, begun, now)

    def _expire_due(self, now: int) -> None:
        expiry = self._expiry
        while expiry and expiry[0][0] <= now:
            message = self.messages.get(heapq.heappop(expiry)[1])
            if (
                message is not None
                and message.expires_at <= now
                and message.state in (ACTIVE, DEFERRED)
            ):
                self.expire(message, now)

    def _tidy_expiry(self) -> None:
        if len(self._expiry) > 2 * len(self.messages) + 1024:
            # Most of these were consumed before their time: keep the heap as small as the queue.
            self._expiry = [
                (m.expires_at, m.sequence_number)
                for m in self.messages.values()
                if m.expires_at != NEVER and m.state != SCHEDULED
            ]
            heapq.heapify(self._expiry)

    def end_receivers(self, error: BrokerError) -> None:
        """Close all receivers from the broker's side."""
        for receiver in list(self.receivers):
            receiver.end(error)

    def forget(self) -> None:
        """The entity is deleted: nothing of it is left in memory."""
        for message in self.messages.values():
            message.state = GONE
            if message.bare is not None:
                self.context.budget.released(message.size)
        self.messages.clear()
        self.locks.clear()
        self.changed.clear()
        self.lane = Lane()
        self.size = 0
        self._schedule.clear()
        self._expiry.clear()
