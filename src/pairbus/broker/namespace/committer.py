"""The life of a namespace: groups of changes are committed, answers follow, time passes.

Everything runs on one thread, the event loop's. What one turn of the loop staged (and what came
while the writer was busy) goes to the store as one transaction. Without a store there is nothing
to wait for, and without a loop everything happens within the call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pairbus.broker.entities.context import Budget, Context
from pairbus.broker.entities.counters import OperationCounter
from pairbus.broker.entities.errors import StoreError
from pairbus.broker.entities.journal import Journal
from pairbus.broker.entities.message_store import Shelf
from pairbus.broker.entities.messages import NEVER, AfterCommit, StoredMessage
from pairbus.broker.namespace.administration import Administration
from pairbus.broker.namespace.restore import restore

if TYPE_CHECKING:
    from pairbus.broker.store.store import Store

log = logging.getLogger("pairbus.broker.namespace")

RESUME = 1000  # milliseconds until something is written again after a write that failed
BODIES_IN_MEMORY = 64 * 1024 * 1024
"""Bytes of messages that stay in memory while the store has them too."""


def system_clock() -> int:
    """Now, in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


class Committing(Administration):
    """A catalog whose changes are committed in groups.

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
        self._resume_at = 0
        self.on_fatal: Callable[[Exception], None] | None = None
        """Called when the store can no longer be read, and so nothing can be answered."""
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
        self.context.journal.callbacks.append(lambda _: None)  # numbers alone would wait
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop = None
        self.flush()

    def after_commit(self, callback: AfterCommit) -> None:
        """Have *callback* called on the loop once everything staged so far is durable.

        It is called with None, or with the StoreError that kept the group from being stored.
        Where nothing is staged or on its way it is called at once, or at the end of the turn.
        """
        journal = self.context.journal
        if self._in_turn:
            journal.callbacks.append(callback)  # its end sees to it
        elif self._in_flight is None and not journal and not self._is_flushing:
            callback(None)
        else:
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
        journal = self.context.journal
        if self._is_flushing or self._in_flight is not None or not journal:
            return
        store = self._store
        if store is None:
            self.flush()
            self._rearm()
        elif self._loop is not None and not self._resume_at and store.is_light(journal):
            self._keep_here(store, journal.take())
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
        self._resume_at = 0
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
                if self._resume_at:
                    break  # what starting over has staged is for later
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
        if self._resume_at > (now := self.now()):
            self._is_scheduled = True
            loop.call_later((self._resume_at - now) / 1000, self._turn)
            return
        self._resume_at = 0
        group = self.context.journal.take()
        if self._store.is_light(group):
            self._keep_here(self._store, group)
            return
        self._in_flight = group

        def done(error: Exception | None) -> None:
            try:
                loop.call_soon_threadsafe(self._committed, group, error)
            except RuntimeError:
                log.debug("a group was committed after the loop had ended")

        self._store.submit(group, done)

    def _keep_here(self, store: Store, group: Journal) -> None:
        """Commit a light group on this thread, which is sooner than on the writer's."""
        error: Exception | None = None
        try:
            store.apply(group)
        except Exception as problem:  # noqa: BLE001 - whatever it is, senders must know
            error = problem
        self._committed(group, error)

    def _committed(self, group: Journal, error: Exception | None) -> None:
        self._is_flushing = True
        try:
            if error is None and not group.arrivals:
                self._call_back(group.callbacks, None)
            else:
                self._finish(group, error)
        finally:
            self._is_flushing = False
            self._in_flight = None
        self._rearm()
        if self.context.journal:
            self._changed()

    def _finish(self, group: Journal, problem: Exception | None) -> None:
        error: StoreError | None = None
        if isinstance(problem, StoreError):
            error = problem
        elif problem is not None:
            log.error("the store could not commit a group: %s", problem)
            error = StoreError("The broker could not store the request.")
        now = self.now()
        if error is None:
            for queue, staged in group.arrivals:
                self._publish(queue, staged, now)
        elif group.only_sends or self._store is None or self._store.is_closed:
            self._undo(group)
            for queue, staged in group.arrivals:
                queue.withdraw(staged)
        else:
            group.callbacks += self._start_over(error, now)
        self._call_back(group.callbacks, error)

    def _start_over(self, error: StoreError, now: int) -> list[AfterCommit]:
        """Read everything from the store again: what was decided meanwhile was not kept.

        Receivers are closed, locks are over, and entities are as they were. Returns those who wait
        for what was staged on top of the group that failed. The store is left in peace for a
        moment: what is due at once would fail at once, and so on without end.
        """
        assert self._store is not None  # it was the store that failed
        self.leave(error)
        waiting = self.context.journal.callbacks
        self.context.reset()
        self._resume_at = now + RESUME
        try:
            restore(self, self._store)
        except Exception as problem:
            log.critical("the store can be read no more: %s", problem)
            if self.on_fatal is not None:
                self.on_fatal(problem)
            else:
                raise
        return waiting

    def _publish(self, queue: Shelf, staged: list[StoredMessage], now: int) -> None:
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
        """Forget what must not be remembered of sends that were not stored."""
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

    def _load(self, queue: Shelf, messages: list[StoredMessage]) -> None:
        assert self._store is not None  # only a namespace with a store loads
        by_number = {message.sequence_number: message for message in messages}
        for number, notes, bare in self._store.read(queue.queue_id, list(by_number)):
            message = by_number[number]
            message.bare = bare
            message.annotations = notes or b""
            self.context.budget.grew(message.size)
