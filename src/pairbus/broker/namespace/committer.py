"""Commits the staged changes of a namespace in groups, and acknowledges them afterwards.

Everything runs on the event loop's thread. The changes that one iteration of the loop staged, and
those that were staged while an earlier group was being stored, are one group. Once it is durable,
its messages become visible to receivers and its callbacks run; if it could not be stored, the
callbacks get the error. Without an event loop a group is committed within the call that staged it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pairbus.broker.entities.context import Context
from pairbus.broker.entities.errors import StoreError
from pairbus.broker.entities.journal import Journal
from pairbus.broker.entities.messages import AfterCommit

if TYPE_CHECKING:
    from pairbus.broker.store.store import Store

log = logging.getLogger("pairbus.broker.namespace")

PAUSE = 1000  # milliseconds without writing after a failed group with more than sends


class NoStore:
    """The store of a namespace in memory: every commit succeeds immediately."""

    is_closed = False

    def commit(self, group: Journal, done: AfterCommit) -> None:
        """Report success."""
        done(None)

    def wait(self) -> None:
        """Nothing to wait for."""

    def notify_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Nothing is done on another thread."""


class Committer:
    """Hands the staged changes to the store, one group at a time.

    Args:
        context: has the journal.
        store: where groups are stored.
        now: the time in milliseconds.
        reload: reads all entities from the store again; it gets the error of the commit.
        undo: removes the sends of a group that was not stored from memory.
        committed: called after each group.
    """

    def __init__(
        self,
        context: Context,
        store: Store | NoStore,
        now: Callable[[], int],
        *,
        reload: Callable[[StoreError], None],
        undo: Callable[[Journal], None],
        committed: Callable[[], None],
    ) -> None:
        self._context = context
        self._store = store
        self._now = now
        self._reload = reload
        self._undo = undo
        self._on_committed = committed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._group: Journal | None = None
        """The group that is being stored or acknowledged."""
        self._is_scheduled = False
        self._in_turn = False
        self._resume_at = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit once per turn of this loop."""
        self._loop = loop
        self._store.notify_on(loop)

    def stop(self) -> None:
        """Commit within each call again."""
        self._loop = None
        self._store.notify_on(None)

    def after_commit(self, callback: AfterCommit) -> None:
        """Call *callback* once all changes staged so far are durable.

        It is called with None, or with the StoreError of the group that could not be stored. If
        nothing is staged or being stored, it is called immediately.
        """
        journal = self._context.journal
        if self._group is None and not self._in_turn and not journal:
            callback(None)
        else:
            journal.callbacks.append(callback)
            if not self._in_turn:
                self.changed()

    def begin_turn(self) -> None:
        """Commit nothing before :meth:`end_turn`: the changes in between are one group."""
        self._in_turn = True

    def end_turn(self) -> None:
        """Commit the changes since :meth:`begin_turn`; a second call does nothing.

        A connection that has read its socket calls this before it writes its answers, so that one
        message is acknowledged in the turn of the loop in which it arrived.
        """
        self._in_turn = False
        if self._group is not None:
            return
        if self._loop is None:
            self.flush()
        elif not self._commit():
            self._on_committed()  # nothing to store, but a deadline may have changed

    def changed(self) -> None:
        """Commit staged changes at the end of this turn of the loop."""
        if self._in_turn or self._is_scheduled or self._group is not None:
            return
        if self._loop is None:
            self.flush()
        else:
            self._is_scheduled = True
            self._loop.call_soon(self._run_scheduled)

    def flush(self) -> None:
        """Commit everything that is staged, and wait for it."""
        self._resume_at = 0
        while (self._group is not None or self._context.journal) and not self._resume_at:
            self._commit()
            self._store.wait()
        self._on_committed()

    def drop(self) -> None:
        """Drop the staged changes; their callbacks get an error."""
        error = StoreError("The broker was stopped before it stored the request.")
        _report(self._context.take_journal(), error)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self._commit()
        self._on_committed()

    def _commit(self) -> bool:
        """Hand the staged changes to the store; False if it is busy, or nothing is staged."""
        if self._group is not None or not self._context.journal:
            return False
        if self._resume_at and self._loop is not None:
            wait = self._resume_at - self._now()
            if wait > 0:
                self._is_scheduled = True
                self._loop.call_later(wait / 1000, self._run_scheduled)
                return False
            self._resume_at = 0
        self._group = group = self._context.take_journal()
        self._store.commit(group, self._stored)
        return True

    def _stored(self, problem: Exception | None) -> None:
        group = self._group
        assert group is not None  # the store reports each group once
        try:
            error: StoreError | None = None
            if isinstance(problem, StoreError):
                error = problem
            elif problem is not None:
                log.error("the store could not commit a group: %s", problem)
                error = StoreError("The broker could not store the request.")
            if error is None:
                for store, staged in group.arrivals:
                    try:
                        store.publish(staged, self._now())
                    except Exception:
                        log.exception("messages of '%s' could not be delivered", store.path)
            elif self._store.is_closed or (
                # A later message may have been dropped as a duplicate of one in this group.
                group.only_sends and not (group.entities and self._context.journal)
            ):
                self._undo(group)
            else:
                # Later changes were based on the lost group: read everything from the store again.
                # Receivers are closed and locks end. Nothing is written for a second: the next
                # group would probably fail in the same way.
                group.callbacks += self._context.journal.callbacks
                self._resume_at = self._now() + PAUSE
                self._reload(error)
            _report(group, error)
        finally:
            self._group = None
        if self._loop is not None:
            self._on_committed()
            if self._context.journal:
                self.changed()


def _report(group: Journal, error: StoreError | None) -> None:
    for callback in group.callbacks:
        try:
            callback(error)
        except Exception:
            log.exception("an acknowledgement failed")
