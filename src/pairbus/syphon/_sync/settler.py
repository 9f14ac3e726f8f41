# generated from src/pairbus/syphon/_async/settler.py by tools/gen_unasync.py; edit that one
"""Write receipts of confirmed messages, then settle the messages, then report: in this order.

A crash between two of these steps can duplicate a message, but never lose it or its receipt. Rows
that cannot be sent now are held, deferred, or returned, so that none of them overtakes.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pairbus.envelope.fence import Fence
from pairbus.runtime import Runtime
from pairbus.syphon._sync.answers import FenceAnswers
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon.deferred import DeferredNumbers
from pairbus.syphon.delivery_rows import DeliveryRows
from pairbus.syphon.delivery_settings import DeliverySettings
from pairbus.syphon.held import WHOLE_PRIMARY
from pairbus.syphon.rates import AdaptiveRate
from pairbus.syphon.records import (
    HeldMessage,
    OperationCount,
    TaskReport,
)
from pairbus.syphon.refusals import Cause, Outcome, judge
from pairbus.syphon.settlement import DEFER, Settlement, receipts_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Settler"]

FLUSH_ROWS = 10_000
FLUSH_SECONDS = 2.0

#: The key does not have the right Send on the reply queue. If such a fence were abandoned, it would
#: only be received again; the client that waits for its answer sends another fence.
_NO_RIGHT = ("amqp:unauthorized-access", "com.microsoft:auth-failed")


class Settler:
    """Settles the rows of one task, and writes the task's reports.

    Args:
        runtime: clock and sleep.
        settling: the secondary; None where nothing is to be settled.
        receipts: writes an Arrow table of receipts, durable when it returns; None without ledger.
        report: called with the report of each flush.
        settings: the secondary's name in the ledger, and which messages were received by their
            numbers.
        answering: the reply queue; None where fences are not answered.
    """

    def __init__(
        self,
        runtime: Runtime,
        settling: BacklogQueues | None,
        receipts: "Callable[[pa.Table], None] | None",
        report: Callable[[TaskReport], None],
        settings: DeliverySettings,
        answering: FenceAnswers | None,
    ) -> None:
        self._runtime = runtime
        self._settling = settling
        self._receipts = receipts
        self._report = report
        self._namespace = settings.secondary
        self._answering = answering
        self._blocked = settings.blocked
        self._fences: dict[str, list[tuple[Fence, bytes, int]]] = {}  # with token and number
        self._postponed: set[tuple[str, str]] = set()  # queues and destinations
        self._deferred: list[DeferredNumbers] = []
        self._undeferred: dict[str, list[int]] = {}
        self._pending: list[Settlement] = []
        self._flushed_at = runtime.time()
        self._forwarded, self._size = 0, 0
        self._dead_lettered: dict[str, int] = {}
        self._held: list[HeldMessage] = []
        self._operations: dict[tuple[str, str, str, str], tuple[int, ...]] = {}
        self._delivered: set[str] = set()
        self._uncertain: set[str] = set()  # queues to which a message could not be returned
        self._busy = 0
        self.failed: dict[str, str] = {}

    def add(self, settlement: Settlement) -> None:
        """Settle these rows with the next flush."""
        self._pending.append(settlement)

    def postpone(self, rows: DeliveryRows, indices: Sequence[int], destination: str) -> None:
        """Keep rows in the backlog until a destination, or `*` for the primary, accepts messages.

        Messages stay locked, or are deferred if the destination has been waited for long enough. A
        message that was received by its number is deferred again when it is returned.
        """
        key = destination if destination == WHOLE_PRIMARY else destination.lower()
        self._postponed |= {(rows.entity[i], (rows.destination[i] or "").lower()) for i in indices}
        locked = [i for i in indices if rows.token[i] is not None]
        if self._blocked.fetched:
            is_fetched = self._blocked.is_fetched
            fetched = [i for i in locked if is_fetched(rows.entity[i], rows.sequence[i])]
            if fetched:
                self.add(Settlement(rows, fetched, "abandoned", None))
                locked = sorted({*locked} - {*fetched})
        if not locked:
            return
        if key in self._blocked.deferring:  # with the next flush, after the numbers were reported
            queues: dict[str, list[int]] = {}
            for i in locked:
                queues.setdefault(rows.entity[i], []).append(rows.sequence[i])
            self._deferred += [DeferredNumbers(key, q, tuple(n)) for q, n in queues.items()]
            self.add(Settlement(rows, locked, DEFER, None))
            return
        for i in locked:
            token, until = rows.token[i].hex(), rows.locked_until(i) or 0.0
            self._held.append(HeldMessage(rows.entity[i], token, rows.sequence[i], key, until))

    def has_postponed(self, queue: str, destination: str) -> bool:
        """Whether a message of this queue for this destination was postponed."""
        return (queue, destination) in self._postponed

    def add_fence(self, queue: str, fence: Fence, token: bytes, sequence: int) -> None:
        """Answer a fence with the next flush, when everything before it is settled."""
        self._fences.setdefault(queue, []).append((fence, token, sequence))

    def delivered(self, destination: str) -> None:
        """Report that a destination accepted a message."""
        self._delivered.add(destination)

    def was_busy(self) -> None:
        """Report that the primary answered server-busy."""
        self._busy += 1

    def count(self, namespace: str, stage: str, entity: str, operation: str, *numbers: int) -> None:
        """Count one call for the ledger, with its messages, bytes and billable operations."""
        key = (namespace, stage, entity, operation)
        before = self._operations.get(key, (0, 0, 0, 0))
        self._operations[key] = tuple(map(sum, zip(before, (1, *numbers), strict=True)))

    @property
    def is_due(self) -> bool:
        """Whether enough rows have been added, or enough time has passed, for a flush."""
        waited = self._runtime.time() - self._flushed_at
        rows = sum(len(one.indices) for one in self._pending)
        return rows >= FLUSH_ROWS or waited > FLUSH_SECONDS or bool(self._fences)

    def flush(self, sending: AdaptiveRate | None = None, *, is_last: bool = False) -> None:
        """Write the receipts, settle, and report.

        Args:
            sending: the task's share of the rate of sending.
            is_last: the task ends.
        """
        self._flushed_at = self._runtime.time()
        pending, self._pending = self._pending, []
        if pending:
            self._write_receipts(pending)
            if self._deferred:  # a message that is deferred but not recorded is not found again
                self._report(TaskReport(deferred=tuple(self._deferred)))
                self._deferred = []
            incomplete: set[str] = set()
            if self._settling is not None:
                incomplete = self._settle_all(self._settling, pending)
            for settlement in pending:
                self._add_up(settlement, incomplete)
        if self._fences and self._settling is not None and self._answering is not None:
            self._answer_fences(self._settling, self._answering)
        self._send_report(sending, is_last)

    def _write_receipts(self, pending: list[Settlement]) -> None:
        if self._receipts is None:
            return
        tables = [receipts_of(s, self._runtime.time()) for s in pending if s.event]
        if not tables:
            return
        import pyarrow as pa

        table = pa.concat_tables(tables)
        ends = [s.rows.locked_until(s.indices[-1]) or 0 for s in pending if s.indices]
        deadline = min(ends, default=0)
        while True:
            try:
                self._runtime.run_blocking(self._receipts, table)
            except Exception as exc:
                # Sent, but not recorded: wait for the ledger while the lock lasts. When the lock
                # expires the message is delivered again: duplicated, not lost.
                self._report(TaskReport(stalled=f"ledger: {exc}"))
                if self._runtime.time() >= deadline - 1:
                    raise
                self._runtime.sleep(1.0)
            else:
                return

    def _settle_all(self, settling: BacklogQueues, pending: list[Settlement]) -> set[str]:
        """Complete each queue's messages together; then settle the others in their order.

        Returns the queues where a lock was lost, so that some messages are still there.
        """
        incomplete: set[str] = set()
        completed: dict[str, list[bytes]] = {}
        groups = [("completed", "", "", completed)]
        for one in pending:
            if one.how == "completed":
                one.add_tokens(completed)
            else:
                groups.append((one.how, one.reason, one.description, one.add_tokens({})))
        for how, reason, description, queues in groups:
            for queue, tokens in queues.items():
                if how == "abandoned":
                    tokens.reverse()  # newest first: the queue is in order at any time
                if self._settle(settling, queue, tokens, how, reason, description):
                    incomplete.add(queue)
                    if how in ("abandoned", DEFER):
                        # They may still be locked, and newer messages would overtake them.
                        self._uncertain.add(queue)
        return incomplete

    def _settle(
        self,
        settling: BacklogQueues,
        queue: str,
        tokens: list[bytes],
        how: str,
        reason: str = "",
        description: str = "",
    ) -> int:
        """Settle messages, and count those that were settled; return how many locks were lost."""
        lost = settling.settle(queue, tokens, how, reason, description)
        lost = len(tokens) if lost is None else lost
        settled = len(tokens) - lost
        if settled:
            name = "deferred" if how == DEFER else how
            self.count(self._namespace, "settle", queue, name, settled, 0, settled)
        return lost

    def _answer_fences(self, settling: BacklogQueues, answering: FenceAnswers) -> None:
        """Answer fences, then complete them; after a crash in between, one is answered twice."""
        fences, self._fences = self._fences, {}
        for queue, passed in fences.items():
            outcomes = answering.answer(queue, [fence for fence, _, _ in passed])
            self.count(self._namespace, "management", queue, "answer", 0, 0, len(passed))
            done: dict[int, bytes] = {}
            for (_, token, sequence), outcome in zip(passed, outcomes, strict=True):
                if outcome.is_accepted:
                    done[sequence] = token
                elif self._refuse_fence(settling, queue, token, outcome):
                    self._note_settled(queue, sequence)
            if done and not self._settle(settling, queue, list(done.values()), "completed"):
                for sequence in done:
                    self._note_settled(queue, sequence)

    def _refuse_fence(
        self, settling: BacklogQueues, queue: str, token: bytes, outcome: Outcome
    ) -> bool:
        """Abandon a fence that could not be answered, or dead-letter it if the refusal is final.

        Returns whether it is gone from the queue.
        """
        condition = outcome.condition or ""
        if condition in _NO_RIGHT or judge(condition).cause in (Cause.MISSING, Cause.MESSAGE):
            text = f"{condition}: {outcome.description}"[:1024]
            reason = "FenceNotAnswered"
            lost = self._settle(settling, queue, [token], "suspended", reason, text)
            self._dead_lettered[reason] = self._dead_lettered.get(reason, 0) + 1
            return not lost
        self._settle(settling, queue, [token], "abandoned")
        return False

    def _note_settled(self, queue: str, sequence: int) -> None:
        """Report a settled message that was received by its number.

        A message that is still in the queue must stay in the coordinator's record: nothing else
        finds it. If one of several locks was lost, none is reported: the next receive notices which
        messages are gone.
        """
        if self._blocked.is_fetched(queue, sequence):
            self._undeferred.setdefault(queue, []).append(sequence)

    def _add_up(self, settlement: Settlement, incomplete: set[str]) -> None:
        number = len(settlement.indices)
        if self._blocked.fetched and settlement.how in ("completed", "suspended"):
            for i in settlement.indices:
                if settlement.rows.entity[i] not in incomplete:
                    self._note_settled(settlement.rows.entity[i], settlement.rows.sequence[i])
        if settlement.event == "forwarded":
            self._forwarded += number
            self._size += settlement.size
        elif settlement.event == "dead_lettered":
            reason = settlement.reason
            self._dead_lettered[reason] = self._dead_lettered.get(reason, 0) + number

    def _send_report(self, sending: AdaptiveRate | None, is_last: bool) -> None:
        report = TaskReport(
            forwarded=self._forwarded,
            size=self._size,
            dead_lettered=self._dead_lettered,
            operations=tuple(OperationCount(*k, *row) for k, row in self._operations.items()),
            held=tuple(self._held),
            failed=dict(self.failed),
            delivered=tuple(sorted(self._delivered)),
            uncertain=tuple(sorted(self._uncertain)),
            busy=self._busy,
            sending=sending,
            has_ended=is_last,
            undeferred={queue: tuple(numbers) for queue, numbers in self._undeferred.items()},
        )
        self._forwarded, self._size, self._dead_lettered, self._busy = 0, 0, {}, 0
        self._operations, self._held, self._undeferred = {}, [], {}
        self._delivered, self._uncertain = set(), set()
        self._report(report)
