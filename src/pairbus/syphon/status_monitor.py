"""The status of a syphon, by progress: from the totals and the counts of the queues."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from pairbus.runtime import Runtime
from pairbus.syphon.progress import Progress, state_of
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.status_records import LedgerState, QueueCounts, SyphonStatus

__all__ = ["StatusMonitor"]

COUNT_EVERY = 5.0  # seconds
WRITE_EVERY = 1.0
WRITE_IDLE = 30.0


class StatusMonitor:
    """Watches a syphon from the outside and writes its status.

    Args:
        runtime: the clock.
        state: the state directory.
        identity: which syphon: a status with the fields that do not change.
        count: counts the backlog queues.
        publish: gets the status as JSON each time it is written, for the ledger.
        ledger: whether the rows of this process reach the ledger.
    """

    def __init__(
        self,
        runtime: Runtime,
        state: StateDirectory,
        identity: SyphonStatus,
        count: Callable[[], tuple[QueueCounts, ...]],
        publish: Callable[[bytes], None] = lambda _status: None,
        ledger: Callable[[], LedgerState] = LedgerState,
    ) -> None:
        self._runtime = runtime
        self._state = state
        self._identity = replace(identity, started_at=_iso(runtime.time()))
        self._count = count
        self._publish = publish
        self._ledger = ledger
        self._progress = Progress()
        self._since = runtime.time()
        self._is_started = False
        self._queues: tuple[QueueCounts, ...] = ()
        self._remaining: int | None = None  # at the last count
        self._total: int | None = None  # messages settled so far, plus messages that are left
        self._counted_at = 0.0
        self._written_at = 0.0
        self._written: dict[str, object] = {}
        self._last: SyphonStatus | None = None  # as last read from the state directory

    def counted(self, queues: tuple[QueueCounts, ...], *, is_moving: bool = False) -> None:
        """Record the counts of the queues.

        Counting costs a call for each queue, so it is done now and then; in between, the messages
        that were settled since are subtracted. While messages move, the coordinator counts a
        settlement later than the queue does; so the total does not shrink then.
        """
        self._queues = queues
        self._remaining = sum(queue.active for queue in queues)
        total = self._remaining + self._state.progress().settled
        if is_moving and self._remaining and self._total is not None:
            total = max(total, self._total)
        self._total = total
        self._counted_at = self._runtime.time()

    def status(self, *, is_active: bool, is_stopped: bool) -> SyphonStatus:
        """Return the status; while the state cannot be read, the last known one with the reason.

        Args:
            is_active: a micro-batch runs.
            is_stopped: the syphon has ended.

        Raises:
            OSError: the state cannot be read, and never was.
        """
        now = self._runtime.time()
        try:
            self._last = self._status(now, is_active=is_active, is_stopped=is_stopped)
        except OSError as exc:
            if self._last is None:
                raise
            word, problem = "stopped" if is_stopped else "stalled", f"state directory: {exc}"
            return replace(self._last, updated_at=_iso(now), state=word, stalled=problem)
        return self._last

    def _status(self, now: float, *, is_active: bool, is_stopped: bool) -> SyphonStatus:
        totals = self._state.progress()
        control = self._state.control()
        progress = self._progress
        if totals.is_started and not self._is_started:
            self._is_started, self._since = True, now  # the start of Spark is no standstill
        if self._is_started and not (self._remaining or totals.waiting or totals.uncertain):
            self._since = now  # neither is a time without work
        state = state_of(
            now,
            stopped=is_stopped,
            paused=control.paused,
            problem=totals.problem,
            remaining=self._remaining,
            waiting=totals.waiting,
            uncertain=len(totals.uncertain),
            active=is_active,
            since=self._since,
            last_progress=progress.last_progress,
            is_started=self._is_started,
        )
        remaining = None if self._total is None else max(0, self._total - totals.settled)
        in_flight = (totals.in_flight if is_active else 0) + totals.waiting
        if remaining is not None:
            in_flight = min(in_flight, remaining)  # a micro-batch may read more than there is
        resumes_at = self._state.blocked().primary_until
        ledger = self._ledger()
        return replace(
            self._identity,
            updated_at=_iso(now),
            state=state.word,
            stalled=state.stalled,
            forwarded=totals.forwarded,
            bytes=totals.size,
            remaining=remaining,
            in_flight=in_flight,
            waiting=totals.waiting,
            waiting_for=totals.waiting_for,
            waiting_counts=totals.waiting_counts,
            uncertain=totals.uncertain,
            dead_lettered=totals.dead_lettered,
            oldest_age=max(0.0, now - totals.oldest / 1000) if totals.oldest else None,
            rate=round(progress.rate, 1),
            allowed_rate=totals.allowed_rate and round(totals.allowed_rate, 1),
            throttled_by=totals.throttled_by,
            eta=progress.eta(remaining, now, totals.allowed_rate),
            last_progress=_iso(progress.last_progress) if progress.last_progress else None,
            next_attempt=_iso(resumes_at) if resumes_at > now else None,
            ledger_dropped_rows=totals.ledger_dropped_rows + ledger.dropped,
            ledger_problem=totals.ledger_problem or ledger.problem,
            limits={
                "max_messages_per_second": control.max_messages_per_second,
                "max_bytes_per_second": control.max_bytes_per_second,
            },
            queues=self._queues,
        )

    def tick(self, *, is_active: bool, is_stopped: bool = False) -> None:
        """Sample the totals, count the queues now and then, and write the status if it changed."""
        now = self._runtime.time()
        with contextlib.suppress(OSError):  # the status shows it
            self._sample(now, is_active=is_active)
        if now - self._written_at >= WRITE_EVERY or is_stopped:
            self._write(now, self.status(is_active=is_active, is_stopped=is_stopped).to_json())

    def _sample(self, now: float, *, is_active: bool) -> None:
        totals = self._state.progress()
        if now - (self._progress.sampled_at or 0) >= 1:
            self._progress = self._progress.sample(now, totals.settled)
        is_busy = is_active or bool(self._remaining) or bool(totals.waiting)
        if is_busy and now - self._counted_at >= COUNT_EVERY:
            with contextlib.suppress(Exception):  # the status goes on without counts
                self.counted(self._count(), is_moving=is_active)

    def _write(self, now: float, status: dict[str, object]) -> None:
        is_same = {**status, "updated_at": None} == {**self._written, "updated_at": None}
        if is_same and now - self._written_at < WRITE_IDLE:
            return
        self._written, self._written_at = status, now
        with contextlib.suppress(OSError):
            self._state.write("status.json", status)
        with contextlib.suppress(Exception):  # the status itself reports the ledger's state
            self._publish(json.dumps(status).encode())


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
