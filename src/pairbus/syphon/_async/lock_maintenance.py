"""Maintain locks: return held messages that are due, renew the others, check uncertain queues.

The guard is the coordinator's; it is never held during a request to the secondary, or while the
journal is read or written. While messages of a queue are being returned, the queue is in
`returning` and must not be read.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from pairbus.names import billable
from pairbus.runtime import AsyncCondition, AsyncRuntime
from pairbus.syphon._async.backlog import BacklogQueues
from pairbus.syphon.held import HeldMessages, newest_first
from pairbus.syphon.orphaned_locks import Check, Inspection, OrphanedLocks, tokens_to_return
from pairbus.syphon.planner import Planner
from pairbus.syphon.records import HeldMessage

__all__ = ["LockMaintenance"]

LOCK_SECONDS = 60.0  # assumed until the lock duration is known


class LockMaintenance:
    """Returns, renews and checks the locks of the syphon.

    Args:
        runtime: the clock.
        guard: protects `held`, `orphans` and `planner`.
        backlog: the secondary.
        held: the messages that stay locked.
        orphans: the uncertain queues.
        planner: learns which queues have messages again.
        count: counts an operation for the ledger: stage, queue, operation, calls, messages, bytes,
            billable.
        publish: writes the files that tasks read; called before a message is returned.
    """

    def __init__(
        self,
        runtime: AsyncRuntime,
        guard: AsyncCondition,
        backlog: BacklogQueues,
        held: HeldMessages,
        orphans: OrphanedLocks,
        planner: Planner,
        count: Callable[..., None],
        publish: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._guard = guard
        self._backlog = backlog
        self._held = held
        self._orphans = orphans
        self._planner = planner
        self._count = count
        self._publish = publish
        self._freed: list[HeldMessage] = []  # to be returned
        self._on_the_way: list[HeldMessage] = []  # being returned
        self._stuck: set[str] = set()  # tokens that could not be returned, and are tried again
        self.lock_seconds: float | None = None
        self.has_changed = False

    @property
    def returning(self) -> set[str]:
        """Queues whose messages are being returned now."""
        return {message.queue for message in self._on_the_way}

    @property
    def unreturned(self) -> list[HeldMessage]:
        """Messages that are no longer held, but still locked: the next coordinator returns them."""
        return [*self._freed, *self._on_the_way]

    def free(self, messages: Iterable[HeldMessage]) -> None:
        """Return these messages with the next `return_due`; the guard is held."""
        self._freed += messages

    async def return_due(self, reachable_at: float = 0.0) -> None:
        """Return freed messages and those whose wait is over.

        Args:
            reachable_at: when a probe last reached the primary.
        """
        with self._guard:
            self._held.reach_primary(reachable_at, self._runtime.time())
            due = self._held.due(self._runtime.time())
            queues = self._start_returning(due)
        await self._return(queues)

    async def return_all(self) -> None:
        """Return all held messages and recorded locks, because the syphon is asked to end."""
        for queue, found in self._orphans.pages().items():
            for page, tokens in tokens_to_return(found):
                if await self._abandon(queue, tokens):
                    page.mark_returned()
        with self._guard:
            queues = self._start_returning(self._held.take_all())
        await self._return(queues)

    def _start_returning(self, messages: Iterable[HeldMessage]) -> dict[str, list[HeldMessage]]:
        freed, self._freed = self._freed, []
        queues: dict[str, list[HeldMessage]] = {}
        for message in newest_first([*freed, *messages]):
            queues.setdefault(message.queue, []).append(message)
            self._on_the_way.append(message)
        return queues

    async def _return(self, queues: dict[str, list[HeldMessage]]) -> None:
        if not queues:
            return
        try:
            self._publish()  # tasks must know the probe before they can receive it
            for queue in list(queues):
                tokens = [bytes.fromhex(message.token) for message in queues[queue]]
                is_returned = await self._abandon(queue, tokens)
                self._end_returning(queue, queues.pop(queue), is_returned)
        finally:
            for queue, messages in queues.items():  # a step failed: these may still be locked
                self._end_returning(queue, messages, False)

    def _end_returning(self, queue: str, messages: list[HeldMessage], is_returned: bool) -> None:
        tokens = {message.token for message in messages}
        with self._guard:
            self._on_the_way = [one for one in self._on_the_way if one.token not in tokens]
            self._planner.ready([queue])
            self.has_changed = True
            if is_returned:
                self._stuck -= tokens
                return
            self._freed += messages  # try again
            if not tokens <= self._stuck:
                self._stuck |= tokens
                self._orphans.suspect(queue, self._runtime.time())

    async def _abandon(self, queue: str, tokens: list[bytes]) -> bool:
        number = await self._backlog.abandon(queue, tokens)
        if number:
            self._count("settle", queue, "abandoned", 1, number, 0, number)
        return number is not None

    async def renew(self) -> None:
        """Renew the locks of held messages that have less than half of their time left."""
        with self._guard:
            lock = self.lock_seconds or LOCK_SECONDS
            renewals = self._held.renewals(self._runtime.time(), lock=lock)
        for queue, names in renewals.items():
            tokens = [bytes.fromhex(name) for name in names]
            until = await self._backlog.renew(queue, tokens)
            self._count("management", queue, "renew", 1, len(tokens), 0, len(tokens))
            with self._guard:
                self._held.renewed({token.hex(): end for token, end in until.items()})
                self.has_changed = True

    async def check_orphans(self, busy: set[str]) -> None:
        """Check the uncertain queues that are due.

        Args:
            busy: queues that a task or a poll reads: an inspection locks a message for a moment.
        """
        with self._guard:
            now = self._runtime.time()
            # A queue without messages is not inspected: that would cost an operation.
            wanted = set(self._planner.ready_queues) - busy
            due = [queue for queue in self._orphans.due(now) if queue in wanted]
            checks = [self._orphans.begin_check(queue, now) for queue in due]
        if checks:
            pages = self._orphans.pages()
            for check in checks:
                found = replace(check, pages=tuple(pages.get(check.queue, ())))
                await self._check_orphan(found, now)

    async def _check_orphan(self, check: Check, now: float) -> None:
        queue = check.queue
        with self._guard:
            known = {held.sequence for held in self._held.messages() if held.queue == queue}
            lock = self.lock_seconds
        inspection: Inspection | None = None
        has_returned, answered_at = True, now
        if check.needs_inspection:
            inspection = await self._backlog.inspect(queue, check.after, known)
            answered_at = self._runtime.time()
            if inspection is not None:
                self._count_inspection(queue, inspection)
        if inspection is not None or not check.needs_inspection:
            for page, tokens in check.to_return:
                if not await self._abandon(queue, tokens):
                    has_returned = False
                    break
                page.mark_returned()
        with self._guard:
            is_clear = self._orphans.end_check(
                check, now, inspection=inspection, answered_at=answered_at,
                has_returned=has_returned, lock_seconds=lock,
            )  # fmt: skip
        if is_clear:
            for page in check.pages:
                page.remove()
            with self._guard:
                self._orphans.clear(check)

    def count_released(self, queue: str, size: int, billable: int) -> None:
        """Count a message that was received to look at the queue, and released."""
        self._count("receive_backlog", queue, "doorbell", 1, 0, size, billable)
        self._count("settle", queue, "released", 1, 1, 0, 1)

    def _count_inspection(self, queue: str, inspection: Inspection) -> None:
        if inspection.size is None:
            self._count("idle_poll", queue, "receive", 1, 0, 0, 1)
        else:
            self.count_released(queue, inspection.size, billable(inspection.size))
        if inspection.peeks:
            self._count("management", queue, "peek", inspection.peeks, 0, 0, inspection.peeks)
