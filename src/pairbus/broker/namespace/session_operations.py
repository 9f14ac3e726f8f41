"""Operations on the sessions of a namespace: state, locks and names."""

from __future__ import annotations

from collections.abc import Callable

from pairbus.broker.entities.context import Context
from pairbus.broker.entities.errors import NotAllowedError
from pairbus.broker.entities.sessions import SessionQueue
from pairbus.broker.namespace.catalog import Catalog


class Sessions:
    """Sessions by the path of their queue.

    Args:
        catalog: the entities by path.
        context: shared by the entities of the namespace.
        now: the time in milliseconds.
    """

    def __init__(self, catalog: Catalog, context: Context, now: Callable[[], int]) -> None:
        self._catalog = catalog
        self._context = context
        self._now = now

    def renew(self, path: str, session_id: str) -> int:
        """Extend the lock of a session (SessionLockLostError if it is lost); returns its end."""
        queue = self._queue(path)
        self._context.operations.call(queue.path, "renew")
        return queue.renew_session(session_id, self._now())

    def get_state(self, path: str, session_id: str) -> bytes | None:
        """The state of a session; SessionLockLostError if it is not locked."""
        queue = self._queue(path)
        self._context.operations.call(queue.path, "session")
        return queue.held(session_id, self._now()).state

    def set_state(self, path: str, session_id: str, state: bytes | None) -> None:
        """Store the state of a locked session; acknowledge after the commit."""
        queue = self._queue(path)
        self._context.operations.call(queue.path, "session")
        queue.set_state(session_id, state, self._now())
        self._context.changed()

    def names(
        self, path: str, *, updated_since: int | None = None, skip: int = 0, top: int = 100
    ) -> list[str]:
        """Names of sessions: those with messages, or with state set since a time."""
        queue = self._queue(path)
        self._context.operations.call(queue.path, "session")
        return queue.list_sessions(updated_since, skip, top)

    def _queue(self, path: str) -> SessionQueue:
        queue = self._catalog.queue_at(path)
        if not isinstance(queue, SessionQueue):
            raise NotAllowedError(f"'{queue.path}' does not require sessions.")
        return queue
