"""A queue: ordered delivery to receivers, locks, deferral, schedules and expiry of its messages.

The class also serves subscriptions, dead-letter queues and the scheduled messages of a topic. It
decides in memory and stages changes in the journal; `Queue.publish` makes durable messages visible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Unpack

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
    Delivery,
    Details,
    Outcome,
    StoredMessage,
)
from pairbus.broker.entities.ready_queue import ReadyQueue
from pairbus.broker.entities.settings import Settings

if TYPE_CHECKING:
    from pairbus.broker.entities.entity import QueueEntity, TopicEntity
    from pairbus.broker.entities.receiver import Receiver
    from pairbus.broker.entities.session_store import Session

SERVE = 256  # messages that one receiver gets before it is the next receiver's turn


class Queue:
    """The rules for receiving the messages of one entity.

    Attributes:
        store: the messages.
        locks: the locked messages by lock token.
        waiting: receivers with credit, in turn.
    """

    is_dead_letter = False
    store_type = MessageStore

    def __init__(self, context: Context, queue_id: int, path: str, settings: Settings) -> None:
        self.context = context
        self.path = path
        self.settings = settings
        self.owner: QueueEntity | TopicEntity | None = None
        self.store = self.store_type(context, queue_id, path, self.publish)
        self.store.default_ttl = settings.default_ttl
        self.locks = Locks()
        self.waiting: deque[Receiver] = deque()
        self.receivers: dict[Receiver, None] = {}  # in the order of their arrival
        self.next_due = NEVER
        self.accessed = 0
        self.retry_at = NEVER  # when a refused forward is retried
        self._aside: list[StoredMessage] = []  # messages that their forwarding target refuses
        self._aside_until = NEVER

    def publish(self, staged: list[StoredMessage], now: int) -> None:
        """Make durable messages visible, and deliver them to waiting receivers."""
        if self.owner is not None and self.owner.is_deleted:
            return  # the entity was deleted before they were stored
        self.store.index(staged)
        self.context.budget.admit(staged)
        deadlines = self.store.deadlines
        if deadlines.scheduled or deadlines.expiring:
            self.arm_at(deadlines.soonest())
        self.dispatch(now)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {len(self.store.messages)} messages>"

    # --- delivery ---------------------------------------------------------------------------------

    def enqueue_receiver(self, receiver: Receiver) -> None:
        """Add a receiver with credit to the waiting ones."""
        if not receiver.is_waiting:
            receiver.is_waiting = True
            self.waiting.append(receiver)

    def unqueue_receiver(self, receiver: Receiver) -> None:
        """Remove a receiver from the waiting ones."""
        if receiver.is_waiting:
            receiver.is_waiting = False
            self.waiting.remove(receiver)

    def dispatch(self, now: int) -> None:
        """Deliver ready messages to waiting receivers, in turn."""
        waiting = self.waiting
        if self.settings.forward_to is not None:
            self.context.router.pump(self, now)
            return
        if not self.settings.can_receive:
            return
        while waiting and self.store.ready:
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
        return sum(message.state == ACTIVE for message in self.store.messages.values())

    def retry(self, due: int) -> None:
        """Forward nothing before this time, and then try again."""
        self.retry_at = due
        self.arm_at(due)

    def set_aside(self, message: StoredMessage, until: int) -> None:
        """Set aside a dead letter that its target refuses, so that others can pass it."""
        if not self._aside:
            self._aside_until = until
            self.arm_at(until)
        self._aside.append(message)

    def _return_aside(self) -> None:
        """Return the messages that were set aside to their positions, to retry forwarding."""
        aside, self._aside = self._aside, []
        self._aside_until = NEVER
        for message in aside:
            if message.state == ACTIVE:
                self.store.put_back(message)

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
        if not taken:
            return []
        return self.make_deliveries(
            taken, now, session=receiver.session, is_destructive=receiver.is_destructive
        )

    def ready_for(self, receiver: Receiver) -> ReadyQueue:
        """The ready messages that a receiver may get."""
        return self.store.ready

    def make_deliveries(
        self,
        taken: list[StoredMessage],
        now: int,
        *,
        session: Session | None,
        is_destructive: bool,
        state: int = LOCKED,
    ) -> list[Delivery]:
        """Lock (or remove) messages that were taken from the ready queue."""
        self.store.fetch(taken)
        if is_destructive:
            for message in taken:
                self.store.remove(message)
            return [Delivery(b"", 0, message) for message in taken]
        # The lock of a session is the lock of its messages.
        until = now + self.settings.lock_duration if session is None else session.locked_until
        locks = self.locks
        deliveries = []
        for message, token in zip(taken, self.context.new_tokens(len(taken)), strict=True):
            message.state = state
            message.lock_token = token
            message.locked_until = until
            locks[token] = message
            deliveries.append(Delivery(token, until, message))
        self.arm_at(until)
        return deliveries

    # --- settling ---------------------------------------------------------------------------------

    def settle(self, token: bytes, outcome: Outcome, now: int, **details: Unpack[Details]) -> bool:
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
            self.store.remove(message)
            return True
        if properties := details.get("properties"):
            self.store.change(message, properties)
        if outcome in (Outcome.ABANDON, Outcome.RELEASE):
            self.requeue(message, now, counted=outcome is Outcome.ABANDON)
            self.dispatch(now)
        elif outcome is Outcome.DEFER:
            message.state = DEFERRED
            message.delivery_count += 1
            self.store.stage_update(message)
            self._watch_expiry(message)
        else:
            reason, description = details.get("reason"), details.get("description")
            self.context.router.dead_letter(self, message, reason, description, now)
        return True

    def settle_many(
        self, tokens: Iterable[bytes], outcome: Outcome, now: int, **details: Unpack[Details]
    ) -> list[bytes]:
        """Settle many messages with the same outcome; returns the tokens whose lock is lost."""
        tokens = list(tokens)
        if outcome is Outcome.COMPLETE:
            lost = self.complete(tokens, now)
        else:
            lost = [token for token in tokens if not self.settle(token, outcome, now, **details)]
        self.context.operations.add(self.path, "settle", 1, len(tokens), 0, len(tokens))
        self.context.changed()
        return lost

    def complete(self, tokens: Iterable[bytes], now: int) -> list[bytes]:
        """Complete many messages; returns the tokens whose lock is lost."""
        lost = []
        pop, remove = self.locks.pop, self.store.remove
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
        self.unqueue_receiver(receiver)

    def lose_lock(self, message: StoredMessage, now: int) -> None:
        """A lock expired: return the message to its position and count the delivery."""
        self.locks.pop(message.lock_token, None)
        self.requeue(message, now, counted=True)

    def requeue(self, message: StoredMessage, now: int, *, counted: bool) -> None:
        """Return a message that is no longer locked to its position."""
        was_deferred = message.state == LOCKED_DEFERRED
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
            self.store.stage_update(message)
        self._watch_expiry(message)
        if not was_deferred:
            self.store.put_back(message)

    def _watch_expiry(self, message: StoredMessage) -> None:
        if message.expires_at != NEVER:
            self.store.deadlines.watch(message)
            self.arm_at(message.expires_at)

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
            self.store.remove(message)

    # --- by number --------------------------------------------------------------------------------

    def receive_deferred(
        self,
        numbers: Iterable[int],
        now: int,
        *,
        session: Session | None = None,
        is_destructive: bool = False,
    ) -> list[Delivery]:
        """Lock (or remove) deferred messages by their numbers; all of them or none."""
        found = [self.store.messages.get(number) for number in dict.fromkeys(numbers)]
        deferred = [
            m
            for m in found
            if m is not None
            and m.state == DEFERRED
            and m.expires_at > now
            and (session is None or m.session_id == session.session_id)
        ]
        if len(deferred) != len(found):
            raise MessageNotFoundError(
                "Failed to find one or more of the deferred messages, or they are locked."
            )
        return self.make_deliveries(
            deferred, now, session=session, is_destructive=is_destructive, state=LOCKED_DEFERRED
        )

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
        self.store.default_ttl = settings.default_ttl
        if not settings.can_receive:
            self.end_receivers(
                EntityDisabledError(
                    f"Messaging entity '{self.path}' is currently disabled for receiving."
                )
            )
        self._return_aside()
        self.arm()
        self.dispatch(now)

    def due(self) -> int:
        """When the next action is due: a lock or message ends, a message is enqueued or retried."""
        return min(
            self.locks.soonest_end(),
            self.store.deadlines.soonest(),
            self.retry_at,
            self._aside_until,
        )

    def arm(self) -> None:
        """Set the timer to the next due time."""
        self.arm_at(self.due())

    def arm_at(self, due: int) -> None:
        """Set the timer to this time if it is sooner."""
        if due < self.next_due:
            self.next_due = due
            self.context.arm(due, self)

    def tick(self, now: int) -> None:
        """Perform the actions that are due."""
        self.next_due = NEVER
        for message in self.locks.ended(now):
            self.lose_lock(message, now)
        if scheduled := self.store.deadlines.take_scheduled(now):
            self.context.router.activate(self, scheduled, now)
        for message in self.store.deadlines.take_expired(now):
            self.expire(message, now)
        if self.retry_at <= now:
            self.retry_at = NEVER
        if self._aside_until <= now:
            self._return_aside()
        self.arm()
        self.dispatch(now)

    def end_receivers(self, error: BrokerError) -> None:
        """Close all receivers from the broker's side."""
        for receiver in list(self.receivers):
            receiver.end(error)

    def forget(self) -> None:
        """The entity is deleted: release its memory."""
        self.store.forget()
        self.locks.clear()
        self._aside.clear()
