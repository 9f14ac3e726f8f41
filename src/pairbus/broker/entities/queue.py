"""A queue: ordered delivery to receivers, locks, deferral, schedules and expiry.

The class also serves subscriptions, dead-letter queues and the scheduled messages of a topic. It
decides in memory and stages changes in the journal; `Queue.publish` makes durable messages visible.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pairbus.broker.entities.context import Context
from pairbus.broker.entities.errors import (
    ArgumentError,
    BrokerError,
    EntityDisabledError,
    MessageLockLostError,
    MessageNotFoundError,
)
from pairbus.broker.entities.locks import LOCK_LOST, Locks
from pairbus.broker.entities.message_store import MessageStore
from pairbus.broker.entities.messages import (
    ACTIVE,
    DEFERRED,
    LOCKED,
    LOCKED_DEFERRED,
    NEVER,
    SCHEDULED,
    Delivery,
    Outcome,
    StoredMessage,
)
from pairbus.broker.entities.ready_queue import ReadyQueue
from pairbus.broker.entities.settings import Settings

if TYPE_CHECKING:
    from pairbus.broker.entities.receiver import Receiver

SERVE = 256  # messages that one receiver gets before it is the next receiver's turn


class Queue(MessageStore):
    """The messages of one entity, and the rules for receiving them."""

    def __init__(self, context: Context, queue_id: int, path: str, settings: Settings) -> None:
        super().__init__(context, queue_id, path, settings)
        self.locks = Locks()
        self.waiting: deque[Receiver] = deque()
        self.receivers: dict[Receiver, None] = {}  # in the order of their arrival
        self.next_due = NEVER
        self.accessed = 0
        self.is_retrying = False  # a timer will retry a refused forward
        self.aside: list[StoredMessage] = []  # messages that their forwarding target refuses

    def publish(self, staged: list[StoredMessage], now: int) -> None:
        """Make durable messages visible, and deliver them to waiting receivers."""
        if self.owner is not None and self.owner.is_deleted:
            return  # the entity was deleted before they were stored
        self.index(staged)
        self.context.budget.admit(staged)
        if self.schedule:
            self.arm_at(self.schedule[0][0])
        if self.expiry:
            self.arm_at(self.expiry[0][0])
            self._tidy_expiry()
        self.dispatch(now)

    # --- delivery ---------------------------------------------------------------------------------

    def enqueue_receiver(self, receiver: Receiver) -> None:
        """Add a receiver with credit to the waiting ones."""
        if not receiver.is_waiting:
            receiver.is_waiting = True
            self.waiting.append(receiver)

    def dispatch(self, now: int) -> None:
        """Deliver ready messages to waiting receivers, in turn."""
        waiting = self.waiting
        if self.settings.forward_to is not None:
            self.context.router.pump(self, now)
            return
        if not self.settings.can_receive:
            return
        while waiting and self.ready:
            receiver = waiting.popleft()
            receiver.is_waiting = False
            if receiver.credit <= 0:
                continue
            deliveries = self.take(receiver, min(receiver.credit, SERVE), now)
            if not deliveries:
                self.enqueue_receiver(receiver)
                break
            receiver.deliver(deliveries, now)
            if receiver.credit > 0 and not receiver.is_closed:
                self.enqueue_receiver(receiver)

    def transfer_count(self) -> int:
        """How many messages wait to be forwarded."""
        if self.settings.forward_to is None:
            return 0
        return sum(message.state == ACTIVE for message in self.messages.values())

    def set_aside(self, message: StoredMessage) -> None:
        """Keep a message that its forwarding target refuses, so that others can pass it."""
        self.aside.append(message)

    def retry_aside(self) -> None:
        """Return the messages that were set aside to their positions, to retry forwarding."""
        aside, self.aside = self.aside, []
        for message in aside:
            if message.state == ACTIVE:
                self.put_back(message)

    def next_to_forward(self) -> StoredMessage | None:
        """The next message to forward, or None."""
        return self.ready.pop()

    def take(self, receiver: Receiver, limit: int, now: int) -> list[Delivery]:
        """Lock (or remove) up to *limit* messages for a receiver."""
        taken: list[StoredMessage] = []
        ready = self.ready_for(receiver)
        while len(taken) < limit:
            found = ready.pop_many(limit - len(taken))
            if not found:
                break
            for message in found:
                if message.expires_at <= now:
                    self.expire(message, now)
                else:
                    taken.append(message)
        return self.make_deliveries(taken, receiver, now) if taken else []

    def ready_for(self, receiver: Receiver) -> ReadyQueue:
        """The ready messages that a receiver may get."""
        return self.ready

    def make_deliveries(
        self, taken: list[StoredMessage], receiver: Receiver, now: int, state: int = LOCKED
    ) -> list[Delivery]:
        """Turn messages that were taken from the ready queue into deliveries of this receiver."""
        self.fetch(taken)
        if receiver.is_destructive:
            for message in taken:
                self.remove(message)
            return [Delivery(b"", 0, message) for message in taken]
        until = self.lock_end(receiver, now)
        locks = self.locks
        deliveries = []
        for message, token in zip(taken, self.context.new_tokens(len(taken)), strict=True):
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
            self.lose_lock(message, now)
            return False
        del self.locks[token]
        if outcome is Outcome.COMPLETE:
            self.remove(message)
            return True
        if outcome is Outcome.RELEASE:
            self.requeue(message, now, counted=False)
            self.dispatch(now)
            return True
        if properties:
            self.change(message, properties)
        if outcome is Outcome.ABANDON:
            self.requeue(message, now, counted=True)
            self.dispatch(now)
        elif outcome is Outcome.DEFER:
            message.state = DEFERRED
            message.delivery_count += 1
            self.stage_update(message)
            if message.expires_at != NEVER:
                heapq.heappush(self.expiry, (message.expires_at, message.sequence_number))
                self.arm_at(message.expires_at)
        else:
            self.context.router.dead_letter(self, message, reason, description, now)
        return True

    def complete(self, tokens: Iterable[bytes], now: int) -> list[bytes]:
        """Complete many messages; returns the tokens whose lock is lost."""
        lost = []
        pop, remove = self.locks.pop, self.remove
        for token in tokens:
            message = pop(token, None)
            if message is None:
                lost.append(token)
            elif message.locked_until <= now:
                self.lose_lock(message, now)
                lost.append(token)
            else:
                remove(message)
        return lost

    def on_close(self, receiver: Receiver, now: int) -> None:
        """A receiver closed: its locks stay until they expire."""
        if receiver.is_waiting:
            self.waiting.remove(receiver)
            receiver.is_waiting = False

    def lose_lock(self, message: StoredMessage, now: int) -> None:
        """A lock expired: return the message to its position and count the delivery."""
        self.locks.pop(message.lock_token, None)
        self.requeue(message, now, counted=True)

    def requeue(self, message: StoredMessage, now: int, *, counted: bool) -> None:
        """Return a message that is no longer locked to its position."""
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
            self.stage_update(message)
        if message.expires_at != NEVER:
            heapq.heappush(self.expiry, (message.expires_at, message.sequence_number))
            self.arm_at(message.expires_at)
        if not was_deferred:
            self.put_back(message)

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
        return self.make_deliveries(deferred, receiver, now, LOCKED_DEFERRED)

    def renew(self, tokens: Iterable[bytes], now: int) -> list[int]:
        """Extend locks and return their new ends; nothing is renewed if one of them is lost."""
        held = [self.locks.get(token) for token in tokens]
        alive = [m for m in held if m is not None and m.locked_until > now]
        if len(alive) != len(held):
            raise MessageLockLostError(LOCK_LOST)
        if self.settings.requires_session:
            raise ArgumentError("Messages of a session are locked with it: renew the session.")
        until = now + self.settings.lock_duration
        self.locks.renew(alive, until)
        return [until] * len(alive)

    # --- time -------------------------------------------------------------------------------------

    def configure(self, settings: Settings, now: int) -> None:
        """Apply new settings."""
        if settings.lock_duration < self.settings.lock_duration:
            self.locks.is_ordered = False
        self.settings = settings
        if not settings.can_receive:
            self.end_receivers(
                EntityDisabledError(
                    f"Messaging entity '{self.path}' is currently disabled for receiving."
                )
            )
        self.arm()
        self.retry_aside()
        self.dispatch(now)

    def due(self) -> int:
        """When the next lock or message expires, or the next scheduled message is due."""
        soonest = self.locks.soonest_end()
        if self.schedule:
            soonest = min(soonest, self.schedule[0][0])
        if self.expiry:
            soonest = min(soonest, self.expiry[0][0])
        return soonest

    def arm(self) -> None:
        """Set the timer to the next due time."""
        self.arm_at(self.due())

    def arm_at(self, due: int) -> None:
        """Set the timer to this time if it is sooner."""
        if due < self.next_due:
            self.next_due = due
            self.context.arm(due, self)

    def tick(self, now: int) -> None:
        """End locks, activate scheduled messages and expire messages that are due."""
        self.next_due = NEVER
        for message in self.locks.ended(now):
            self.lose_lock(message, now)
        self._activate_scheduled(now)
        self._expire_due(now)
        self.arm()
        self.dispatch(now)

    def _activate_scheduled(self, now: int) -> None:
        due_messages = []
        while self.schedule and self.schedule[0][0] <= now:
            due, number = heapq.heappop(self.schedule)
            message = self.messages.get(number)
            if message is not None and message.state == SCHEDULED and message.expires_at == due:
                due_messages.append(message)
        if due_messages:
            self.context.router.activate(self, due_messages, now)

    def _expire_due(self, now: int) -> None:
        expiry = self.expiry
        while expiry and expiry[0][0] <= now:
            message = self.messages.get(heapq.heappop(expiry)[1])
            if (
                message is not None
                and message.expires_at <= now
                and message.state in (ACTIVE, DEFERRED)
            ):
                self.expire(message, now)

    def _tidy_expiry(self) -> None:
        if len(self.expiry) > 2 * len(self.messages) + 1024:
            # Most of these messages were consumed before they expired: shrink the heap.
            self.expiry = [
                (m.expires_at, m.sequence_number)
                for m in self.messages.values()
                if m.expires_at != NEVER and m.state != SCHEDULED
            ]
            heapq.heapify(self.expiry)

    def end_receivers(self, error: BrokerError) -> None:
        """Close all receivers from the broker's side."""
        for receiver in list(self.receivers):
            receiver.end(error)

    def forget(self) -> None:
        """The entity is deleted: release its memory."""
        super().forget()
        self.locks.clear()
        self.aside.clear()
