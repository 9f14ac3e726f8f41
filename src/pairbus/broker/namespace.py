"""A namespace: every operation of the service on its entities, decided at once, kept in groups.

Everything here runs on one thread, the event loop's. A call decides in memory and stages what must
be kept; :meth:`Namespace.after_commit` says when it is. The staged changes of one turn of the loop
(and of all turns while the writer is busy) go to the store as one transaction. What was sent
becomes visible to receivers when its group is durable; without a store, at the end of the turn
(and without a loop, at once).

Times are milliseconds since the Unix epoch. Lock tokens are the 16 bytes of the delivery tag.
Every method may raise a :class:`~pairbus.broker.entities.errors.BrokerError`, and then has changed
nothing unless it says so.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from .catalog import MAX_CACHED, Catalog
from .entities.context import Budget, Context
from .entities.counters import Kind, OperationCounter, billable
from .entities.entity import Entity, TopicEntity
from .entities.errors import (
    ArgumentError,
    EntityDisabledError,
    MessageLockLostError,
    NotAllowedError,
    StoreError,
)
from .entities.journal import Journal
from .entities.messages import (
    NEVER,
    AfterCommit,
    Delivery,
    IncomingMessage,
    Outcome,
    ReceiverHost,
    StoredMessage,
)
from .entities.queue import LOCK_LOST, Queue
from .entities.receiver import Receiver
from .entities.sessions import PendingSession, Session, SessionQueue
from .restore import restore

if TYPE_CHECKING:
    from .store import Store

log = logging.getLogger("pairbus.broker.namespace")

BODIES_IN_MEMORY = 64 * 1024 * 1024
"""Bytes of messages that stay in memory while the store has them too."""

PEEK_BYTES = 1024 * 1024
"""Bytes that one peek answers at most (but always one message)."""


def system_clock() -> int:
    """Now, in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


class Namespace(Catalog):
    """The entities of one namespace, and what can be done with them.

    Args:
        name: for people.
        store: where things are kept; None keeps them in memory only.
        clock: gives the time in milliseconds.
    """

    def __init__(
        self,
        name: str = "local",
        store: Store | None = None,
        clock: Callable[[], int] = system_clock,
    ) -> None:
        self.name = name
        self._store = store
        self._raw_clock = clock
        self._latest = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = NEVER
        self._is_flushing = False
        self._is_scheduled = False
        self._in_turn = False
        self._in_flight: Journal | None = None
        context = Context(
            token_prefix=os.urandom(8),
            load=None if store is None else self._load,
            budget=Budget(NEVER if store is None else BODIES_IN_MEMORY),
            changed=self._changed,
        )
        super().__init__(context, self.now)
        if store is not None:
            restore(self, store)
            self.flush()

    def __repr__(self) -> str:
        return f"<Namespace {self.name} {len(self.entities_by_key)} entities>"

    @property
    def operations(self) -> OperationCounter:
        """Operations as the service would bill them, by ``(entity path, kind)``."""
        return self.context.operations

    def now(self) -> int:
        """The time; it never goes backwards."""
        now = self._raw_clock()
        if now > self._latest:
            self._latest = now
        return self._latest

    # --- life -------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Work by itself on this loop from now on: commit groups and watch the time."""
        self._loop = loop
        self._rearm()

    def close(self) -> None:
        """Commit what is staged and stop; the store stays open, it is the caller's."""
        self.return_numbers()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop = None
        self.flush()

    def after_commit(self, callback: AfterCommit) -> None:
        """Have *callback* called on the loop once everything staged so far is durable.

        It is called with None, or with the StoreError that kept the group from being stored.
        Where nothing is staged or on its way it is called at once.
        """
        journal = self.context.journal
        if self._in_flight is None and not journal and not self._is_flushing:
            callback(None)
            return
        journal.callbacks.append(callback)
        self._changed()

    def begin_turn(self) -> None:
        """What follows belongs together: commit nothing before :meth:`end_turn`."""
        self._in_turn = True

    def end_turn(self) -> None:
        """Commit what was staged since :meth:`begin_turn`; a few rows at once. Twice is fine.

        A connection that has read its socket calls this before it writes its answers, so that one
        message is acknowledged in the turn of the loop in which it came.
        """
        self._in_turn = False
        if self.context.journal and not self._is_flushing and self._in_flight is None:
            if self._store is None or self._store.is_light(self.context.journal):
                self._turn()
            else:
                self._changed()

    def next_deadline(self) -> int:
        """When :meth:`tick` has something to do; NEVER if nothing is due at all."""
        return self.context.next_deadline()

    def tick(self, now: int | None = None) -> None:
        """Let happen what is due: locks end, messages expire, schedules begin, idle ones go."""
        self.context.tick(self.now() if now is None else now)
        self._changed()

    def flush(self) -> None:
        """Commit everything that is staged, now, and wait for it."""
        if self._is_flushing:
            return
        self._is_flushing = True
        try:
            if self._store is None:
                self._forget_journal()
                return
            while self.context.journal:
                group = self.context.journal.take()
                error: Exception | None = None
                try:
                    self._store.commit(group)
                except Exception as problem:  # noqa: BLE001 - whatever it is, senders must know
                    error = problem
                self._finish(group, error)
        finally:
            self._is_flushing = False

    def _forget_journal(self) -> None:
        """Without a store there is nothing to keep: publish, call back, and forget the rest."""
        journal = self.context.journal
        while journal.arrivals or journal.callbacks:
            arrivals, callbacks = journal.take_arrivals()
            if arrivals:
                now = self.now()
                for queue, staged in arrivals:
                    self._publish(queue, staged, now)
            self._call_back(callbacks, None)
        journal.clear()

    def _changed(self) -> None:
        """Something may be staged: see to it that it is committed."""
        if self._in_turn or self._is_flushing or self._is_scheduled or self._in_flight is not None:
            return
        if self._loop is None:
            self.flush()
            self._rearm()
        else:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Once per turn of the loop: hand what is staged to the writer."""
        self._is_scheduled = False
        loop = self._loop
        if self._store is None or loop is None:
            self.flush()
            self._rearm()
            return
        self._rearm()
        if self._in_flight is not None or not self.context.journal:
            return
        group = self.context.journal.take()
        if self._store.is_light(group):
            error: Exception | None = None
            try:
                self._store.apply(group)
            except Exception as problem:  # noqa: BLE001 - whatever it is, senders must know
                error = problem
            self._committed(group, error)
            return
        self._in_flight = group

        def done(error: Exception | None) -> None:
            try:
                loop.call_soon_threadsafe(self._committed, group, error)
            except RuntimeError:
                log.debug("a group was committed after the loop had ended")

        self._store.submit(group, done)

    def _committed(self, group: Journal, error: Exception | None) -> None:
        self._is_flushing = True
        try:
            self._finish(group, error)
        finally:
            self._is_flushing = False
            self._in_flight = None
        self._rearm()
        if self.context.journal:
            self._changed()

    def _finish(self, group: Journal, error: Exception | None) -> None:
        if error is not None and not isinstance(error, StoreError):
            log.error("the store could not commit a group: %s", error)
            error = StoreError("The broker could not store the request.")
        if error is not None:
            self._undo(group)
        now = self.now()
        for queue, staged in group.arrivals:
            if error is None:
                self._publish(queue, staged, now)
            else:
                queue.withdraw(staged)
        self._call_back(group.callbacks, error)

    def _publish(self, queue: Queue, staged: list[StoredMessage], now: int) -> None:
        try:
            queue.publish(staged, now)
        except Exception:
            log.exception("messages of '%s' could not be handed over", queue.path)

    def _call_back(self, callbacks: list[AfterCommit], error: Exception | None) -> None:
        for callback in callbacks:
            try:
                callback(error)
            except Exception:
                log.exception("an acknowledgement failed")

    def _undo(self, group: Journal) -> None:
        """Forget what must not be remembered of a group that was not stored."""
        histories = {
            entity.entity_id: entity.history
            for entity in self.entities_by_key.values()
            if entity.history is not None
        }
        for kind, row in group.entities:
            if kind == "remember" and row[0] in histories:
                histories[row[0]].forget(row[1])
        self.context.journal.numbers += group.numbers  # reserved in memory: so keep them yet

    def _rearm(self) -> None:
        """Set the loop's timer to the next deadline."""
        if self._loop is None:
            return
        due = self.context.next_deadline()
        if due == self._timer_due and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due = due
        if due != NEVER:
            delay = max(0, due - self.now()) / 1000
            self._timer = self._loop.call_later(min(delay, 86_400), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._timer_due = NEVER
        self.tick()
        self._rearm()

    def _load(self, queue: Queue, messages: list[StoredMessage]) -> None:
        assert self._store is not None  # only a namespace with a store loads
        by_number = {message.sequence_number: message for message in messages}
        for number, notes, bare in self._store.read(queue.queue_id, list(by_number)):
            message = by_number[number]
            message.bare = bare
            message.annotations = notes or b""
            self.context.budget.grew(message.size)

    # --- sending ----------------------------------------------------------------------------------

    def send(self, path: str, messages: Sequence[IncomingMessage]) -> None:
        """Take messages for a queue or topic, all or none; acknowledge in ``after_commit``.

        Pings are checked like any message, counted, and go no further.
        """
        self._accept(path, messages, "send")

    def schedule(self, path: str, messages: Sequence[IncomingMessage]) -> list[int]:
        """Take messages to be enqueued later; returns their numbers, by which to cancel them.

        The times are the messages' ``scheduled``; one without, or in the past, is enqueued now.
        """
        numbers = self._accept(path, messages, "schedule")
        return [message.sequence_number for message in numbers]

    def _accept(
        self, path: str, messages: Sequence[IncomingMessage], kind: Kind
    ) -> list[StoredMessage]:
        entity = self.targets.get(path) or self._target(path)
        kept = self.router.accept(entity, messages, self.now(), kind)
        self._changed()
        return kept

    def _target(self, path: str) -> Entity:
        """The entity that takes what is sent to this path."""
        entity = self._find(path) or self.entity(path)
        if not isinstance(entity, TopicEntity) and entity.topic is not None:
            raise NotAllowedError(f"'{path}' is a subscription: send to its topic.")
        if "$" in path:
            raise NotAllowedError(f"'{path}' takes no messages from senders.")
        if len(self.targets) > MAX_CACHED:
            self.targets.clear()
        self.targets[path] = entity
        return entity

    def cancel_scheduled(self, path: str, sequence_numbers: Iterable[int]) -> None:
        """Remove scheduled messages, all or none (MessageNotFoundError)."""
        queue = self.entity(path).main
        self.operations.call(queue.path, "cancel")
        queue.cancel(sequence_numbers)
        self._changed()

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
            queue.receivers.add(receiver)
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
        """Have *on_accept* called with a receiver of the next free session with messages.

        That may be at once, before this returns. The caller keeps the time, and cancels what this
        returns when the client's patience ends (OperationTimeoutError is the answer then).
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
        queue.receivers.add(receiver)
        now = self.now()
        queue.accessed = now
        queue.hold(session, receiver, now)
        return receiver

    def _receivable(self, path: str) -> Queue:
        queue = self.queue_at(path)
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
        queue = self.queue_at(path)
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

        Answer a removal in ``after_commit``. With a session its lock must be alive.
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
                queue, _NOWHERE, self.now, is_destructive=receive_and_delete, session=session
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
        """Settle messages by their tokens; acknowledge in ``after_commit``.

        Every token whose lock is alive is settled; returns those whose lock is lost.
        """
        queue = self.queue_at(path)
        now = self.now()
        if session_id is not None and isinstance(queue, SessionQueue):
            queue.held(session_id, now)
        lost = []
        count = 0
        for token in lock_tokens:
            count += 1
            if not queue.settle(
                token,
                outcome,
                now,
                reason=reason,
                description=description,
                properties=properties,
            ):
                lost.append(token)
        self.operations.add(queue.path, "settle", 1, count, 0, count)
        self._changed()
        return lost

    def renew_lock(self, path: str, lock_tokens: Iterable[bytes]) -> list[int]:
        """Extend locks of messages, all or none (MessageLockLostError); returns their new ends."""
        queue = self.queue_at(path)
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
        """Keep the state of a session whose lock is alive; acknowledge in ``after_commit``."""
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
        queue = self.queue_at(path)
        if not isinstance(queue, SessionQueue):
            raise NotAllowedError(f"'{queue.path}' does not require sessions.")
        return queue

    # --- counting ---------------------------------------------------------------------------------

    def count_admin(self, path: str) -> None:
        """Count one call of the administration API; its front end calls this once per request."""
        self.operations.call(path, "admin")


class _Nowhere:
    """The host of a receiver that only exists to hold locks taken by number."""

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Never called: such a receiver has no credit."""

    def drained(self) -> None:
        """Never called either."""

    def closed(self, error: Exception) -> None:
        """Nobody to tell."""


_NOWHERE = _Nowhere()
