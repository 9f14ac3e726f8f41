"""A namespace: the operations of the service on its entities, decided in memory, stored in groups.

Everything here runs on one thread, the event loop's. A call decides in memory and stages what must
be stored; `Namespace.committer` stores it and says when it is durable. A message that was sent
becomes visible to receivers when its group is durable.

Times are milliseconds since the Unix epoch. Lock tokens are the 16 bytes of the delivery tag.
Every method may raise a :class:`~pairbus.broker.entities.errors.BrokerError`, and then has changed
nothing unless it says so.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from pairbus.broker.entities.context import Budget, Context, Ticking
from pairbus.broker.entities.counters import Kind, OperationCounter
from pairbus.broker.entities.entity import TopicEntity
from pairbus.broker.entities.errors import (
    ArgumentError,
    EntityDisabledError,
    MessageLockLostError,
    NotAllowedError,
    StoreError,
)
from pairbus.broker.entities.journal import Journal
from pairbus.broker.entities.message_store import MessageStore
from pairbus.broker.entities.messages import (
    NEVER,
    Delivery,
    IncomingMessage,
    Outcome,
    ReceiverHost,
    StoredMessage,
)
from pairbus.broker.entities.queue import LOCK_LOST, Queue
from pairbus.broker.entities.receiver import Receiver
from pairbus.broker.entities.router import Router
from pairbus.broker.entities.sessions import PendingSession, Session, SessionQueue
from pairbus.broker.namespace.administration import Administration
from pairbus.broker.namespace.catalog import Catalog
from pairbus.broker.namespace.committer import Committer, NoStore, log
from pairbus.broker.namespace.restore import restore
from pairbus.broker.namespace.timer import DeadlineTimer
from pairbus.broker.settings import Tier
from pairbus.broker.store.store import Store
from pairbus.names import billable

PEEK_BYTES = 1024 * 1024
"""Bytes that one peek answers at most (but always one message)."""
BODIES_IN_MEMORY = 64 * 1024 * 1024
"""Bytes of messages that stay in memory although the store has them too."""


def system_clock() -> int:
    """Now, in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


class Namespace:
    """The entities of one namespace, and the operations on their messages.

    Args:
        name: its name.
        store: where entities and messages are stored; None keeps them in memory only.
        clock: the time in milliseconds.
        token_prefix: eight bytes that make lock tokens unique beyond this process.
        tier: the tier whose entities it accepts.

    Attributes:
        catalog: the entities by path.
        admin: creates, changes and deletes entities.
        committer: stores the staged changes.
        on_fatal: called when the store can no longer be read, so that nothing can be answered.
    """

    def __init__(
        self,
        name: str = "local",
        store: Store | None = None,
        clock: Callable[[], int] = system_clock,
        *,
        token_prefix: bytes | None = None,
        tier: Tier = Tier.PREMIUM,
    ) -> None:
        self.name = name
        self.on_fatal: Callable[[Exception], None] | None = None
        self._clock = clock
        self.latest = 0
        """The time that `now` gave last."""
        self._store = store
        self.context = Context(
            token_prefix=token_prefix or os.urandom(8),
            load=None if store is None else self._load,
            budget=Budget(NEVER if store is None else BODIES_IN_MEMORY),
            changed=self._changed,
        )
        self.catalog = Catalog(self.context)
        self.admin = Administration(name, self.catalog, self.context, self.now, tier)
        self._router = Router(self.context, self.catalog.find)
        self._timer = DeadlineTimer(self.next_deadline, self.now, self.tick)
        self.committer = Committer(
            self.context,
            store or NoStore(),
            self.now,
            reload=self._reload,
            undo=self._undo,
            committed=self._timer.update,
        )
        if store is not None:
            restore(self.admin, store)
            self.committer.flush()

    def __repr__(self) -> str:
        return f"<Namespace {self.name} {len(self.catalog.by_key)} entities>"

    @property
    def operations(self) -> OperationCounter:
        """Operations as the service would bill them, by ``(entity path, kind)``."""
        return self.context.operations

    def now(self) -> int:
        """The time; it never goes backwards."""
        now = self._clock()
        if now > self.latest:
            self.latest = now
        return self.latest

    # --- life -------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit groups and watch deadlines on this loop."""
        self.committer.start(loop)
        self._timer.start(loop)

    def close(self, *, abrupt: bool = False) -> None:
        """Commit what is staged and stop; the store stays open, it is the caller's.

        Args:
            abrupt: drop what is staged, as the death of the process would.
        """
        self._timer.stop()
        self.committer.stop()
        if abrupt and self._store is not None:
            self.context.take_journal()
        else:
            self.catalog.return_numbers()
            self.context.journal.callbacks.append(lambda _: None)  # numbers alone would wait
        self.committer.flush()

    def next_deadline(self) -> int:
        """When :meth:`tick` has something to do; NEVER if nothing is due at all."""
        return self.context.next_deadline()

    def arm(self, due: int, thing: Ticking) -> None:
        """Call *thing* at this time."""
        self.context.arm(due, thing)
        self._timer.update()

    def tick(self, now: int | None = None) -> None:
        """Do what is due: end locks, expire messages, enqueue scheduled ones, delete idle ones."""
        self.context.tick(self.now() if now is None else now)
        self._changed()

    def _changed(self) -> None:
        self.committer.changed()

    def _load(self, queue: MessageStore, messages: list[StoredMessage]) -> None:
        """Read the bytes of messages from the store."""
        assert self._store is not None  # only a namespace with a store loads
        by_number = {message.sequence_number: message for message in messages}
        for number, notes, bare in self._store.read(queue.queue_id, list(by_number)):
            message = by_number[number]
            message.bare = bare
            message.annotations = notes or b""
            self.context.budget.grew(message.size)

    def _undo(self, group: Journal) -> None:
        """Forget the sends of a group that was not stored."""
        histories = {
            entity.entity_id: entity.history
            for entity in self.catalog.by_key.values()
            if entity.history is not None
        }
        for kind, row in group.entities:
            if kind == "remember" and row[0] in histories:
                histories[row[0]].forget(row[1])
        self.context.journal.numbers += group.numbers  # still reserved in memory
        for queue, staged in group.arrivals:
            queue.withdraw(staged)

    def _reload(self, error: StoreError) -> None:
        """Forget all entities and read them from the store again."""
        assert self._store is not None  # it was the store that failed
        self.catalog.clear(error)
        self.context.reset()
        try:
            restore(self.admin, self._store)
        except Exception as problem:
            log.critical("the store cannot be read any more: %s", problem)
            if self.on_fatal is None:
                raise
            self.on_fatal(problem)

    # --- sending ----------------------------------------------------------------------------------

    def send(self, path: str, messages: Sequence[IncomingMessage]) -> None:
        """Take messages for a queue or topic, all or none; acknowledge them after the commit.

        Pings are checked and counted like any message, and then dropped.
        """
        self._accept(path, messages, "send")

    def schedule(self, path: str, messages: Sequence[IncomingMessage]) -> list[int]:
        """Take messages to be enqueued later; returns their numbers, by which to cancel them.

        The times are the messages' ``scheduled``; one without, or in the past, is enqueued now.
        """
        return [message.sequence_number for message in self._accept(path, messages, "schedule")]

    def _accept(
        self, path: str, messages: Sequence[IncomingMessage], kind: Kind
    ) -> list[StoredMessage]:
        kept = self._router.accept(self.catalog.target(path), messages, self.now(), kind)
        self._changed()
        return kept

    def cancel_scheduled(self, path: str, sequence_numbers: Iterable[int]) -> None:
        """Remove scheduled messages, all or none (MessageNotFoundError)."""
        queue = self.catalog.entity(path).main
        self.operations.call(queue.path, "cancel")
        queue.cancel(sequence_numbers)
        self._changed()

    def delete_messages(
        self, path: str, count: int, before: int, *, session_id: str | None = None
    ) -> int:
        """Delete up to *count* unlocked messages enqueued before a time; returns how many."""
        queue = self.catalog.queue_at(path)
        queue.accessed = self.now()
        deleted = queue.delete_active(count, before, session_id)
        self.operations.add(queue.path, "receive", 1, deleted, 0, max(1, deleted))
        self._changed()
        return deleted

    # --- receiving --------------------------------------------------------------------------------

    def open_receiver(
        self,
        path: str,
        host: ReceiverHost,
        *,
        receive_and_delete: bool = False,
        session_id: str | None = None,
    ) -> Receiver:
        """A receiver on a queue, subscription or dead-letter queue; it starts without credit.

        Args:
            path: where to receive from.
            host: gets the deliveries.
            receive_and_delete: remove messages as they are delivered, instead of locking them.
            session_id: the session to hold, which must be free (SessionCannotBeLockedError).
        """
        queue = self._receivable(path)
        if not isinstance(queue, SessionQueue):
            if session_id is not None:
                raise NotAllowedError(
                    f"A sessionful message receiver cannot be created on '{queue.path}': it does "
                    "not require sessions."
                )
            receiver = Receiver(queue, host, self.now, is_destructive=receive_and_delete)
            queue.receivers[receiver] = None
            queue.accessed = self.now()
            return receiver
        if session_id is None:
            raise NotAllowedError(
                f"It is not possible for an entity that requires sessions to create a "
                f"non-sessionful message receiver: '{queue.path}'."
            )
        now = self.now()
        self.operations.call(queue.path, "session")
        session = queue.accept(session_id, now)
        self._changed()
        return self._hold(queue, session, host, receive_and_delete=receive_and_delete)

    def accept_next_session(
        self,
        path: str,
        host: ReceiverHost,
        on_accept: Callable[[Receiver], None],
        *,
        receive_and_delete: bool = False,
    ) -> PendingSession:
        """Call *on_accept* with a receiver of the next free session that has messages.

        That may happen before this returns. The caller cancels the returned object when the
        client's time-out has passed.
        """
        queue = self._receivable(path)
        if not isinstance(queue, SessionQueue):
            raise NotAllowedError(
                f"A sessionful message receiver cannot be created on '{queue.path}': it does "
                "not require sessions."
            )
        self.operations.call(queue.path, "session")
        pending = queue.accept_next(
            lambda session: on_accept(
                self._hold(queue, session, host, receive_and_delete=receive_and_delete)
            ),
            host.closed,
            self.now(),
        )
        self._changed()
        return pending

    def _hold(
        self,
        queue: SessionQueue,
        session: Session,
        host: ReceiverHost,
        *,
        receive_and_delete: bool,
    ) -> Receiver:
        receiver = Receiver(
            queue, host, self.now, is_destructive=receive_and_delete, session=session
        )
        queue.receivers[receiver] = None
        now = self.now()
        queue.accessed = now
        queue.hold(session, receiver, now)
        return receiver

    def _receivable(self, path: str) -> Queue:
        queue = self.catalog.queue_at(path)
        if isinstance(queue.owner, TopicEntity):
            raise NotAllowedError(f"'{path}' is a topic: receive from one of its subscriptions.")
        if not queue.settings.can_receive:
            raise EntityDisabledError(
                f"Messaging entity '{queue.path}' is currently disabled for receiving."
            )
        if queue.settings.forward_to is not None:
            raise NotAllowedError(
                f"'{queue.path}' forwards its messages to '{queue.settings.forward_to}': receive "
                "there."
            )
        return queue

    def peek(
        self,
        path: str,
        from_sequence_number: int,
        count: int,
        *,
        session_id: str | None = None,
    ) -> list[Delivery]:
        """Up to *count* messages from a number on, in any state, unlocked and unchanged."""
        queue = self.catalog.queue_at(path)
        found = queue.peek(from_sequence_number, count, session_id, max_bytes=PEEK_BYTES)
        queue.accessed = self.now()
        size = sum(delivery.message.size for delivery in found)
        self.operations.add(queue.path, "peek", 1, len(found), size, max(1, len(found)))
        return found

    def receive_deferred(
        self,
        path: str,
        sequence_numbers: Iterable[int],
        *,
        receive_and_delete: bool = False,
        session_id: str | None = None,
    ) -> list[Delivery]:
        """Lock (or remove) deferred messages by number, all or none (MessageNotFoundError).

        Answer a removal after the commit. With a session its lock must be alive.
        """
        queue = self._receivable(path)
        now = self.now()
        session: Session | None = None
        receiver: Receiver | None = None
        if isinstance(queue, SessionQueue):
            if session_id is None:
                raise ArgumentError(f"'{queue.path}' requires sessions: name one.")
            session = queue.held(session_id, now)
            receiver = session.holder
        if receiver is None or receiver.is_destructive != receive_and_delete:
            receiver = Receiver(
                queue, _NO_HOST, self.now, is_destructive=receive_and_delete, session=session
            )
        deliveries = queue.receive_deferred(sequence_numbers, receiver, now)
        size = sum(delivery.message.size for delivery in deliveries)
        units = sum(billable(delivery.message.size) for delivery in deliveries)
        self.operations.add(queue.path, "deferred", 1, len(deliveries), size, units)
        self._changed()
        return deliveries

    # --- locks ------------------------------------------------------------------------------------

    def update_disposition(
        self,
        path: str,
        lock_tokens: Iterable[bytes],
        outcome: Outcome,
        *,
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, object] | None = None,
        session_id: str | None = None,
    ) -> list[bytes]:
        """Settle messages by their tokens; acknowledge after the commit.

        Every token whose lock is alive is settled; returns those whose lock is lost.
        """
        queue = self.catalog.queue_at(path)
        now = self.now()
        if session_id is not None and isinstance(queue, SessionQueue):
            queue.held(session_id, now)
        tokens = list(lock_tokens)
        if outcome is Outcome.COMPLETE:
            lost = queue.complete(tokens, now)
        else:
            lost = [
                token
                for token in tokens
                if not queue.settle(
                    token,
                    outcome,
                    now,
                    reason=reason,
                    description=description,
                    properties=properties,
                )
            ]
        self.operations.add(queue.path, "settle", 1, len(tokens), 0, len(tokens))
        self._changed()
        return lost

    def renew_lock(self, path: str, lock_tokens: Iterable[bytes]) -> list[int]:
        """Extend locks of messages, all or none (MessageLockLostError); returns their new ends."""
        queue = self.catalog.queue_at(path)
        tokens = list(lock_tokens)
        if not tokens:
            raise MessageLockLostError(LOCK_LOST)
        self.operations.add(queue.path, "renew", 1, len(tokens), 0, len(tokens))
        return queue.renew(tokens, self.now())

    def renew_session(self, path: str, session_id: str) -> int:
        """Extend the lock of a session (SessionLockLostError); returns its new end."""
        queue = self._session_queue(path)
        self.operations.call(queue.path, "renew")
        return queue.renew_session(session_id, self.now())

    # --- sessions ---------------------------------------------------------------------------------

    def get_session_state(self, path: str, session_id: str) -> bytes | None:
        """The state of a session whose lock is alive (SessionLockLostError)."""
        queue = self._session_queue(path)
        self.operations.call(queue.path, "session")
        return queue.held(session_id, self.now()).state

    def set_session_state(self, path: str, session_id: str, state: bytes | None) -> None:
        """Store the state of a session whose lock is alive; acknowledge after the commit."""
        queue = self._session_queue(path)
        self.operations.call(queue.path, "session")
        queue.set_state(session_id, state, self.now())
        self._changed()

    def list_sessions(
        self, path: str, *, updated_since: int | None = None, skip: int = 0, top: int = 100
    ) -> list[str]:
        """Names of sessions: those with messages, or with state set since a time."""
        queue = self._session_queue(path)
        self.operations.call(queue.path, "session")
        return queue.list_sessions(updated_since, skip, top)

    def _session_queue(self, path: str) -> SessionQueue:
        queue = self.catalog.queue_at(path)
        if not isinstance(queue, SessionQueue):
            raise NotAllowedError(f"'{queue.path}' does not require sessions.")
        return queue


class _NoHost:
    """The host of a receiver that only holds locks taken by number: nothing is delivered to it."""

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Not called: such a receiver has no credit."""

    def drained(self) -> None:
        """Not called: such a receiver has no credit."""

    def closed(self, error: Exception) -> None:
        """No client to notify."""


_NO_HOST = _NoHost()
