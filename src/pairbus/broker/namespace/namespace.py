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

from collections.abc import Callable, Iterable, Mapping, Sequence

from pairbus.broker.entities.counters import Kind, billable
from pairbus.broker.entities.entity import Entity, TopicEntity
from pairbus.broker.entities.errors import (
    ArgumentError,
    EntityDisabledError,
    MessageLockLostError,
    NotAllowedError,
)
from pairbus.broker.entities.messages import (
    Delivery,
    IncomingMessage,
    Outcome,
    ReceiverHost,
    StoredMessage,
)
from pairbus.broker.entities.queue import LOCK_LOST, Queue
from pairbus.broker.entities.receiver import Receiver
from pairbus.broker.entities.sessions import PendingSession, Session, SessionQueue
from pairbus.broker.namespace.catalog import MAX_CACHED
from pairbus.broker.namespace.committer import BODIES_IN_MEMORY, Committing, system_clock

__all__ = ["BODIES_IN_MEMORY", "Namespace", "system_clock"]

PEEK_BYTES = 1024 * 1024
"""Bytes that one peek answers at most (but always one message)."""


class Namespace(Committing):
    """The entities of one namespace, and what can be done with them.

    Args:
        name: for people.
        store: where things are kept; None keeps them in memory only.
        clock: gives the time in milliseconds.
    """

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
        queue.receivers[receiver] = None
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
