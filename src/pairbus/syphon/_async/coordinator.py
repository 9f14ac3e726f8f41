"""The coordinator: the part of the syphon that lives as long as the query, beside Spark's driver.

It reads the reports of tasks, adds up totals, renews the locks of held messages, returns them when
they are due, checks uncertain queues, and plans the next micro-batch. It passes its decisions to
tasks through the state directory; if it dies, the next coordinator continues from there.

Two callers work at the same time: Spark calls `plan`, and a background task calls `tick`. `_guard`
protects the state that both use, and is never held during a request to a namespace or the ledger,
or while a file of the state is read or written, which may be a request as well. `_files` keeps
writes to the state directory in the order of the decisions, and protects the records of deferred
messages; it is taken before `_guard`. While `plan` has it, no report is applied and no message is
deferred; messages may be returned and locks renewed.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import PurePath

from pairbus.names import billable
from pairbus.runtime import AsyncRuntime, AsyncTask
from pairbus.syphon._async.backlog import BacklogQueues
from pairbus.syphon._async.deferral import Deferral
from pairbus.syphon._async.doorbell import Doorbell
from pairbus.syphon._async.emptiness import EmptinessCheck
from pairbus.syphon._async.ledger_counts import LedgerCounts, Operations
from pairbus.syphon._async.lock_maintenance import LOCK_SECONDS, LockMaintenance
from pairbus.syphon.held import WHOLE_PRIMARY, HeldMessages
from pairbus.syphon.limits import Grant
from pairbus.syphon.object_journal import open_journal
from pairbus.syphon.orphaned_locks import OrphanedLocks
from pairbus.syphon.planner import Plan, Planner
from pairbus.syphon.rates import Pace
from pairbus.syphon.records import BlockedRecord, Control, TaskReport
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.status_records import ProgressRecord

__all__ = ["Coordinator"]

log = logging.getLogger("pairbus.syphon")

TICK = 0.5  # seconds
REMOTE_TICK = 2.0  # in an object store, where each read of the state is a request
SAVE_EVERY = 5.0


class Coordinator:
    """Coordinates one syphon.

    Args:
        runtime: clock, background task, guards.
        state: the state directory.
        backlog: the secondary.
        doorbell: waits for messages in quiet queues.
        operations: the ledger.
        planner: plans micro-batches.
        held: the messages that stay locked.
        namespace: the secondary's name in the ledger.
        until_empty: find out whether the queues are empty, and report it in the progress.
        defers: defer messages that wait for longer than two locks; else they stay locked.
    """

    def __init__(
        self,
        runtime: AsyncRuntime,
        state: StateDirectory,
        backlog: BacklogQueues,
        doorbell: Doorbell,
        operations: Operations,
        planner: Planner,
        held: HeldMessages,
        *,
        namespace: str = "secondary",
        until_empty: bool = False,
        defers: bool = True,
    ) -> None:
        self._runtime = runtime
        self._state = state.create()
        self._doorbell = doorbell
        self._planner = planner
        self._held = held
        self._ledger = LedgerCounts(runtime, operations, namespace)
        self._journal = open_journal(state.location, runtime)
        self._orphans = OrphanedLocks(self._journal)
        self._totals = state.progress().for_new_run()
        self._oldest: dict[str, int | None] = {}  # by queue; None if it had no more messages
        self._listening: tuple[str, ...] = ()
        self._blocked: BlockedRecord | None = None  # as last written
        self._progress: ProgressRecord | None = None  # as last written
        self._guard, self._files = runtime.condition(), runtime.condition()
        self._deferral = Deferral(
            runtime, self._guard, self._files, state, backlog, held, self._orphans,
            planner.queues, self._ledger.count, is_enabled=defers,
        )  # fmt: skip
        self._locks = LockMaintenance(
            runtime, self._guard, backlog, held, self._orphans, planner, self._ledger.count,
            self._publish,
        )  # fmt: skip
        self._emptiness = EmptinessCheck(
            runtime, self._guard, backlog, planner, self._deferral, self._ledger.count
        )
        self._applied: set[PurePath] = set()  # reports that could not be removed yet
        self._problem: str | None = None  # of the last tick
        self._until_empty = until_empty
        self._saved_at = 0.0
        self._is_planned = False
        self._task: AsyncTask | None = None
        self._stop = runtime.event()

    # -- life

    def start(self) -> None:
        """Take over the held messages of a former coordinator, and work in the background."""
        now = self._runtime.time()
        self._deferral.start(now)
        self._held.restore(self._state.held(), now)
        for queue in self._state.progress().suspect:
            self._orphans.suspect(queue, now)  # its doorbell may have held a message when it died
        self._totals = replace(self._totals, is_started=True)
        self._publish()
        self._task = self._runtime.spawn(self._run, name="pairbus-coordinator")

    def empty_once(self) -> None:
        """Read every queue until it is found empty, and do not wait for more."""
        with self._guard:
            self._planner.empty_once()
            self._deferral.unread.clear()  # Spark ends the query when there is nothing to read

    async def close(self) -> None:
        """Stop working, and end the long polls."""
        self._stop.set()
        await self._doorbell.close()
        if self._task is not None:
            await self._task.join(timeout=5)

    async def _run(self) -> None:
        every = 0.0  # the first tick is immediate: with a new state no queue is read before it
        while not await self._stop.wait(every):
            every = REMOTE_TICK if self._state.is_remote else TICK
            try:
                await self.tick()
            except OSError as exc:  # a share or store fails now and then
                log.warning("the syphon's state cannot be read or written: %s", exc)

    async def tick(self) -> None:
        """Read reports, return or renew held messages, check uncertain queues, write the state.

        Each step is tried on its own, and a failure names the step: the coordinator survives it.
        """
        steps: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("task reports", self._collect),
            ("ledger", self._ledger.probe),
        ]
        if self._state.is_stopping:
            steps.append(("secondary: returning held messages", self._return_all))
        else:
            steps += [
                ("secondary: returning held messages", self._return_due),
                ("secondary: checking uncertain queues", self._check_orphans),
                ("secondary: deferring messages", self._defer_waiting),
                ("secondary: searching deferred messages", self._deferral.search),
            ]
        steps += [
            ("secondary: renewing locks", self._locks.renew),
            ("secondary: checking for empty queues", self._check_empty),
            ("ledger: writing operations", self._flush),
        ]
        problems = [await self._try(step, action) for step, action in steps]
        with self._guard:
            self._problem = next((problem for problem in problems if problem), None)
        await self._try("state directory", self._save)

    async def _try(self, step: str, action: Callable[[], Awaitable[None]]) -> str | None:
        """Perform a step; return None, or the failure with the step's name."""
        try:
            await action()
        except Exception as exc:  # noqa: BLE001 - the coordinator outlives every failure
            log.warning("%s: %s", step, exc)
            return f"{step}: {exc}"
        return None

    # -- planning, called by Spark

    async def plan(self, epoch: int) -> tuple[Grant, ...]:
        """Plan the micro-batch after `epoch`; empty when there is nothing to do now."""
        await self._collect()
        is_stopping = self._state.is_stopping
        if not is_stopping:
            # Not only at the next tick: newly read messages must not overtake those that are due.
            await self._try("secondary: returning held messages", self._return_due)
        control = self._state.control()
        with self._files:
            plan = self._plan(epoch, control, is_stopping=is_stopping)
        if plan.grants:
            self._journal.drop_before(epoch)
        self._publish()  # before tasks read, and before the doorbell listens
        self._doorbell.listen(plan.listen)
        return plan.grants

    def _plan(self, epoch: int, control: Control, *, is_stopping: bool) -> Plan:
        found = self._orphans.read(epoch)
        self._deferral.read_next()
        with self._guard:
            now = self._runtime.time()
            self._is_planned = True
            self._orphans.search(epoch, found, now)
            # Frozen until the plan is known: a poll that began now would compete with the readers.
            frozen = self._doorbell.freeze()
            self._planner.ready(self._doorbell.rung())
            unsafe = {*self._orphans.queues(), *self._locks.returning, *self._deferral.unread}
            deferred = self._deferral.next(now)
            # An uncertain queue is checked only if there is something to read.
            self._planner.ready(deferred.keys() & unsafe)
            plan = self._planner.plan(
                epoch,
                now,
                control,
                is_stopping=is_stopping,
                is_blocked=bool(self._ledger.problem) or now < self._held.paused_until(),
                # A poll under way may hold a queue's oldest message, but never a deferred one.
                not_now={*frozen, *unsafe},
                deferred={q: numbers for q, numbers in deferred.items() if q not in unsafe},
            )
            self._deferral.planned(plan.grants, now)
            self._totals = replace(self._totals, is_listening=plan.is_listening)
            self._listening = plan.listen
        return plan

    def grants(self, epoch: int) -> tuple[Grant, ...]:
        """Return the grants of an epoch.

        For an epoch that another coordinator planned, these are only the queues that were read in
        it and were not uncertain before it: messages of another queue may be locked, and a replay
        must not read past them.
        """
        with self._guard:
            grants = self._planner.grants(epoch)
            queues = set(self._planner.queues)
        if grants:
            return grants
        if not self._is_planned:
            queues = self._journal.queues_of(epoch) - self._journal.uncertain(epoch - 1).keys()
        with self._guard:
            grants = self._planner.replay(epoch, queues, self._runtime.time())
        self._publish()  # the tasks share the rate of sending
        return grants

    def uncertain_queues(self) -> list[str]:
        """Return the queues that have messages but cannot be read until locks have expired."""
        with self._guard:
            return [q for q in self._orphans.queues() if q in self._planner.ready_queues]

    def pace(self, tasks: int) -> Pace | None:
        """Return how fast each of the tasks of the planned micro-batch may read."""
        with self._guard:
            return self._planner.pace(tasks)

    # -- reports

    async def _collect(self) -> None:
        with self._files:
            reports: dict[PurePath, TaskReport] = {}
            try:
                for path, report in self._state.reports():
                    if path not in self._applied:
                        self._deferral.record(report)  # may fail: then the report is read again
                        with self._guard:
                            self._apply(report, self._runtime.time())
                        self._applied.add(path)
                    reports[path] = report
            finally:
                if any(report.held or report.failed for report in reports.values()):
                    self._save_held()  # the next coordinator must know which messages are locked
                for path in reports:
                    self._state.remove(path)
                    self._applied.discard(path)
        polls, rings, broken = self._doorbell.take_results()
        with self._guard:
            for queue in broken:
                self._orphans.suspect(queue, self._runtime.time())
        for queue, number in polls.items():
            self._ledger.count("idle_poll", queue, "receive", number, 0, 0, number)
        for queue, size in rings:
            # The poll itself is counted already; the bytes of its message beyond 64 KB are not.
            self._locks.count_released(queue, size, billable(size) - 1)

    def _apply(self, report: TaskReport, now: float) -> None:
        self._deferral.apply(report, now)
        self._totals = self._totals.plus(report)
        self._ledger.add(*report.operations)
        for queue, read in report.read.items():
            self._planner.was_read(queue, read)
            self._oldest[queue] = read.oldest if read.has_more else None
            self._locks.lock_seconds = read.lock_seconds or self._locks.lock_seconds
        if report.busy:
            self._planner.primary_was_busy()
        if report.sending is not None:
            self._planner.task_sent(report.sending, has_ended=report.has_ended)
        if WHOLE_PRIMARY in report.failed:
            self._planner.primary_failed()
        elif report.forwarded:
            self._planner.delivered()
            self._held.succeed(now)
        for queue in report.uncertain:
            self._orphans.suspect(queue, now)
        if report.stalled:
            self._ledger.problem = report.stalled
        for destination, condition in report.failed.items():
            self._held.fail(destination, condition, now)
        self._held.hold(report.held, now)
        if report.held or report.failed or self._held.is_waiting_for(report.delivered):
            self._locks.has_changed = True
        self._locks.free(self._held.accept(d for d in report.delivered if d not in report.failed))

    # -- held messages and uncertain queues

    async def _return_due(self) -> None:
        await self._locks.return_due(self._state.reachable_at())

    async def _return_all(self) -> None:
        await self._locks.return_all()
        with self._guard:
            self._totals = replace(self._totals, is_released=True)
            self._locks.has_changed, self._saved_at = True, 0.0

    async def _defer_waiting(self) -> None:
        await self._deferral.defer_waiting(self._locks.lock_seconds or LOCK_SECONDS)

    async def _check_orphans(self) -> None:
        with self._guard:
            busy = self._planner.granted if self._is_planned else set(self._planner.queues)
        await self._locks.check_orphans(busy | self._doorbell.armed())

    # -- records

    async def _flush(self) -> None:
        await self._ledger.flush(is_last=self._state.is_stopping)

    async def _check_empty(self) -> None:
        """Check whether no message is left, locked ones included."""
        if not self._until_empty:
            return
        with self._files, self._guard:
            is_busy = bool(
                self._planner.ready_queues
                or self._locks.returning
                or self._deferral.is_searching()
                or self._deferral.counts()
            )
        if await self._emptiness.check(is_busy=is_busy):
            with self._guard:
                self._totals = replace(self._totals, is_empty=True)

    async def _save(self) -> None:
        now = self._runtime.time()
        if self._locks.has_changed and now - self._saved_at >= SAVE_EVERY:
            with self._files:
                self._save_held()
        self._publish()

    def _save_held(self) -> None:
        with self._guard:
            record = self._held.record()
            record = replace(record, held=(*record.held, *self._locks.unreturned))
            self._locks.has_changed, self._saved_at = False, self._runtime.time()
        try:
            self._state.write_held(record)
        except OSError:
            self._locks.has_changed = True  # try again
            raise

    def _publish(self) -> None:
        """Write the files that tasks, driver and the next coordinator read, if they changed."""
        with self._files:
            control, ledger = self._state.control(), self._ledger.state()
            with self._guard:
                blocked = replace(self._deferral.blocked(), sending=self._planner.sending())
                counts = self._deferral.counts()
                uncertain, ready = self._orphans.queues(), self._planner.ready_queues
                polled = {*self._listening, *self._doorbell.armed()}
                suspect = {*polled, *self._locks.returning, *uncertain}
                progress = replace(
                    self._totals,
                    waiting=sum(counts.values()),
                    waiting_counts=counts,
                    waiting_for=self._held.reasons(),
                    in_flight=self._planner.in_flight,
                    is_drained=self._planner.is_drained,
                    uncertain=tuple(sorted(queue for queue in uncertain if queue in ready)),
                    suspect=tuple(sorted(suspect)),
                    oldest=min((at for at in self._oldest.values() if at), default=None),
                    problem=self._current_problem(),
                    allowed_rate=self._planner.allowed_rate(control),
                    throttled_by=self._planner.throttled_by(self._runtime.time()),
                    ledger_dropped_rows=ledger.dropped,
                    ledger_problem=ledger.problem,
                )
            if blocked != self._blocked:
                self._state.write_blocked(blocked)
                self._blocked = blocked
            if progress != self._progress:
                self._state.write_progress(progress)
                self._progress = progress

    def _current_problem(self) -> str | None:
        found = self._ledger.problem or self._problem or self._doorbell.problem
        if not found and self._held.paused_until() > self._runtime.time():
            found = f"primary: {self._held.reasons()[WHOLE_PRIMARY]}"
        return found
