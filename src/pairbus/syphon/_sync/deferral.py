# generated from src/pairbus/syphon/_async/deferral.py by tools/gen_unasync.py; edit that one
"""Defer messages that wait too long, find deferred messages again, and say which to receive.

The sequence numbers are recorded before messages are deferred, by the coordinator for messages that
it holds, and by tasks in their reports. If the state was lost, they are found by browsing. Before a
queue is read, it is browsed up to the first page of messages that were never handed out; when it
has been read to its end, the rest is browsed. The position of this search is recorded, too.

The guard and `files` are the coordinator's. `files` protects the recorded numbers, which are read
and written without the guard.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from pairbus.envelope.encoded import open_message
from pairbus.envelope.fence import read_fence
from pairbus.runtime import Condition, Runtime
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.fetching import DEFERRED
from pairbus.syphon.deferred import DeferredMessages
from pairbus.syphon.held import HeldMessages
from pairbus.syphon.limits import Grant
from pairbus.syphon.orphaned_locks import OrphanedLocks
from pairbus.syphon.records import BlockedRecord, HeldMessage, TaskReport
from pairbus.syphon.state import StateDirectory

__all__ = ["Deferral"]

log = logging.getLogger("pairbus.syphon")

MOST = 5000  # deferred messages of one queue in one micro-batch
PEEKS = 20  # of one queue in one tick
LOCKED_WAIT = 10.0  # seconds until deferred messages that are locked are requested again


class Deferral:
    """The deferred messages of one syphon.

    Args:
        runtime: the clock.
        guard: protects `held` and `orphans`.
        files: taken before the guard; protects the recorded numbers.
        state: where the sequence numbers are recorded.
        backlog: the secondary.
        held: the messages that stay locked.
        orphans: the uncertain queues.
        queues: the backlog queues.
        count: counts an operation for the ledger.
        is_enabled: defer messages, and search those that are deferred already; else all stay held.
    """

    def __init__(
        self,
        runtime: Runtime,
        guard: Condition,
        files: Condition,
        state: StateDirectory,
        backlog: BacklogQueues,
        held: HeldMessages,
        orphans: OrphanedLocks,
        queues: Iterable[str],
        count: Callable[..., None],
        *,
        is_enabled: bool,
    ) -> None:
        self._runtime = runtime
        self._guard = guard
        self._files = files
        self._state = state
        self._backlog = backlog
        self._queues = tuple(queues)
        self._held = held
        self._orphans = orphans
        self._count = count
        self._deferred = DeferredMessages(state.deferred_pages)
        self._fetched: dict[str, tuple[int, int]] = {}
        self._next: dict[str, tuple[int, ...]] = {}  # numbers to receive next, as read
        self._probes: dict[str, tuple[str, int]] = {}
        self._locked_until: dict[str, float] = {}
        self._is_enabled = is_enabled
        # Queues to browse, each with the next number, and as recorded.
        self._recorded = state.unsearched() if is_enabled else {}
        self._unsearched = dict(self._recorded)
        if is_enabled and not state.is_known:
            self._unsearched = dict.fromkeys(self._queues, 0)
        self._searching = set(self._unsearched)
        self.unread = set(self._unsearched)  # must not be read before deferred messages are found

    def start(self, now: float) -> None:
        """Load the records of an earlier coordinator."""
        broken = self._deferred.load()
        if broken:  # their queues are not known
            for queue in self._queues:
                self.search_again(queue)
            self.unread |= self._searching
        self._record_unsearched()
        self._deferred.remove(broken)
        for destination in self._deferred.destinations():
            self._held.defer(destination, now)

    def counts(self) -> dict[str, int]:
        """Return how many messages wait for each destination, held or deferred."""
        return dict(Counter(self._held.counts()) + Counter(self._deferred.counts()))

    def blocked(self) -> BlockedRecord:
        """Return the record of blocked destinations for the tasks; the guard is held."""
        return replace(self._held.blocked(), fetched=dict(self._fetched))

    # -- facts

    def record(self, report: TaskReport) -> None:
        """Record the numbers in the report of a task, before `apply`; `files` is held."""
        for one in report.deferred:
            self._deferred.add(one.destination, one.queue, one.numbers)
        for queue, numbers in report.undeferred.items():
            self._deferred.discard(queue, numbers)

    def apply(self, report: TaskReport, now: float) -> None:
        """Apply the report of a task; the guard is held."""
        if not report.read:  # the report of a deliverer; a reader finds that some are gone
            for queue, numbers in report.undeferred.items():
                self._held.settled(queue, numbers)
        for queue in report.locked:
            self._locked_until[queue] = now + LOCKED_WAIT
            if report.undeferred.get(queue) and self._is_enabled:
                # A message was not deferred yet, and a task of a dead driver may still defer it.
                self._unsearched.setdefault(queue, min(report.undeferred[queue]))
        for queue, read in report.read.items():
            if not read.has_more and queue in self._unsearched:
                self._searching.add(queue)

    def search_again(self, queue: str) -> None:
        """Browse all of a queue, which may have unrecorded deferred messages; the guard is held."""
        if self._is_enabled:
            self._unsearched.setdefault(queue, 0)
            self._searching.add(queue)

    def is_searching(self) -> bool:
        """Whether deferred messages are searched for."""
        return bool(self._searching)

    # -- planning; no micro-batch runs, and `files` is held from `read_next` to `planned`

    def read_next(self) -> None:
        """Read the numbers that `next` returns."""
        with self._guard:
            self._fetched = {}
            counts = self._deferred.counts()
            draining, probing = self._held.next_fetch(counts, self._runtime.time())
        self._next = numbers = self._deferred.next(draining, MOST)
        self._probes = {}
        for destination in probing:
            oldest = self._deferred.oldest(destination)
            if oldest is not None:
                queue, number = oldest
                numbers[queue] = tuple(sorted({*numbers.get(queue, ()), number}))[:MOST]
                self._probes[destination] = oldest

    def next(self, now: float) -> dict[str, tuple[int, ...]]:
        """Return the deferred messages to receive next, by queue, in their order.

        The guard is held. Messages may have been deferred since `read_next`, but only such whose
        numbers were recorded before it.
        """
        late = {queue for queue, until in self._locked_until.items() if now < until}
        # A message that is being deferred cannot be received yet: its number would be discarded.
        late |= self._held.leaving()
        return {queue: some for queue, some in self._next.items() if queue not in late}

    def planned(self, grants: Iterable[Grant], now: float) -> None:
        """Record the deferred messages that a planned micro-batch receives; the guard is held."""
        received = {grant.queue: grant.numbers for grant in grants if grant.numbers}
        self._fetched = {queue: (n[0], n[-1]) for queue, n in received.items()}
        for destination, probe in self._probes.items():
            if probe[1] in received.get(probe[0], ()):
                self._held.probe(destination, probe, now)

    # -- actions

    def defer_waiting(self, lock_seconds: float) -> None:
        """Defer the held messages that have waited long enough."""
        if not self._is_enabled:
            return
        groups: dict[tuple[str, str], list[HeldMessage]] = {}
        with self._files:
            with self._guard:
                waiting = self._held.take_waiting(self._runtime.time(), lock=lock_seconds)
            for message in waiting:
                groups.setdefault((message.destination, message.queue), []).append(message)
            try:
                for (destination, queue), messages in groups.items():
                    self._deferred.add(destination, queue, [one.sequence for one in messages])
            except OSError:  # not recorded: they stay locked
                with self._guard:
                    self._held.deferred(waiting, is_kept=True)
                raise
        try:
            for destination, queue in list(groups):
                self._defer(destination, queue, groups.pop((destination, queue)))
        finally:
            with self._guard:  # after a failure the others stay held, until the next attempt
                for messages in groups.values():
                    self._held.deferred(messages, is_kept=True)

    def _defer(self, destination: str, queue: str, messages: list[HeldMessage]) -> None:
        is_deferred = False
        try:
            tokens = [bytes.fromhex(one.token) for one in messages]
            is_deferred = self._backlog.defer(queue, tokens)
            if is_deferred:
                self._count("settle", queue, "deferred", 1, len(tokens), 0, len(tokens))
                log.info("%s: %d messages deferred for %s", queue, len(tokens), destination)
        finally:
            with self._guard:
                self._held.deferred(messages)
                if not is_deferred:  # some may still be locked
                    self._orphans.suspect(queue, self._runtime.time())

    def search(self) -> None:
        """Browse the queues for deferred messages, a few pages at a time."""
        with self._files, self._guard:
            while self._deferred.lost:
                queue = self._deferred.lost.pop()
                self._unsearched.pop(queue, None)  # from the beginning
                self.search_again(queue)
        self._record_unsearched()
        for queue in list(self._searching):
            for _ in range(PEEKS):
                if queue in self._fetched or not self._search_page(queue):
                    break
        self._record_unsearched()

    def _record_unsearched(self) -> None:
        with self._guard:
            unsearched = dict(self._unsearched)
        if unsearched != self._recorded:
            self._state.write_unsearched(unsearched)
            self._recorded = unsearched

    def _search_page(self, queue: str) -> bool:
        """Browse one page; False if there is nothing more to do now."""
        page = self._backlog.browse(queue, self._unsearched[queue])
        if page is None:
            return False
        self._count("management", queue, "peek", 1, len(page), 0, max(1, len(page)))
        found: dict[str, list[int]] = {}
        is_new = bool(page)
        for one in page:
            opened = open_message(one.payload)
            is_new = is_new and not opened.delivery_count and not opened.state
            if opened.state == DEFERRED:
                fence = None if opened.path else read_fence(opened.message)
                destination = fence.destination if fence else opened.path or ""
                found.setdefault(destination.lower(), []).append(one.sequence_number)
        with self._files:
            for destination, numbers in found.items():
                self._deferred.add(destination, queue, numbers)
        with self._guard:
            if not page:
                del self._unsearched[queue]
            elif not is_new:
                self._unsearched[queue] = page[-1].sequence_number + 1
                return True
            self._searching.discard(queue)
            self.unread.discard(queue)
        return False
