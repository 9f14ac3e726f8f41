"""Deliver rows: send them in order, wait for confirmation, write receipts, then settle.

Order: rows of one destination are sent in the order in which they come, one batch in flight per
destination (many destinations concurrently). So no later batch overtakes one that is refused. A
refused batch is split until the refused message is isolated. A fence is answered when all rows that
came with it or before it are settled; it is held if a message for its destination would be held.
One instance serves one task.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from pairbus.client.batches import pack
from pairbus.envelope.fence import Fence, read_fence
from pairbus.envelope.fields import NO_DESTINATION
from pairbus.ledger.receipt_index import MAY_HAVE
from pairbus.names import BILLING_STEP, billable
from pairbus.runtime import AsyncRuntime
from pairbus.syphon._async.answers import FenceAnswers
from pairbus.syphon._async.backlog import BacklogQueues
from pairbus.syphon._async.destinations import Destinations
from pairbus.syphon._async.paced_sending import PacedSending
from pairbus.syphon._async.settler import Settler
from pairbus.syphon.backoff import may_send
from pairbus.syphon.delivery_rows import DeliveryRows, Job
from pairbus.syphon.delivery_settings import DeliverySettings
from pairbus.syphon.held import WHOLE_PRIMARY
from pairbus.syphon.records import TaskReport
from pairbus.syphon.refusals import Cause, Outcome, judge
from pairbus.syphon.settlement import Settlement
from pairbus.syphon.verdicts import COMPLETE, DEAD_LETTER, DELIVER

if TYPE_CHECKING:
    import pyarrow as pa

    from pairbus.ledger.receipt_index import Key

__all__ = ["Deliverer"]

MAX_MESSAGES = 4500  # in one batch: Service Bus accepts no more
BY_TRANSFORM = "CompletedByTransform"  # the reason if the transform gives none


class Deliverer:
    """Delivers the rows of one task.

    Args:
        runtime: clock and sleep.
        sending: the primary.
        settling: the secondary; None where nothing is to be settled (then a refusal raises).
        receipts: writes an Arrow table of receipts, durable when it returns; None without ledger.
        report: called with the report of each flush.
        settings: how to deliver.
        probe: returns why no receipt can be written now, in one line, or None; called once.
        is_stopping: whether the syphon is asked to end; messages that were not sent are returned.
        find_receipts: returns the keys that have a receipt; None if receipts need not be checked.
        answering: the reply queue; None where fences are not answered.

    Raises:
        RuntimeError: no receipt could be written, and nothing is to be settled.
    """

    def __init__(
        self,
        runtime: AsyncRuntime,
        sending: Destinations,
        settling: BacklogQueues | None,
        receipts: "Callable[[pa.Table], None] | None",
        report: Callable[[TaskReport], None],
        settings: DeliverySettings | None = None,
        *,
        probe: Callable[[], str | None] = lambda: None,
        is_stopping: Callable[[], bool] = bool,
        find_receipts: "Callable[[list[Key]], set[Key]] | None" = None,
        answering: FenceAnswers | None = None,
    ) -> None:
        self._runtime = runtime
        self._sending = sending
        self._settings = settings or DeliverySettings()
        self._blocked = self._settings.blocked
        self._settles = settling is not None
        self._is_stopping = is_stopping
        self._find_receipts = find_receipts
        self._answers = answering is not None
        self._settler = Settler(runtime, settling, receipts, report, self._settings, answering)
        self._is_primary_down = False
        self._is_abandoning = False
        self._pace = PacedSending(runtime, self._settings.blocked.sending)
        problem = probe()
        if problem and self._settles:
            report(TaskReport(stalled=f"ledger: {problem}"))
            self._is_abandoning = True
        elif problem:
            raise RuntimeError(f"servicebus: ledger: {problem}")

    async def deliver(self, batch: "pa.RecordBatch") -> None:
        """Deliver the rows of one Arrow batch; settle when enough have come together."""
        if not batch.num_rows:
            return
        rows = DeliveryRows(batch, self._settings.destination, self._settings.route)
        if self._settles and (self._is_abandoning or self._is_stopping()):
            # No message may overtake one that was returned, so all that follow are returned, too.
            self._is_abandoning = True
            self._settler.add(Settlement(rows, list(range(rows.count)), "abandoned", None))
            return
        done = await self._complete_done(rows)
        groups, fences = self._group(rows, done)
        await self._send(rows, groups)
        for row, fence in fences:
            self._handle_fence(rows, row, fence)
        if self._settler.is_due:
            await self._flush()

    async def finish(self) -> None:
        """Write the receipts of the last rows, settle and report them."""
        await self._flush(is_last=True)

    async def _flush(self, *, is_last: bool = False) -> None:
        await self._settler.flush(self._pace.rate, is_last=is_last)

    async def _complete_done(self, rows: DeliveryRows) -> set[int]:
        """Settle the rows that have a receipt already; return their numbers."""
        if self._find_receipts is None:
            return set()
        again = [i for i, count in enumerate(rows.delivery_count) if count]
        keys = rows.keys(again)
        found = await self._runtime.run_blocking(self._find_receipts, keys) if keys else set()
        done = [i for i, key in zip(again, keys, strict=True) if key in found]
        if done:
            self._settler.add(Settlement(rows, done, "completed", None))
        return set(done)

    def _group(
        self, rows: DeliveryRows, done: Collection[int]
    ) -> tuple[dict[str, list[int]], list[tuple[int, Fence]]]:
        """Return the rows to send, by destination, and the fences; the others are settled."""
        only = rows.only_destination()
        if only:
            left = [row for row in range(rows.count) if row not in done]
            return {only: left} if left else {}, []
        groups: dict[str, list[int]] = {}
        fences: list[tuple[int, Fence]] = []
        others: dict[tuple[str, str, str, str | None], list[int]] = {}
        for row in range(rows.count):
            if row in done:
                continue
            verdict, destination = rows.verdict[row], rows.destination[row]
            fence = None if destination else self._fence(rows, row)
            if fence is not None:
                fences.append((row, fence))
            elif verdict == DELIVER:
                groups.setdefault(destination or "", []).append(row)
            elif verdict == DEAD_LETTER:
                reason, description = rows.reason(row)
                key = ("suspended", reason, description, "dead_lettered")
                others.setdefault(key, []).append(row)
            elif verdict == COMPLETE:
                reason, _ = rows.reason(row, BY_TRANSFORM)
                others.setdefault(("completed", reason, "", "completed"), []).append(row)
            else:
                others.setdefault(("abandoned", "", "", None), []).append(row)
        for (how, reason, description, event), indices in others.items():
            self._settler.add(Settlement(rows, indices, how, event, reason, description))
        return groups, fences

    def _fence(self, rows: DeliveryRows, row: int) -> Fence | None:
        is_locked = self._answers and self._settles and rows.token[row] is not None
        return read_fence(rows.message[row]) if is_locked else None

    def _handle_fence(self, rows: DeliveryRows, row: int, fence: Fence) -> None:
        """Answer a fence, unless messages for its destination wait: then it waits behind them."""
        destination = fence.destination.lower()
        queue, token = rows.entity[row], rows.token[row]
        if self._is_abandoning:
            self._settler.add(Settlement(rows, [row], "abandoned", None))
        elif self._is_primary_down:
            self._settler.postpone(rows, [row], WHOLE_PRIMARY)
        elif (
            destination in self._settler.failed
            or self._settler.has_postponed(queue, destination)
            or not self._blocked.allows(destination, queue, rows.sequence[row])
        ):
            self._settler.postpone(rows, [row], destination)
        else:
            self._settler.add_fence(queue, fence, token, rows.sequence[row])
            if destination in self._blocked.blocked:
                # The oldest waiting message is a fence, not a probe: the next message is the probe.
                self._settler.delivered(destination)

    async def _send(self, rows: DeliveryRows, groups: dict[str, list[int]]) -> None:
        """Send the groups concurrently, with one batch in flight for each destination."""
        work = {d: await self._cut(rows, d, indices) for d, indices in groups.items()}
        work = {destination: jobs for destination, jobs in work.items() if jobs}
        while work:
            jobs = self._take(rows, work, await self._pace.allowance())
            if not jobs:
                return
            outcomes = await self._sending.send([(d, job.messages) for d, job in jobs])
            is_busy = False
            for (destination, job), outcome in zip(jobs, outcomes, strict=True):
                if self._settles and judge(outcome.condition or "").cause is Cause.BUSY:
                    # The same messages again: they are received once, and keep their order.
                    work.setdefault(destination, []).insert(0, job)
                    self._settler.was_busy()
                    is_busy = True
                else:
                    self._answered(rows, destination, job, outcome, work)
            if is_busy:
                self._is_abandoning = self._is_abandoning or self._is_stopping()
                await self._pace.busy()
            else:
                self._pace.sent(sum(len(job.rows) for _, job in jobs))

    def _take(
        self, rows: DeliveryRows, work: dict[str, list[Job]], most: int | None
    ) -> list[tuple[str, Job]]:
        """Take the next batch of each destination, `most` messages in all."""
        jobs: list[tuple[str, Job]] = []
        for destination, queue in list(work.items()):
            if most == 0:
                break
            job = self._next(rows, destination, queue)
            if job is None:
                del work[destination]
                continue
            if most is not None:
                job, rest = job.split(most)
                if rest.rows:
                    queue.insert(0, rest)
                most -= len(job.rows)
            jobs.append((destination, job))
        return jobs

    async def _cut(self, rows: DeliveryRows, destination: str, indices: list[int]) -> list[Job]:
        """Cut the rows of one destination into batches; hold those that may not be sent."""
        if destination.lower() in self._blocked.blocked:
            indices = self._let_through(rows, destination, indices)
        if destination.lower() in self._settler.failed or self._is_primary_down:
            whole = WHOLE_PRIMARY if self._is_primary_down else destination
            self._settler.postpone(rows, indices, whole)
            return []
        if not indices:
            return []
        if not destination:
            self._dead_letter(rows, indices, NO_DESTINATION, "")
            return []
        messages = rows.restored(indices, int(self._runtime.time() * 1000))
        limit = min(self._settings.max_bytes, await self._sending.limit(destination))
        batches = pack([len(message) for message in messages], limit, MAX_MESSAGES)
        return [
            Job(indices[one.start : one.stop], messages[one.start : one.stop]) for one in batches
        ]

    def _let_through(self, rows: DeliveryRows, destination: str, indices: list[int]) -> list[int]:
        """Postpone the rows of a blocked destination, except those that may be sent.

        Messages that were received by number may be sent, and the probe, unless an older message
        came with it. The coordinator does not know such a message if the process that had locked
        it died.
        """
        blocked, key = self._blocked, destination.lower()
        names = {i: (rows.entity[i], rows.sequence[i]) for i in indices}
        fetched = [i for i in indices if blocked.is_fetched(*names[i])]
        others = [i for i in indices if not blocked.is_fetched(*names[i])]
        probe = blocked.blocked[key]
        place = next((n for n, i in enumerate(others) if names[i] == probe), len(others))
        self._settler.postpone(rows, others[:place], destination)
        rest = others[place:]
        if probe is None or self._settler.has_postponed(probe[0], key):
            self._settler.postpone(rows, rest, destination)
            return fetched
        self._settler.postpone(rows, rest[1:], destination)
        return sorted([*fetched, *rest[:1]])

    def _next(self, rows: DeliveryRows, destination: str, queue: list[Job]) -> Job | None:
        """Return the next batch for a destination, if it may be sent now; else hold its rows."""
        if not queue:
            return None
        rest = [i for one in queue for i in one.rows]
        if self._is_primary_down:
            self._settler.postpone(rows, rest, WHOLE_PRIMARY)
            return None
        if destination.lower() in self._settler.failed:
            self._settler.postpone(rows, rest, destination)
            return None
        locked_until = rows.locked_until(rest[0])
        if locked_until is not None:
            received = rows.received_at(rest[0]) or 0.0
            if self._is_abandoning or not may_send(self._runtime.time(), received, locked_until):
                # Too little is left of the lock: settle the messages sent, return the rest.
                self._is_abandoning = True
                self._settler.add(Settlement(rows, rest, "abandoned", None))
                return None
        return queue.pop(0)

    def _answered(
        self,
        rows: DeliveryRows,
        destination: str,
        job: Job,
        outcome: Outcome,
        work: dict[str, list[Job]],
    ) -> None:
        if outcome.is_accepted:
            self._accepted(rows, destination, job)
            return
        condition = outcome.condition or ""
        if not self._settles:
            raise RuntimeError(f"servicebus: {destination}: {condition}: {outcome.description}")
        judgement = judge(condition)
        match judgement.cause:
            case Cause.MESSAGE if len(job.rows) > 1:
                work.setdefault(destination, [])[:0] = job.split(len(job.rows) // 2)
            case Cause.MISSING if self._settings.waits_for(destination):
                self._settler.failed[destination.lower()] = condition
                self._settler.postpone(rows, job.rows, destination)
            case Cause.MESSAGE | Cause.MISSING:
                text = f"{condition}: {outcome.description}"[:1024]
                self._dead_letter(rows, job.rows, judgement.reason, text)
            case Cause.DESTINATION:
                self._settler.failed[destination.lower()] = condition
                self._settler.postpone(rows, job.rows, destination)
            case Cause.PRIMARY | Cause.BUSY:
                self._is_primary_down = True
                self._settler.failed[WHOLE_PRIMARY] = condition
                self._settler.postpone(rows, job.rows, WHOLE_PRIMARY)

    def _accepted(self, rows: DeliveryRows, destination: str, job: Job) -> None:
        self._settler.delivered(destination.lower())
        sizes = [len(message) for message in job.messages]
        steps = len(sizes) if max(sizes) <= BILLING_STEP else sum(map(billable, sizes))
        self._settler.count(
            self._settings.primary, "send_primary", destination, "send",
            len(sizes), sum(sizes), steps,
        )  # fmt: skip
        route = self._settings.route
        reason = route.reason(destination)
        doubt = [] if not route.former else [i for i in job.rows if self._in_doubt(rows, i)]
        sure = job.rows if not doubt else sorted({*job.rows} - {*doubt})
        if sure:
            self._settler.add(Settlement(rows, sure, "completed", "forwarded", reason))
        if doubt:
            note = f"{reason or 'to the primary'}; {route.former}{MAY_HAVE}"
            self._settler.add(Settlement(rows, doubt, "completed", "forwarded", note))

    def _in_doubt(self, rows: DeliveryRows, row: int) -> bool:
        return self._settings.route.may_have_been_sent(
            rows.entity[row], rows.sequence[row], rows.delivery_count[row]
        )

    def _dead_letter(
        self, rows: DeliveryRows, indices: list[int], reason: str, description: str
    ) -> None:
        self._settler.add(
            Settlement(rows, indices, "suspended", "dead_lettered", reason, description)
        )
