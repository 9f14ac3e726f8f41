"""A namespace: the operations of the service on its entities, executed in memory, stored in groups.

Everything here runs on one thread, the event loop's. A call changes the state in memory and stages
the changes; `Namespace.committer` stores them and reports when they are durable. A message that was
sent becomes visible to receivers when its group is durable.

Times are milliseconds since the Unix epoch. Lock tokens are the 16 bytes of the delivery tag.
Every method may raise a :class:`~pairbus.broker.entities.errors.BrokerError`, and then has changed
nothing, unless its description says otherwise.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from time import time_ns
from typing import Unpack

from pairbus.broker.entities.context import Budget, Context, Ticking
from pairbus.broker.entities.counters import OperationCounter
from pairbus.broker.entities.errors import (
    MessageLockLostError,
    StoreError,
)
from pairbus.broker.entities.journal import Journal
from pairbus.broker.entities.locks import LOCK_LOST
from pairbus.broker.entities.message_store import MessageStore
from pairbus.broker.entities.messages import (
    NEVER,
    Delivery,
    Details,
    IncomingMessage,
    Outcome,
    StoredMessage,
)
from pairbus.broker.entities.router import Router
from pairbus.broker.entities.sessions import SessionQueue
from pairbus.broker.namespace.administration import Administration
from pairbus.broker.namespace.catalog import Catalog
from pairbus.broker.namespace.committer import Committer, NoStore, log
from pairbus.broker.namespace.receivers import Receivers
from pairbus.broker.namespace.restore import restore
from pairbus.broker.namespace.timer import DeadlineTimer
from pairbus.broker.settings import Tier
from pairbus.broker.store.store import Store

PEEK_BYTES = 1024 * 1024
"""The most bytes that one peek returns, but at least one message."""
BODIES_IN_MEMORY = 64 * 1024 * 1024
"""The most bytes of stored messages that also stay in memory."""


class Namespace:
    """The entities of one namespace, and the operations on their messages.

    Args:
        name: its name.
        store: where entities and messages are stored; None keeps them in memory only.
        clock: the time in milliseconds since the Unix epoch; None: the system's.
        tier: the tier whose entities it accepts.

    Attributes:
        catalog: the entities by path.
        admin: creates, changes and deletes entities.
        committer: stores the staged changes.
        receivers: opens receivers, and operates on sessions.
        on_fatal: called when the store can no longer be read, and no request can be served.
    """

    def __init__(
        self,
        name: str = "local",
        store: Store | None = None,
        clock: Callable[[], int] | None = None,
        *,
        tier: Tier = Tier.PREMIUM,
    ) -> None:
        self.name = name
        self.on_fatal: Callable[[Exception], None] | None = None
        self._clock = clock
        self.latest = 0
        """The time that `now` returned last."""
        self._store = store
        self.context = Context(
            token_prefix=os.urandom(8),
            load=None if store is None else self._load,
            budget=Budget(NEVER if store is None else BODIES_IN_MEMORY),
        )
        self.catalog = Catalog(self.context)
        self.admin = Administration(name, self.catalog, self.context, self.now, tier)
        self._router = Router(self.context, self.catalog.find)
        self.receivers = Receivers(self.catalog, self.context, self.now)
        self._timer = DeadlineTimer(self.context.next_deadline, self.now, self.tick)
        self.committer = Committer(
            self.context,
            store or NoStore(),
            self.now,
            reload=self._reload,
            undo=self._undo,
            committed=self._timer.update,
        )
        self.context.changed = self.committer.changed
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
        now = time_ns() // 1_000_000 if self._clock is None else self._clock()
        if now > self.latest:
            self.latest = now
        return self.latest

    # --- lifetime ---------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit groups and watch deadlines on this loop."""
        self.committer.start(loop)
        self._timer.start(loop)

    def close(self, *, abrupt: bool = False) -> None:
        """Commit the staged changes and stop; the caller closes the store.

        Args:
            abrupt: drop the staged changes, as a crash of the process would.
        """
        self._timer.stop()
        self.committer.stop()
        if abrupt and self._store is not None:
            self.committer.drop()
        else:
            self.catalog.return_numbers()
            self.context.journal.callbacks.append(lambda _: None)  # numbers alone are not committed
        self.committer.flush()

    def arm(self, due: int, thing: Ticking) -> None:
        """Call ``tick`` of *thing* at this time."""
        self.context.arm(due, thing)
        self._timer.update()

    def tick(self) -> None:
        """Perform due actions: end locks, expire and activate messages, delete idle entities."""
        self.context.tick(self.now())
        self.committer.changed()

    def _load(self, store: MessageStore, messages: list[StoredMessage]) -> None:
        """Read the bytes of messages from the store."""
        assert self._store is not None  # only a namespace with a store loads
        by_number = {message.sequence_number: message for message in messages}
        try:
            rows = list(self._store.read(store.queue_id, list(by_number)))
        except Exception as problem:
            self._unreadable(problem)  # the caller has already taken the messages from their queue
            raise
        for number, notes, bare in rows:
            message = by_number[number]
            message.bare = bare
            message.annotations = notes or b""
            self.context.budget.grew(message.size)

    def _undo(self, group: Journal) -> None:
        """Remove the sends of a group that was not stored from memory."""
        histories = {
            entity.entity_id: entity.history
            for entity in self.catalog.by_key.values()
            if entity.history is not None
        }
        for kind, row in group.entities:
            if kind == "remember" and row[0] in histories:
                histories[row[0]].seen.pop(row[1], None)  # it can be sent again
        # Still reserved in memory. Later reservations must be written last.
        self.context.journal.numbers[:0] = group.numbers
        for store, staged in group.arrivals:
            store.withdraw(staged)

    def _reload(self, error: StoreError) -> None:
        """Drop all entities and read them from the store again."""
        assert self._store is not None  # it was the store that failed
        self.catalog.clear(error)
        self.context.reset()
        try:
            restore(self.admin, self._store)
        except Exception as problem:
            self._unreadable(problem)
            if self.on_fatal is None:
                raise

    def _unreadable(self, problem: Exception) -> None:
        log.critical("the store cannot be read any more: %s", problem)
        if self.on_fatal is not None:
            self.on_fatal(problem)

    # --- sending ----------------------------------------------------------------------------------

    def send(self, path: str, messages: Sequence[IncomingMessage]) -> None:
        """Accept messages for a queue or topic, all or none; acknowledge them after the commit.

        Pings are checked and counted like any message, and then dropped.
        """
        self._router.accept(self.catalog.target(path), messages, self.now())
        self.committer.changed()

    def schedule(self, path: str, messages: Sequence[IncomingMessage]) -> list[int]:
        """Accept messages to be enqueued later; returns their numbers, for `cancel_scheduled`.

        Each is enqueued at its ``scheduled`` time; without one, or if it is in the past, now.
        """
        kept = self._router.accept(self.catalog.target(path), messages, self.now(), "schedule")
        self.committer.changed()
        return [message.sequence_number for message in kept]

    def cancel_scheduled(self, path: str, sequence_numbers: Iterable[int]) -> None:
        """Remove scheduled messages, all or none (MessageNotFoundError)."""
        queue = self.catalog.entity(path).main
        self.operations.call(queue.path, "cancel")
        queue.store.cancel(sequence_numbers)
        self.committer.changed()

    def delete_messages(
        self, path: str, count: int, before: int, *, session_id: str | None = None
    ) -> int:
        """Delete up to *count* unlocked messages enqueued before a time; returns how many."""
        queue = self.catalog.queue_at(path)
        queue.accessed = self.now()
        deleted = queue.store.delete_active(count, before, session_id)
        self.operations.add(queue.path, "receive", 1, deleted, 0, max(1, deleted))
        self.committer.changed()
        return deleted

    # --- receiving --------------------------------------------------------------------------------

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
        found = queue.store.peek(from_sequence_number, count, session_id, max_bytes=PEEK_BYTES)
        queue.accessed = self.now()
        size = sum(delivery.message.size for delivery in found)
        self.operations.add(queue.path, "peek", 1, len(found), size, max(1, len(found)))
        return found

    # --- locks ------------------------------------------------------------------------------------

    def update_disposition(
        self,
        path: str,
        lock_tokens: Iterable[bytes],
        outcome: Outcome,
        *,
        session_id: str | None = None,
        **details: Unpack[Details],
    ) -> list[bytes]:
        """Settle messages by their tokens; acknowledge after the commit.

        Every message whose lock is valid is settled; returns the tokens whose lock is lost.
        """
        queue = self.catalog.queue_at(path)
        now = self.now()
        if session_id is not None and isinstance(queue, SessionQueue):
            queue.held(session_id, now)
        return queue.settle_many(lock_tokens, outcome, now, **details)

    def renew_lock(self, path: str, lock_tokens: Iterable[bytes]) -> list[int]:
        """Extend locks of messages, all or none (MessageLockLostError); returns their new ends."""
        queue = self.catalog.queue_at(path)
        tokens = list(lock_tokens)
        if not tokens:
            raise MessageLockLostError(LOCK_LOST)
        self.operations.add(queue.path, "renew", 1, len(tokens), 0, len(tokens))
        return queue.renew(tokens, self.now())
