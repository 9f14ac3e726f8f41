"""Read backlog queues within one task: receive the available messages, up to each queue's grant.

The reader records in the journal that it requests messages, and then the tokens that it received,
before their rows go downstream. A retry of the same epoch returns the recorded tokens, newest
first, before it receives. If an earlier attempt may have received more than it recorded, the retry
leaves the queue to the coordinator.

With a doorbell, a queue that cannot be read counts as quiet: the doorbell notices when it is back.
A read without a doorbell fails, because it must not take such a queue for an empty one.
"""

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from pairbus.envelope.encoded import Opened, open_message
from pairbus.names import BILLING_STEP, billable
from pairbus.runtime import AsyncRuntime
from pairbus.syphon._async.backlog import BacklogQueues
from pairbus.syphon._async.receiving import QueueReceiver
from pairbus.syphon.journal import PageWriter
from pairbus.syphon.limits import Grant
from pairbus.syphon.object_journal import LockJournal
from pairbus.syphon.rates import Pace, Pacer
from pairbus.syphon.records import OperationCount, QueueRead, TaskReport
from pairbus.syphon.state import StateDirectory

__all__ = ["BacklogReader", "ReceivedBatch"]

log = logging.getLogger("pairbus.syphon")


@dataclass(frozen=True, slots=True)
class ReceivedBatch:
    """Messages of one queue: lock token, payload and parsed payload of each."""

    queue: str
    received_at: int  # microseconds since 1970
    messages: list[tuple[bytes | None, bytes]]
    opened: list[Opened]


@dataclass(slots=True)
class _Tally:
    """The messages read from one queue so far."""

    messages: int = 0
    size: int = 0
    billable: int = 0
    has_more: bool = True
    is_finished: bool = False
    lock_seconds: float | None = None
    oldest: int | None = None
    busy: int = 0
    is_fetch: bool = False
    is_blocked: bool = False  # a deferred message could not be received
    undeferred: list[int] = field(default_factory=list)
    requests: int = 0
    problem: str | None = None  # why the last receive failed

    def add(self, batch: ReceivedBatch) -> int:
        """Count a batch; return its bytes."""
        first = batch.opened[0]
        self.oldest = first.enqueued_time or self.oldest
        if self.lock_seconds is None and first.locked_until is not None:
            self.lock_seconds = first.locked_until / 1000 - batch.received_at / 1e6
        used = [len(payload) for _, payload in batch.messages]
        size = sum(used)
        self.messages += len(used)
        self.size += size
        self.billable += sum([billable(n) for n in used]) if max(used) > BILLING_STEP else len(used)
        return size

    def record(self) -> QueueRead:
        return QueueRead(
            self.messages,
            self.size,
            self.has_more and not self.is_finished,
            self.is_finished,
            self.lock_seconds,
            self.oldest,
            self.busy,
        )


class BacklogReader:
    """Reads queues for one task.

    Args:
        runtime: the clock.
        receiver: receives from the secondary.
        backlog: returns messages to it.
        namespace: the secondary's name in the ledger.
        state: where the report is written; None for no report.
        journal: records the locks; None if locks need no journal.
        batch_size: most messages of one batch.
        aliases: take the aliases of the envelope out of each message.
        enqueued_before: leave messages that were enqueued later (milliseconds since 1970).
    """

    def __init__(
        self,
        runtime: AsyncRuntime,
        receiver: QueueReceiver,
        backlog: BacklogQueues,
        *,
        namespace: str,
        state: StateDirectory | None = None,
        journal: LockJournal | None = None,
        batch_size: int = 1000,
        aliases: bool = True,
        enqueued_before: int | None = None,
    ) -> None:
        self._runtime = runtime
        self._receiver = receiver
        self._backlog = backlog
        self._namespace = namespace
        self._state = state
        self._journal = journal
        self._batch_size = batch_size
        self._aliases = aliases
        self._enqueued_before = enqueued_before

    async def read(
        self,
        epoch: int,
        grants: Sequence[Grant],
        pace: Pace | None = None,
        *,
        must_read: bool = False,
    ) -> AsyncIterator[ReceivedBatch]:
        """Yield the available messages, queue by queue, and write a report at the end.

        Args:
            epoch: the micro-batch.
            grants: how much of each queue may be read.
            pace: how fast; None for as fast as possible.
            must_read: fail if a queue cannot be read.

        Raises:
            RuntimeError: with `must_read`, why a queue could not be read.
        """
        pacer = None if pace is None else Pacer(pace, self._runtime.monotonic())
        size = self._batch_size if pace is None else min(self._batch_size, pace.chunk)
        tallies: dict[str, _Tally] = {}
        problem, received = None, 0
        for grant in grants:
            queue = grant.queue
            page = None
            tally = tallies[queue] = _Tally()
            if self._journal is not None:
                if not await self._take_over(self._journal, epoch, queue):
                    continue
                page = self._journal.open_page(epoch, queue)
            read_some = self._fetch if grant.numbers else self._read_queue
            try:
                async for batch in read_some(grant, page, tally, size):
                    yield batch
                    if pacer is not None:
                        pacer.read(self._runtime.monotonic(), len(batch.messages))
                        await self._runtime.sleep(pacer.wait(self._runtime.monotonic()))
            finally:
                if page is not None:
                    page.close()
            received += tally.messages
            # A stream plans a queue of a busy namespace again, a batch does not.
            if must_read and tally.problem and (epoch < 0 or not tally.has_more):
                if not received or (epoch < 0 and not self._receiver.deletes):
                    problem = f"servicebus: {queue}: cannot be read: {tally.problem}"
                else:
                    # A failed task would lose messages that were deleted, and the sink would not
                    # settle those that it has sent.
                    tally.has_more = True
                    log.warning("%s: was not read to its end: %s", queue, tally.problem)
            if problem:
                break
        if self._state is not None:
            found = tallies.items()
            self._state.report(
                TaskReport(
                    read={q: tally.record() for q, tally in found},
                    operations=tuple(
                        one for q, tally in found for one in self._operations(q, tally)
                    ),
                    undeferred={
                        q: tuple(tally.undeferred) for q, tally in found if tally.undeferred
                    },
                    locked=tuple(q for q, tally in found if tally.is_blocked),
                )
            )
        if problem:
            raise RuntimeError(problem)

    async def _read_queue(
        self, grant: Grant, page: PageWriter | None, tally: _Tally, size: int
    ) -> AsyncIterator[ReceivedBatch]:
        queue, left, room = grant.queue, grant.messages, grant.size

        def before() -> None:
            # Not before the link is open: while that lasts, a later attempt may take over, and its
            # queue may be found free of unknown locks.
            if page is not None and not page.request():
                raise RuntimeError(f"servicebus: {queue}: another attempt has taken over")

        while left > 0 and room > 0 and not tally.is_finished and not self._is_halted():
            got = await self._receiver.receive(queue, min(left, size), room, before)
            if not got:
                tally.problem = self._receiver.problem
                tally.has_more = self._receiver.is_busy
                tally.busy += self._receiver.is_busy
                if page is not None and not self._receiver.broke_off:
                    page.record([])
                # A snapshot has finished a queue that is empty, but not one that is unreachable.
                tally.is_finished = (
                    self._enqueued_before is not None and not self._receiver.has_failed
                )
                return
            batch = self._accept(queue, got, page, is_complete=not self._receiver.broke_off)
            if self._enqueued_before is not None:
                batch = await self._return_later(batch, self._enqueued_before, page, tally)
            if not batch.messages:
                return
            left -= len(batch.messages)
            room -= tally.add(batch)
            yield batch
            if self._receiver.broke_off:
                tally.problem = self._receiver.problem
                tally.has_more = False  # the doorbell notices when the queue is back
                return

    async def _fetch(
        self, grant: Grant, page: PageWriter | None, tally: _Tally, size: int
    ) -> AsyncIterator[ReceivedBatch]:
        """Receive deferred messages by number; whether the queue has other messages is unknown."""
        queue, room = grant.queue, grant.size
        tally.is_fetch = True
        for start in range(0, len(grant.numbers), size):
            if room <= 0 or self._is_halted():
                return
            if page is not None and not page.request():
                raise RuntimeError(f"servicebus: {queue}: another attempt has taken over")
            fetched = await self._backlog.fetch(queue, grant.numbers[start : start + size])
            tally.undeferred += fetched.undeferred
            tally.requests += fetched.requests
            tally.is_blocked = fetched.is_blocked or fetched.broke_off
            tally.busy += fetched.is_busy
            is_complete = not fetched.broke_off
            batch = self._accept(queue, fetched.messages, page, is_complete=is_complete)
            if batch.messages:
                room -= tally.add(batch)
                yield batch
            if not fetched.is_complete:
                return

    def _accept(
        self,
        queue: str,
        got: list[tuple[bytes | None, bytes]],
        page: PageWriter | None,
        *,
        is_complete: bool,
    ) -> ReceivedBatch:
        """Parse messages, and record their tokens."""
        now = int(self._runtime.time() * 1e6)
        opened = [open_message(payload, aliases=self._aliases) for _, payload in got]
        if page is not None:
            tokens = [token for token, _ in got if token is not None]
            newest = opened[-1].sequence_number or 0 if opened else 0
            page.record(tokens, newest, is_complete=is_complete)
        return ReceivedBatch(queue, now, got, opened)

    async def _return_later(
        self, batch: ReceivedBatch, latest: int, page: PageWriter | None, tally: _Tally
    ) -> ReceivedBatch:
        """Return the messages to the queue that were enqueued after the time `latest`."""
        keep = sum((one.enqueued_time or 0) <= latest for one in batch.opened)
        if keep == len(batch.opened):
            return batch
        later = [token for token, _ in reversed(batch.messages[keep:]) if token is not None]
        if await self._backlog.abandon(batch.queue, later) is None and page is not None:
            page.request()  # they stay locked for a while: the queue is uncertain
        tally.is_finished = True
        return replace(batch, messages=batch.messages[:keep], opened=batch.opened[:keep])

    async def _take_over(self, journal: LockJournal, epoch: int, queue: str) -> bool:
        """Abandon the locks that earlier attempts recorded; False if they may hold others."""
        pages = journal.take_over(epoch, queue)
        if any(page.is_open for page in pages):
            return False
        for page in pages:
            tokens = page.tokens[::-1]
            if tokens and await self._backlog.abandon(queue, tokens) is None:
                return False
            page.mark_returned()
        return True

    def _is_halted(self) -> bool:
        return self._state is not None and self._state.is_halted

    def _operations(self, queue: str, tally: _Tally) -> list[OperationCount]:
        found = []
        if tally.messages:
            counts = (1, tally.messages, tally.size, tally.billable)
            how = "deferred" if tally.is_fetch else "receive"
            found.append(OperationCount(self._namespace, "receive_backlog", queue, how, *counts))
        if tally.requests:
            calls = (tally.requests, 0, 0, tally.requests)
            found.append(OperationCount(self._namespace, "management", queue, "peek", *calls))
        if not tally.has_more:  # the last grant of credit ended empty, and is charged nevertheless
            found.append(OperationCount(self._namespace, "idle_poll", queue, "receive", 1, 0, 0, 1))
        return found
