"""The stored messages of a queue that requires sessions, by session."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pairbus.broker.entities.context import Context
from pairbus.broker.entities.message_store import MessageStore
from pairbus.broker.entities.messages import ACTIVE, StoredMessage
from pairbus.broker.entities.ready_queue import ReadyQueue

if TYPE_CHECKING:
    from pairbus.broker.entities.receiver import Receiver


class Session:
    """One session of a queue. It exists as long as it has messages, state, or a holder."""

    __slots__ = ("count", "holder", "locked_until", "ready", "session_id", "state", "updated")

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.ready = ReadyQueue()
        self.count = 0  # messages of this session, in any state
        self.holder: Receiver | None = None
        self.locked_until = 0
        self.state: bytes | None = None
        self.updated = 0  # when the state was set

    def __repr__(self) -> str:
        return f"<Session {self.session_id!r} {self.count} messages>"


class SessionStore(MessageStore):
    """Stored messages, each in the ready queue of its session."""

    def __init__(
        self,
        context: Context,
        queue_id: int,
        path: str,
        publish: Callable[[list[StoredMessage], int], None],
    ) -> None:
        super().__init__(context, queue_id, path, publish)
        self.sessions: dict[str, Session] = {}
        self.available: OrderedDict[str, Session] = OrderedDict()
        """Sessions with messages and without a holder, longest waiting first."""

    def session(self, session_id: str | None) -> Session:
        """The session of this name; created if it does not exist."""
        session_id = session_id or ""
        session = self.sessions.get(session_id)
        if session is None:
            session = self.sessions[session_id] = Session(session_id)
        return session

    def index(self, stored: Iterable[StoredMessage]) -> None:
        """Add messages to the index, each to its session's ready queue."""
        stored = list(stored)
        super().index(stored)
        self.ready.fresh.clear()
        self.ready.returned.clear()
        for message in stored:
            session = self.session(message.session_id)
            session.count += 1
            if message.state == ACTIVE:
                session.ready.push(message)
                self.offer(session)

    def put_back(self, message: StoredMessage) -> None:
        """Return an active message to its position in its session."""
        session = self.session(message.session_id)
        session.ready.put_back(message)
        self.offer(session)

    def pop_ready(self) -> StoredMessage | None:
        """Take the next message of a session without a holder, or None; session by session."""
        while self.available:
            session_id, session = next(iter(self.available.items()))
            message = session.ready.pop()
            if message is not None:
                return message
            del self.available[session_id]
        return None

    def remove(self, message: StoredMessage) -> None:
        """Remove a message, and its session if that is empty now."""
        super().remove(message)
        session = self.sessions.get(message.session_id or "")
        if session is not None:
            session.count -= 1
            self.forget_if_empty(session)

    def offer(self, session: Session) -> None:
        """Make a session available, unless it has a holder."""
        if session.holder is None and session.session_id not in self.available:
            self.available[session.session_id] = session

    def forget_if_empty(self, session: Session) -> None:
        """Remove a session without messages, state and holder."""
        if session.count == 0 and session.state is None and session.holder is None:
            self.sessions.pop(session.session_id, None)
            self.available.pop(session.session_id, None)

    def forget(self) -> None:
        """Remove messages and sessions from memory: the entity is deleted."""
        super().forget()
        self.sessions.clear()
        self.available.clear()
