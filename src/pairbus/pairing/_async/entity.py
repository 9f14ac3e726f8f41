"""One primary entity as all senders of a paired client see it: health, timer, pings."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from azure.servicebus import ServiceBusMessage

from pairbus import events
from pairbus.classify import Verdict
from pairbus.exceptions import bare, describe
from pairbus.names import PING_CONTENT_TYPE
from pairbus.pairing._async.drain import EntityDrain
from pairbus.pairing._async.link import Link
from pairbus.pairing.core import health as core
from pairbus.pairing.core.health import Command, Fact, Health, Phase, step
from pairbus.pairing.core.ping import PING_TIME_TO_LIVE, PingSchedule, first_gap
from pairbus.pairing.runtime import AEvent, AGuard, acheck_cancelled, aspawn, wall
from pairbus.pairing.turns import Lock, Turn
from pairbus.status import Counts

if TYPE_CHECKING:
    from pairbus.pairing._async.pair import Pair

logger = logging.getLogger("pairbus.entity")


class Entity:
    """The shared state of one queue or topic of the primary."""

    def __init__(self, name: str, pair: Pair) -> None:
        self.name = name
        self.pair = pair
        self.health = Health(since=monotonic())
        self.counts = Counts()
        self.last_error: Exception | None = None
        self.last_success = 0.0  # when the last successful send to the primary began
        self.refusal: Exception | None = None
        self.backlog_queue: str | None = None
        self.next_ping: float | None = None
        self.engaged = AEvent()  # set while failed over; a new one after each restore
        self.guard = AGuard()
        self.drain = EntityDrain(self)
        self._engaged_at = 0.0  # when sends began to go to the backlog
        self._pending: deque[Callable[[], None]] = deque()
        self._emitting = Lock()
        self._timer: AEvent | None = None  # set to cancel
        self._pings: AEvent | None = None  # set to stop
        self._is_closed = False

    # -- facts

    def sent(self, messages: int) -> None:
        """Count messages that the primary took."""
        with self.guard:
            self.counts.sent_primary += messages

    def backlogged(self, messages: int, path: str) -> None:
        """Count messages that a backlog queue took."""
        with self.guard:
            self.counts.sent_backlog += messages
            self.backlog_queue = path
            self.drain.took(path)
        if self._pending:
            self.emit_pending()

    def succeeded(self) -> None:
        """The primary took a send."""
        if self.health.phase is not Phase.HEALTHY:
            self.apply(core.SendSucceeded(), by="send")

    def failed(self, error: Exception) -> Health:
        """Record an outage that a send, or opening a link, met; return the resulting health."""
        with self.guard:
            self.counts.failures += 1
            self.last_error = bare(error)
        return self.apply(core.SendFailed(describe(error)))

    def end_drain(self, reason: str) -> None:
        """End the drain, if there is one: send to the primary before the backlog is delivered."""
        with self.guard:
            if self.health.phase is Phase.DRAINING:
                self.drain.order_lost(reason)
        self.apply(core.DrainEnded(), by="operator")

    def order_lost(self, reason: str) -> None:
        """Report that the order of sends is not promised, for `reason`."""
        with self.guard:
            self.drain.order_lost(reason)
        self.emit_pending()

    def apply(
        self, fact: Fact, by: str = "ping", *, only_if: Callable[[], bool] | None = None
    ) -> Health:
        """Apply a fact, and start the commands that follow from it; nothing here waits.

        `only_if` is called under the guard; if it returns False, nothing is applied.
        """
        # A lock between threads; in one event loop it is always free. Commands are performed under
        # it too: two threads must not swap "stop the pings" and "start the pings".
        with self.guard:
            before = self.health
            if only_if is not None and not only_if():
                return before
            health, commands = step(before, fact, now=monotonic(), options=self.pair.timing)
            self.health = health
            if health.is_failed_over and not before.is_failed_over:
                self.engaged.set()
                self._engaged_at = health.since
            elif before.is_failed_over and not health.is_failed_over:
                self.engaged = AEvent()
                self.refusal = None
            if health is not before:
                self._pending.append(partial(self._emit, before, health, fact, by))
            for command in commands:
                self._perform(command)
            if before.is_failed_over and not health.is_failed_over:
                self.drain.forget()
        self.emit_pending()
        return health

    def emit_later(self, kind: type[events.Event], **data: Any) -> None:
        """Emit an event with the next `emit_pending`; the guard is held."""
        self._pending.append(partial(self.pair.bus.emit, kind, self.name, **data))

    def emit_pending(self) -> None:
        """Emit events in the order of the state changes, from any thread.

        Observers are called without the guard and may change the state themselves; their events are
        emitted by the thread that is emitting already.
        """
        if not self._pending:
            return
        turn = Turn()
        try:
            while self._pending and self._emitting.now(turn):
                while self._pending:
                    self._pending.popleft()()
                self._emitting.release(turn)
        finally:
            self._emitting.release(turn)  # if an observer raised, or a signal handler did

    def _perform(self, command: Command) -> None:
        """Start a command; nothing here waits."""
        if self._is_closed:
            return  # a send that outlives the close must start nothing
        match command:
            case core.ArmTimer(at):
                self._cancel_timer()
                self._timer = AEvent()
                aspawn(self._run_timer, at, self._timer, name=f"pairbus timer {self.name}")
            case core.CancelTimer():
                self._cancel_timer()
            case core.StartPings(at):
                self.stop_pings()
                self._pings = AEvent()
                self.next_ping = at
                aspawn(self._run_pings, at, self._pings, name=f"pairbus pings {self.name}")
            case core.StopPings():
                self.stop_pings()
            case core.StartDrain():
                self.drain.start()
            case core.StopDrain():
                self.drain.stop()

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.set()

    def stop_pings(self) -> None:
        """Ping no more."""
        pings, self._pings = self._pings, None
        self.next_ping = None
        if pings is not None:
            pings.set()

    def resume(self, former: Entity) -> None:
        """Continue from the state of `former`, whose messages are in the backlog."""
        self.health = former.health
        self.last_error, self.refusal = former.last_error, former.refusal
        self.drain.queues = set(former.drain.queues)
        self._engaged_at = former._engaged_at
        if self.health.is_failed_over:
            self.engaged.set()
        for command in core.resume(self.health, now=monotonic(), options=self.pair.timing):
            self._perform(command)

    def close(self) -> None:
        """Stop the timer, the pings and the drain for good."""
        with self.guard:
            self._is_closed = True
            self._cancel_timer()
            self.stop_pings()
            if self.drain.queues and self.health.is_failed_over:
                self.drain.order_lost("the client was closed before its backlog was delivered")
            self.drain.stop()
            self.engaged.set()
        self.emit_pending()

    def _emit(self, before: Health, after: Health, fact: Fact, by: str) -> None:
        emit = self.pair.bus.emit
        if after.forced != before.forced:
            if after.forced:
                emit(events.RoutingForced, self.name, to=after.forced)
            else:
                emit(events.RoutingReleased, self.name)
        if after.phase is Phase.SUSPECT and before.phase is Phase.HEALTHY:
            deadline = wall(after.failing_since + self.pair.timing.failover_interval)
            emit(events.PrimarySuspected, self.name, reason=after.reason, deadline=deadline)
        elif after.phase is Phase.FAILED_OVER and before.phase is not Phase.FAILED_OVER:
            since = wall(after.failing_since)
            emit(events.FailedOver, self.name, reason=after.reason, failing_since=since)
        elif after.phase is Phase.DRAINING and before.phase is not Phase.DRAINING:
            emit(events.Draining, self.name, by=by)
        elif before.is_failed_over and not after.is_failed_over:
            seconds = monotonic() - self._engaged_at
            by = "operator" if isinstance(fact, core.PrimaryForced) else by
            emit(events.Restored, self.name, by=by, seconds=seconds)
        if after.refused and after.refused != before.refused:
            emit(events.PrimaryRefused, self.name, reason=after.refused)

    # -- background tasks

    async def _run_timer(self, at: float, cancelled: AEvent) -> None:
        if not await cancelled.wait(at - monotonic()):
            self.apply(core.TimerFired())

    async def _run_pings(self, at: float, stopped: AEvent) -> None:
        timing = self.pair.timing
        schedule = PingSchedule(at, first_gap(timing), timing.ping_primary_interval)
        while not await stopped.wait(schedule.wait(monotonic())):
            await self._ping(stopped)
            acheck_cancelled()
            schedule = schedule.after(monotonic())
            if not stopped.is_set():
                self.next_ping = schedule.due

    async def _ping(self, stopped: AEvent) -> None:
        with self.pair.attempts.one():
            if not stopped.is_set():  # a client that is being closed must not wait for this ping
                await self._ping_now(stopped)

    async def _ping_now(self, stopped: AEvent) -> None:
        pair = self.pair
        started = monotonic()
        # A sender of its own each time: the last one failed, or was never opened.
        link = Link(
            partial(pair.primary.get_queue_sender, self.name),
            f"ping of {pair.primary_name(self.name)}",
            open_timeout=pair.timing.open_timeout,
        )
        error = await pair.ping(link, pair.primary_namespace, self.name)
        with self.guard:
            self.counts.pings += 1
        seconds = monotonic() - started
        reason = describe(error)
        pair.bus.emit(
            events.PingSent, self.name, succeeded=error is None, reason=reason, seconds=seconds
        )
        if stopped.is_set():
            return
        fact: Fact
        if error is None:
            fact = core.PingSucceeded()
        elif pair.verdict(error) is Verdict.MISSING:
            self.last_error = self.refusal = bare(error)
            fact = core.PingRefused(reason)
        else:
            self.last_error = bare(error)
            is_outage = pair.verdict(error) in (Verdict.OUTAGE, Verdict.REOPEN)
            fact = core.PingFailed(reason, is_outage)
        self.apply(fact)


def ping_message() -> ServiceBusMessage:
    """A ping: empty, expires after a second, with a session so that any entity accepts it."""
    return ServiceBusMessage(
        b"",
        content_type=PING_CONTENT_TYPE,
        time_to_live=timedelta(seconds=PING_TIME_TO_LIVE),
        session_id=str(uuid.uuid4()),
    )
