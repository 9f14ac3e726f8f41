"""A queue that requires sessions: one receiver at a time for each session, in order.

The lock of a session is the lock of all its messages. If it expires, the delivery count of the
messages that were delivered increases; if the holder closes, it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Unpack

from pairbus.broker.entities.context import Context
from pairbus.broker.entities.errors import (
    BrokerError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from pairbus.broker.entities.messages import NEVER, Details, Outcome, StoredMessage
from pairbus.broker.entities.queue import SERVE, Queue
from pairbus.broker.entities.ready_queue import ReadyQueue
from pairbus.broker.entities.receiver import Receiver
from pairbus.broker.entities.session_store import Session, SessionStore
from pairbus.broker.entities.settings import Settings

Accept = Callable[[Session], None]
Refuse = Callable[[BrokerError], None]


class PendingSession:
    """A receiver that waits for the next session without a holder."""

    def __init__(self, queue: SessionQueue, accept: Accept, refuse: Refuse) -> None:
        self._queue = queue
        self.accept = accept
        self.refuse = refuse

    def cancel(self) -> None:
        """Stop waiting; a second call does nothing."""
        if self in self._queue.pending:
            self._queue.pending.remove(self)


class SessionQueue(Queue):
    """A queue or subscription with ``requires_session``."""

    store: SessionStore
    store_type = SessionStore

    def __init__(self, context: Context, queue_id: int, path: str, settings: Settings) -> None:
        super().__init__(context, queue_id, path, settings)
        self.pending: list[PendingSession] = []

    # --- locking sessions -------------------------------------------------------------------------

    def accept(self, session_id: str, now: int) -> Session:
        """The session of this name, without a holder.

        Raises:
            SessionCannotBeLockedError: another receiver holds it.
        """
        session = self.store.session(session_id)
        self._end_if_expired(session, now)
        if session.holder is not None:
            raise SessionCannotBeLockedError(
                f"The requested session '{session_id}' cannot be accepted. It may be locked by "
                "another receiver."
            )
        return session

    def accept_next(self, accept: Accept, refuse: Refuse, now: int) -> PendingSession:
        """Call *accept*, now or later, with the next session that has messages and no holder.

        *refuse* is called instead if the entity is deleted or disabled in the meantime.
        """
        pending = PendingSession(self, accept, refuse)
        self.pending.append(pending)
        self._serve_pending(now)
        return pending

    def hold(self, session: Session, receiver: Receiver, now: int) -> None:
        """Lock a session without a holder for a receiver."""
        session.holder = receiver
        session.locked_until = now + self.settings.lock_duration
        self.store.available.pop(session.session_id, None)
        self.arm_at(session.locked_until)

    def held(self, session_id: str, now: int) -> Session:
        """The session of this name; SessionLockLostError if its lock has expired."""
        session = self.store.sessions.get(session_id)
        if session is not None:
            self._end_if_expired(session, now)
        if session is None or session.holder is None:
            raise SessionLockLostError(
                f"The lock of the session '{session_id}' has expired or was never held."
            )
        return session

    def renew_session(self, session_id: str, now: int) -> int:
        """Extend the lock of a session; returns its new end."""
        session = self.held(session_id, now)
        session.locked_until = until = now + self.settings.lock_duration
        for message in self._locked(session):
            message.locked_until = until
        return until

    def _held_sessions(self) -> list[Session]:
        return [r.session for r in self.receivers if r.session is not None]

    def _locked(self, session: Session) -> list[StoredMessage]:
        return [m for m in self.locks.values() if m.session_id == session.session_id]

    def _end_if_expired(self, session: Session, now: int) -> None:
        if session.holder is not None and session.locked_until <= now:
            holder = session.holder
            self._free(session, now, counted=True)
            holder.end(
                SessionLockLostError(f"The lock of the session '{session.session_id}' has expired.")
            )

    def _free(self, session: Session, now: int, *, counted: bool) -> None:
        """Release a session from its holder, and return its locked messages."""
        session.holder = None
        for message in self._locked(session):
            del self.locks[message.lock_token]
            self.requeue(message, now, counted=counted)
        if session.ready.first() is not None:
            self.store.offer(session)
        self.store.forget_if_empty(session)

    def on_close(self, receiver: Receiver, now: int) -> None:
        """A receiver closed: its session is available to the next one."""
        super().on_close(receiver, now)
        session = receiver.session
        if session is not None and session.holder is receiver:
            self._free(session, now, counted=False)
            self._serve_pending(now)

    # --- delivery ---------------------------------------------------------------------------------

    def dispatch(self, now: int) -> None:
        """Deliver to the holders of sessions, then to receivers that wait for one."""
        if self.settings.forward_to is not None:
            self.context.router.pump(self, now)
            return
        if not self.settings.can_receive:
            return
        for receiver in list(self.waiting):
            session = receiver.session
            if session is None or session.holder is not receiver or receiver.credit <= 0:
                self.unqueue_receiver(receiver)
                continue
            while receiver.credit > 0 and not receiver.is_closed and session.ready:
                deliveries = self.take(receiver, min(receiver.credit, SERVE), now)
                if not deliveries:
                    break
                receiver.deliver(deliveries, now)
            if receiver.credit <= 0:
                self.unqueue_receiver(receiver)
        self._serve_pending(now)

    def ready_for(self, receiver: Receiver) -> ReadyQueue:
        """The ready messages of the receiver's session."""
        assert receiver.session is not None  # receivers of this queue hold a session
        return receiver.session.ready

    def _serve_pending(self, now: int) -> None:
        while self.pending and self.store.available and self.settings.can_receive:
            session = self._next_available(now)
            if session is None:
                return
            self.pending.pop(0).accept(session)

    def _next_available(self, now: int) -> Session | None:
        while self.store.available:
            session_id, session = next(iter(self.store.available.items()))
            first = session.ready.first()
            if first is not None and first.expires_at <= now:
                self.expire(first, now)
                continue
            if first is not None and session.holder is None:
                return session
            self.store.available.pop(session_id, None)
        return None

    def settle(self, token: bytes, outcome: Outcome, now: int, **details: Unpack[Details]) -> bool:
        """Settle one locked message; False when the session's lock is lost."""
        message = self.locks.get(token)
        if message is not None:
            session = self.store.session(message.session_id)
            self._end_if_expired(session, now)
        return super().settle(token, outcome, now, **details)

    def complete(self, tokens: Iterable[bytes], now: int) -> list[bytes]:
        """Complete many messages; returns the tokens whose lock is lost."""
        return [token for token in tokens if not self.settle(token, Outcome.COMPLETE, now)]

    def end_receivers(self, error: BrokerError) -> None:
        """Refuse those that wait for a session, before one is released, and close all receivers."""
        pending, self.pending = self.pending, []
        for waiting in pending:
            waiting.refuse(error)
        super().end_receivers(error)

    # --- state ------------------------------------------------------------------------------------

    def set_state(self, session_id: str, state: bytes | None, now: int) -> None:
        """Store the state of a held session; None removes it."""
        session = self.held(session_id, now)
        session.state = state
        session.updated = now
        self.context.journal.entities.append(
            ("end-session", (self.store.queue_id, session_id))
            if state is None
            else ("session", (self.store.queue_id, session_id, state, now))
        )

    def list_sessions(self, updated_since: int | None, skip: int, top: int) -> list[str]:
        """Names of sessions that have messages, or whose state was set after a time."""
        if updated_since is None:
            names = [s.session_id for s in self.store.sessions.values() if s.count]
        else:
            names = [
                s.session_id
                for s in self.store.sessions.values()
                if s.state is not None and s.updated >= updated_since
            ]
        return names[skip : skip + top]

    # --- time -------------------------------------------------------------------------------------

    def due(self) -> int:
        """When the next lock of a session ends, or another action is due."""
        return min(super().due(), *(s.locked_until for s in self._held_sessions()), NEVER)

    def tick(self, now: int) -> None:
        """Perform the actions that are due; the locks of sessions end first."""
        for session in self._held_sessions():
            self._end_if_expired(session, now)
        super().tick(now)
