"""Deliver: send rows in order, wait for confirmation, write receipts, then settle.

The order of these steps is the guarantee: a crash between any two of them can double a message,
and never lose it or the proof of it. One instance serves one task.

Order: rows of one destination go in the order in which they come, one batch in flight per
destination (many destinations at once), so that a batch that is refused half-way never lets a
later one overtake. A refused batch is split until the offender stands alone.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pairbus.envelope.encoded import restore
from pairbus.names import BILLING_STEP, billable
from pairbus.spark.restore import ORIGINAL
from pairbus.syphon.backoff import Fault, LockBudget, halves, judge, plan
from pairbus.syphon.batch import Rows
from pairbus.syphon.held import EVERYTHING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Deliverer", "Outcome", "Sending", "Settling"]

log = logging.getLogger("pairbus.syphon")

FLUSH_ROWS = 10_000
FLUSH_SECONDS = 2.0
BY_TRANSFORM = "CompletedByTransform"  # unless it says why


@dataclass(frozen=True, slots=True)
class Outcome:
    """A destination's answer to a batch: accepted, or refused with a condition."""

    condition: str | None = None
    description: str = ""

    @property
    def accepted(self) -> bool:
        """Whether it was taken."""
        return self.condition is None


class Sending(Protocol):
    """The primary, as the deliverer sees it."""

    def limit(self, destination: str) -> int:
        """Most bytes of one batch."""

    def send(self, jobs: Sequence[tuple[str, Sequence[bytes]]]) -> list[Outcome]:
        """Send one batch to each of several destinations at once; an answer for each."""


class Settling(Protocol):
    """The secondary, as the deliverer sees it."""

    def settle(
        self,
        queue: str,
        tokens: Sequence[bytes],
        how: str,
        reason: str = "",
        description: str = "",
    ) -> int:
        """Settle by lock token; how many of the locks were lost already."""


@dataclass
class _Settle:
    """Rows of one Arrow batch that are to be settled in one way, once their receipts are there."""

    rows: Rows
    indices: list[int]
    how: str
    event: str | None
    reason: str = ""
    description: str = ""

    def collect(self, queues: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
        """Add the lock tokens, by queue."""
        token, entity = self.rows.token, self.rows.entity
        for i in self.indices:
            if token[i] is not None:
                queues.setdefault(entity[i], []).append(token[i])
        return queues


@dataclass
class Deliverer:
    """Delivers the rows of one task.

    Args:
        sending: the primary.
        settling: the secondary; None where nothing is to be settled (then a refusal raises).
        receipts: writes an Arrow table of receipts, durable when it returns; None without ledger.
        report: called with what was done, after each flush.
        destination: where rows go that do not say it.
        blocked: destinations that wait, each with the one message (queue, number) that may try.
        max_bytes: most bytes of a batch.
        clock: seconds since 1970.
        pause: sleeps.
        names: of the namespaces sent to and settled in, for the ledger.
        probe: None, or in one line why no receipt could be written now: then nothing is sent.
        stopping: whether the syphon is asked to end; what was not sent then is given back.
    """

    sending: Sending
    settling: Settling | None
    receipts: Callable[["pa.Table"], None] | None
    report: Callable[[dict[str, Any]], None]
    destination: str | None = None
    blocked: dict[str, tuple[str, int] | None] = field(default_factory=dict)
    max_bytes: int = 1_000_000
    clock: Callable[[], float] = time.time
    pause: Callable[[float], None] = time.sleep
    stopping: Callable[[], bool] = bool
    names: tuple[str, str] = ("primary", "secondary")
    probe: Callable[[], str | None] = lambda: None
    budget: LockBudget = field(default_factory=LockBudget)

    def __post_init__(self) -> None:
        self._pending: list[_Settle] = []
        self._pending_rows = 0
        self._flushed_at = self.clock()
        self._held: list[list[Any]] = []
        self._failed: dict[str, str] = {}
        self._delivered: set[str] = set()
        self._doubtful: set[str] = set()  # queues to which something could not be given back
        self._operations: dict[tuple[str, str, str, str], list[int]] = {}
        self._summary: dict[str, Any] = {"forwarded": 0, "bytes": 0, "dead_lettered": {}}
        self._primary_down = False
        self._giving_back = False
        problem = self.probe()
        if problem and self.settling is not None:
            self.report({"stalled": f"ledger: {problem}"})
            self._giving_back = True
        elif problem:
            raise RuntimeError(f"servicebus: ledger: {problem}")

    # -- one Arrow batch

    def take(self, batch: "pa.RecordBatch") -> None:
        """Deliver the rows of one Arrow batch; settle when enough came together."""
        if not batch.num_rows:
            return
        rows = Rows(batch, self.destination)
        if self.settling is not None and (self._giving_back or self.stopping()):
            # Nothing newer may overtake what was given back, so all that follows is given back.
            self._giving_back = True
            self._settle_later(_Settle(rows, list(range(rows.count)), "abandoned", None))
            return
        groups: dict[str, list[int]] = {}
        others: dict[tuple[str, str, str, str | None], list[int]] = {}
        alone = rows.only_destination()
        if alone is not None:
            groups[alone] = list(range(rows.count))
        for row in range(rows.count) if alone is None else ():
            verdict = rows.verdict[row]
            if verdict == "deliver":
                groups.setdefault(rows.destination[row] or "", []).append(row)
            elif verdict == "dead-letter":
                reason, description = rows.reason(row)
                key = ("suspended", reason, description, "dead_lettered")
                others.setdefault(key, []).append(row)
            elif verdict == "complete":
                reason, _ = rows.reason(row, BY_TRANSFORM)
                others.setdefault(("completed", reason, "", "completed"), []).append(row)
            else:
                others.setdefault(("abandoned", "", "", None), []).append(row)
        for (how, reason, description, event), indices in others.items():
            self._settle_later(_Settle(rows, indices, how, event, reason, description))
        self._deliver(rows, groups)
        if self._pending_rows >= FLUSH_ROWS or self.clock() - self._flushed_at > FLUSH_SECONDS:
            self.flush()

    def _deliver(self, rows: Rows, groups: dict[str, list[int]]) -> None:
        """Send group by group: one batch in flight for each destination, all at once."""
        work = {d: self._plan(rows, d, indices) for d, indices in groups.items()}
        work = {destination: job for destination, job in work.items() if job}
        while work:
            jobs: list[tuple[str, _Job]] = []
            for destination, queue in list(work.items()):
                job = self._next(rows, destination, queue)
                if job is None:
                    del work[destination]
                else:
                    jobs.append((destination, job))
            if not jobs:
                return
            outcomes = self.sending.send(
                [(d, job.messages[job.batch.start : job.batch.stop]) for d, job in jobs]
            )
            for (destination, job), outcome in zip(jobs, outcomes, strict=True):
                self._answered(rows, destination, job, outcome, work)

    def _plan(self, rows: Rows, destination: str, indices: list[int]) -> "list[_Job]":
        probe = self.blocked.get(destination.lower(), _OPEN)
        if probe is not _OPEN:
            allowed = [i for i in indices if (rows.entity[i], rows.sequence[i]) == probe]
            self._hold(rows, sorted(set(indices) - set(allowed)), destination)
            indices = allowed
        if destination.lower() in self._failed or self._primary_down:
            self._hold(rows, indices, EVERYTHING if self._primary_down else destination)
            return []
        if not indices:
            return []
        if not destination:
            self._settle_later(
                _Settle(rows, indices, "suspended", "dead_lettered", "NoDestination", "")
            )
            return []
        if rows.is_composed:
            messages = [rows.message[i] for i in indices]
        else:
            now = int(self.clock() * 1000)
            messages = [
                restore(
                    rows.message[i],
                    session_id=rows.session[i],
                    time_to_live=rows.ttl[i],
                    scheduled=rows.scheduled[i],
                    now=now,
                    expires_at=rows.expires_at[i],
                )
                for i in indices
            ]
        limit = min(self.max_bytes, self.sending.limit(destination))
        batches = plan([len(m) for m in messages], max_bytes=limit)
        return [_Job(indices, messages, batch) for batch in batches]

    def _next(self, rows: Rows, destination: str, queue: "list[_Job]") -> "_Job | None":
        """The next batch for a destination, if it may be sent now; else its rows wait."""
        if not queue:
            return None
        job = queue[0]
        rest = [i for one in queue for i in one.rows()]
        if self._primary_down:
            self._hold(rows, rest, EVERYTHING)
            return None
        if destination.lower() in self._failed:
            self._hold(rows, rest, destination)
            return None
        oldest = rows.locked_until(rest[0])
        if oldest is not None:
            received = rows.received_at(rest[0]) or 0.0
            if self._giving_back or not self.budget.allows(self.clock(), received, oldest):
                # Too little is left of the lock: settle what was sent, give the rest back.
                self._giving_back = True
                self._settle_later(_Settle(rows, rest, "abandoned", None))
                return None
        queue.pop(0)
        return job

    def _answered(
        self,
        rows: Rows,
        destination: str,
        job: "_Job",
        outcome: Outcome,
        work: "dict[str, list[_Job]]",
    ) -> None:
        if outcome.accepted:
            self._delivered.add(destination.lower())
            sizes = [len(message) for message in job.messages[job.batch.start : job.batch.stop]]
            steps = len(sizes) if max(sizes) <= BILLING_STEP else sum(map(billable, sizes))
            row = ("send_primary", destination, "send", len(sizes), sum(sizes), steps)
            self._count(self.names[0], *row)
            self._settle_later(_Settle(rows, job.rows(), "completed", "forwarded"))
            return
        if self.settling is None:
            raise RuntimeError(
                f"servicebus: {destination}: {outcome.condition}: {outcome.description}"
            )
        judgement = judge(outcome.condition or "")
        match judgement.fault:
            case Fault.MESSAGE if len(job.batch) > 1:
                first, second = halves(job.batch)
                work.setdefault(destination, [])[:0] = [job.part(first), job.part(second)]
            case Fault.MESSAGE | Fault.GONE:
                text = f"{outcome.condition}: {outcome.description}"[:1024]
                self._settle_later(
                    _Settle(rows, job.rows(), "suspended", "dead_lettered", judgement.reason, text)
                )
            case Fault.DESTINATION:
                self._failed[destination.lower()] = outcome.condition or ""
                self._hold(rows, job.rows(), destination)
            case Fault.PRIMARY:
                self._primary_down = True
                self._failed[EVERYTHING] = outcome.condition or ""
                self._hold(rows, job.rows(), EVERYTHING)

    # -- what is to be settled

    def _hold(self, rows: Rows, indices: Sequence[int], destination: str) -> None:
        key = destination if destination == EVERYTHING else destination.lower()
        self._held += [
            [rows.entity[i], rows.token[i].hex(), rows.sequence[i], key, rows.locked_until(i)]
            for i in indices
            if rows.token[i] is not None
        ]

    def _settle_later(self, settle: _Settle) -> None:
        self._pending.append(settle)
        self._pending_rows += len(settle.indices)

    def flush(self) -> None:
        """Write the receipts of what was confirmed, and then settle it."""
        self._flushed_at = self.clock()
        pending, self._pending, self._pending_rows = self._pending, [], 0
        if pending and self.settling is not None:
            self._write_receipts(pending)
            self._settle_all(pending)
        elif pending:
            self._write_receipts(pending)
            for settle in pending:
                self._add(settle)
        self._send_report()

    def _write_receipts(self, pending: list[_Settle]) -> None:
        if self.receipts is None:
            return
        tables = [_receipts(s, self.clock()) for s in pending if s.event]
        if not tables:
            return
        import pyarrow as pa

        table = pa.concat_tables(tables)
        ends = [s.rows.locked_until(s.indices[-1]) or 0 for s in pending if s.indices]
        deadline = min(ends, default=0)
        while True:
            try:
                self.receipts(table)
            except Exception as exc:
                # Sent, and no proof of it: wait for the ledger while the lock lasts. When it ends
                # the message is given out again: doubled, and not lost.
                self.report({"stalled": f"ledger: {exc}"})
                if self.clock() >= deadline - 1:
                    raise
                self.pause(1.0)
            else:
                return

    def _settle_all(self, pending: list[_Settle]) -> None:
        """Settle what was taken, each queue's at once; then the rest, as it came."""
        completed: dict[str, list[bytes]] = {}
        for settle in pending:
            if settle.how == "completed":
                settle.collect(completed)
        for queue, tokens in completed.items():
            self._settle(queue, tokens, "completed")
        for settle in pending:
            if settle.how != "completed":
                for queue, tokens in settle.collect({}).items():
                    if settle.how == "abandoned":
                        tokens.reverse()  # newest first: the queue's order is whole at all times
                    self._settle(queue, tokens, settle.how, settle.reason, settle.description)
            self._add(settle)

    def _settle(
        self, queue: str, tokens: list[bytes], how: str, reason: str = "", description: str = ""
    ) -> None:
        assert self.settling is not None
        told = (reason, description) if how == "suspended" else ()
        lost = self.settling.settle(queue, tokens, how, *told)
        if lost and how == "abandoned":
            self._doubtful.add(queue)  # they may be locked still, and newer ones would pass them
        self._count(self.names[1], "settle", queue, how, len(tokens), 0, len(tokens))

    def _add(self, settle: _Settle) -> None:
        if settle.event == "forwarded":
            self._summary["forwarded"] += len(settle.indices)
            message = settle.rows.message
            self._summary["bytes"] += sum([len(message[i]) for i in settle.indices])
        elif settle.event == "dead_lettered":
            dead = self._summary["dead_lettered"]
            dead[settle.reason] = dead.get(settle.reason, 0) + len(settle.indices)

    def _count(
        self,
        namespace: str,
        stage: str,
        entity: str,
        operation: str,
        messages: int,
        size: int,
        billable: int,
    ) -> None:
        key = (namespace, stage, entity, operation)
        row = self._operations.setdefault(key, [0, 0, 0, 0])
        row[0] += 1
        row[1] += messages
        row[2] += size
        row[3] += billable

    def _send_report(self) -> None:
        report = {
            **self._summary,
            "operations": [[*key, *row] for key, row in self._operations.items()],
            "held": self._held,
            "failed": self._failed,
            "delivered": sorted(self._delivered),
            "doubtful": sorted(self._doubtful),
        }
        self.report(report)
        self._summary = {"forwarded": 0, "bytes": 0, "dead_lettered": {}}
        self._operations, self._held = {}, []
        self._delivered, self._doubtful = set(), set()

    def finish(self) -> None:
        """The last row came: receipts, settle, report."""
        self.flush()


_OPEN: Any = object()


@dataclass(frozen=True, slots=True)
class _Job:
    """One batch for one destination: which of its rows."""

    indices: list[int]
    messages: list[bytes]
    batch: range

    def rows(self) -> list[int]:
        return self.indices[self.batch.start : self.batch.stop]

    def part(self, batch: range) -> "_Job":
        return _Job(self.indices, self.messages, batch)


def _receipts(settle: _Settle, now: float) -> "pa.Table":
    """The receipts of some rows, as the ledger's table of messages wants them."""
    import pyarrow as pa

    batch = settle.rows.batch
    first, count = settle.indices[0], len(settle.indices)
    if settle.indices[-1] - first == count - 1:  # they are in order: a run
        batch = batch.slice(first, count)
    else:
        batch = batch.take(pa.array(settle.indices))
    names = set(batch.schema.names)
    time_type = pa.timestamp("us", tz="UTC")

    def column(name: str, kind: Any) -> Any:
        return batch.column(name).cast(kind) if name in names else pa.nulls(count, kind)

    destination = column("destination", pa.string())
    reason = pa.repeat(pa.scalar(settle.reason or None, pa.string()), count)
    if ORIGINAL in names:  # a transform may have changed the destination: the books go by the old
        import pyarrow.compute as pc

        first, sent_to = column(ORIGINAL, pa.string()), destination
        destination = pc.coalesce(first, sent_to)
        if settle.event == "forwarded":
            moved = pc.fill_null(pc.not_equal(first, sent_to), False)
            reason = pc.if_else(moved, pc.binary_join_element_wise("to", sent_to, " "), reason)
    return pa.table(
        {
            "event": pa.repeat(pa.scalar(settle.event, pa.string()), count),
            "at": pa.repeat(int(now * 1e6), count).view(time_type),
            "message_id": column("messageId", pa.string()),
            "destination": destination,
            "session_id": column("sessionId", pa.string()),
            "backlog_queue": column("entity", pa.string()),
            "sequence_number": column("sequenceNumber", pa.int64()),
            "size": column("size", pa.int64()),
            "enqueued_at": column("enqueuedTime", time_type),
            "reason": reason,
        }
    )
