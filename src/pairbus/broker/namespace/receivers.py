"""Opens the receivers of a namespace, fetches messages by number, and operates on sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pairbus.broker.entities.context import Context
from pairbus.broker.entities.counters import Kind
from pairbus.broker.entities.entity import TopicEntity
from pairbus.broker.entities.errors import ArgumentError, EntityDisabledError, NotAllowedError
from pairbus.broker.entities.messages import Delivery, ReceiverHost
from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.receiver import Receiver
from pairbus.broker.entities.session_store import Session
from pairbus.broker.entities.sessions import PendingSession, SessionQueue
from pairbus.broker.namespace.catalog import Catalog
from pairbus.names import billable


class Receivers:
    """Opens receivers, and operates on the sessions that they hold.

    Args:
        catalog: the entities by path.
        context: shared by the entities of the namespace.
        now: the time in milliseconds.
    """

    def __init__(self, catalog: Catalog, context: Context, now: Callable[[], int]) -> None:
        self._catalog = catalog
        self._context = context
        self._now = now

    def open(
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
            session_id: the session to lock; SessionCannotBeLockedError if it has a holder.
        """
        queue = self._receivable(path)
        session = None
        if session_id is not None:
            session = self._with_sessions(queue).accept(session_id, self._now())
            self._context.changed()
        elif isinstance(queue, SessionQueue):
            raise NotAllowedError(
                f"It is not possible for an entity that requires sessions to create a "
                f"non-sessionful message receiver: '{queue.path}'."
            )
        return self._open(queue, host, session, is_destructive=receive_and_delete)

    def accept_next(
        self,
        path: str,
        host: ReceiverHost,
        on_accept: Callable[[Receiver], None],
        *,
        receive_and_delete: bool = False,
    ) -> PendingSession:
        """Call *on_accept* with a receiver of the next session that has messages and no holder.

        This may happen before the method returns. The caller cancels the returned object when the
        client's timeout has passed.
        """
        queue = self._with_sessions(self._receivable(path))
        pending = queue.accept_next(
            lambda session: on_accept(
                self._open(queue, host, session, is_destructive=receive_and_delete)
            ),
            host.closed,
            self._now(),
        )
        self._context.changed()
        return pending

    def take_deferred(
        self,
        path: str,
        sequence_numbers: Iterable[int],
        *,
        receive_and_delete: bool = False,
        session_id: str | None = None,
    ) -> list[Delivery]:
        """Lock (or remove) deferred messages by number, all or none (MessageNotFoundError).

        Answer a removal after the commit. A session must be locked.
        """
        queue = self._receivable(path)
        queue.accessed = now = self._now()
        session: Session | None = None
        if isinstance(queue, SessionQueue):
            if session_id is None:
                raise ArgumentError(f"'{queue.path}' requires sessions: name one.")
            session = queue.held(session_id, now)
        deliveries = queue.receive_deferred(
            sequence_numbers, now, session=session, is_destructive=receive_and_delete
        )
        size = sum(delivery.message.size for delivery in deliveries)
        units = sum(billable(delivery.message.size) for delivery in deliveries)
        self._context.operations.add(queue.path, "deferred", 1, len(deliveries), size, units)
        self._context.changed()
        return deliveries

    # --- sessions ---------------------------------------------------------------------------------

    def renew_session(self, path: str, session_id: str) -> int:
        """Extend the lock of a session (SessionLockLostError if it is lost); returns its end."""
        return self._session_queue(path, "renew").renew_session(session_id, self._now())

    def session_state(self, path: str, session_id: str) -> bytes | None:
        """The state of a session; SessionLockLostError if it is not locked."""
        return self._session_queue(path).held(session_id, self._now()).state

    def set_session_state(self, path: str, session_id: str, state: bytes | None) -> None:
        """Store the state of a locked session; acknowledge after the commit."""
        self._session_queue(path).set_state(session_id, state, self._now())
        self._context.changed()

    def list_sessions(
        self, path: str, *, updated_since: int | None = None, skip: int = 0, top: int = 100
    ) -> list[str]:
        """Names of sessions: those with messages, or with state set since a time."""
        return self._session_queue(path).list_sessions(updated_since, skip, top)

    def _session_queue(self, path: str, kind: Kind = "session") -> SessionQueue:
        queue = self._catalog.queue_at(path)
        if not isinstance(queue, SessionQueue):
            raise NotAllowedError(f"'{queue.path}' does not require sessions.")
        self._context.operations.call(queue.path, kind)
        return queue

    # --- opening ----------------------------------------------------------------------------------

    def _open(
        self, queue: Queue, host: ReceiverHost, session: Session | None, *, is_destructive: bool
    ) -> Receiver:
        receiver = Receiver(queue, host, self._now, is_destructive=is_destructive, session=session)
        queue.receivers[receiver] = None
        queue.accessed = self._now()
        if session is not None and isinstance(queue, SessionQueue):
            queue.hold(session, receiver, queue.accessed)
        return receiver

    def _with_sessions(self, queue: Queue) -> SessionQueue:
        if not isinstance(queue, SessionQueue):
            raise NotAllowedError(
                f"A sessionful message receiver cannot be created on '{queue.path}': it does not "
                "require sessions."
            )
        self._context.operations.call(queue.path, "session")
        return queue

    def _receivable(self, path: str) -> Queue:
        queue = self._catalog.queue_at(path)
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
