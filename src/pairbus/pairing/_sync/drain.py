# generated from src/pairbus/pairing/_async/drain.py by tools/gen_unasync.py; edit that one
"""The drain of one entity: sends wait behind the backlog until the syphon has delivered it.

`core.draining` decides; this module sends fences, awaits answers, and holds and releases sends. The
entity's guard protects the state: a send that enters the backlog and the end of the drain exclude
each other, so that the backlog is empty when sends go to the primary again.
"""

from __future__ import annotations

import uuid
from time import monotonic
from typing import TYPE_CHECKING

from pairbus import events
from pairbus.exceptions import describe
from pairbus.pairing._sync.link import Link
from pairbus.pairing.core import health as core
from pairbus.pairing.core.draining import OVERDUE, Round, most_hold
from pairbus.pairing.fences import Answer, fence_message
from pairbus.pairing.runtime import Event, check_cancelled, spawn, wall
from pairbus.status import DrainStatus

if TYPE_CHECKING:
    from pairbus.pairing._sync.entity import Entity

FIRST_RETRY, MAX_RETRY = 0.5, 15.0
PAUSE = 0.1  # seconds between two rounds


class EntityDrain:
    """The drain of one entity: fences, answers, and held sends.

    Args:
        entity: The entity.
    """

    def __init__(self, entity: Entity) -> None:
        self._entity = entity
        self.round: Round | None = None  # None while not draining
        self.problem: str | None = None  # why a fence could not be sent
        self.queues: set[str] = set()  # may have taken messages since the last successful send
        self._in_flight: set[object] = set()  # calls that are putting messages into the backlog
        self._idle = Event()
        self._hold: Event | None = None  # set when held sends may go on
        self._stopped: Event | None = None
        self._changed = Event()  # a fence was answered
        self._sending: set[str] = set()  # fences on their way into a backlog queue
        self._syphon = ""
        self._is_reported_overdue = False
        self._reported: set[str] = set()  # reasons of OrderNotKept since the failover

    # -- sends

    def enter(self, call: object, budget: float) -> tuple[bool, float]:
        """Register a call that is about to put messages into the backlog.

        Args:
            call: Identifies the call.
            budget: How long the call may take, in seconds.

        Returns:
            Whether it may do so (then `leave` must follow); False if the drain is over and the call
            must use the primary. And how much of the budget is left.
        """
        entity, started = self._entity, monotonic()
        patience = most_hold(budget)
        while True:
            left = patience - (monotonic() - started)
            with entity.guard:
                if not entity.health.is_failed_over:
                    return False, budget
                hold = self._hold if left > 0 else None
                if hold is None:
                    self._in_flight.add(call)
                    return True, budget - (monotonic() - started)
            hold.wait(left)

    def took(self, path: str) -> None:
        """Record that a backlog queue took messages, or may have; the entity's guard is held."""
        self.queues.add(path)
        if self.round is not None:
            self.round = self.round.mark_dirty()

    def leave(self, call: object) -> None:
        """Unregister a call that `enter` registered. Twice is fine."""
        with self._entity.guard:
            self._in_flight.discard(call)
            if not self._in_flight:
                self._idle.set()

    def order_lost(self, reason: str) -> None:
        """Report that the order is not kept, for `reason`; each reason once per outage."""
        entity = self._entity
        if entity.pair.timing.drains_first and reason not in self._reported:
            self._reported.add(reason)
            entity.emit_later(events.OrderNotKept, reason=reason)

    def status(self) -> DrainStatus | None:
        """How far the drain is; None if there is none."""
        current = self.round
        if current is None:
            return None
        waits_for = current.fences.values() if current.number else self.queues
        return DrainStatus(
            since=wall(current.began_at),
            waits_for=tuple(sorted(waits_for)),
            is_overdue=current.is_overdue(monotonic()),
            problem=self.problem or self._entity.pair.replies.problem,
        )

    # -- commands of the core, performed with the entity's guard held

    def start(self) -> None:
        """Begin to send fences."""
        self._stopped = Event()
        self.round, self.problem, self._syphon = Round(monotonic(), is_dirty=True), None, ""
        self._sending = set()
        self._is_reported_overdue = False
        self._entity.pair.replies.listen(self, self._heard)
        name = f"pairbus drain {self._entity.name}"
        spawn(self._run, self._stopped, name=name)

    def stop(self) -> None:
        """Ignore the fences that were sent, and let held sends go on."""
        stopped, self._stopped = self._stopped, None
        self.round = None
        self._release()
        if stopped is not None:
            self._entity.pair.replies.ignore(self)
            stopped.set()
            self._changed.set()
            self._idle.set()

    def forget(self) -> None:
        """Forget the outage: sends go to the primary again. The entity's guard is held."""
        self.queues = set()
        self._reported = set()

    def _release(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.set()

    # -- answers

    def _heard(self, answer: Answer) -> None:
        entity = self._entity
        if not answer.fence:
            if answer.entity.lower() == entity.name.lower():
                entity.end_drain("released by an operator")
            return
        with entity.guard:
            if self.round is None or answer.fence not in self.round.fences:
                return
            if self._syphon and answer.syphon != self._syphon:
                self.order_lost("two syphons drain this pair")
            self._syphon = answer.syphon
            self.round = self.round.answer(answer.fence, monotonic())
            if self.round.is_answered:
                self._changed.set()
        entity.emit_pending()

    # -- rounds

    def _run(self, stopped: Event) -> None:
        entity = self._entity
        links: dict[str, Link] = {}
        last = Round(monotonic())
        try:
            while not stopped.is_set():
                check_cancelled()
                hold = last.next_hold(entity.pair.timing.send_timeout)
                held_until = monotonic() + hold
                if hold:
                    self._begin_hold(stopped, hold)
                started = self._begin_round(stopped, last)
                if started is None:
                    return
                self._send_fences(started, links, stopped)
                self._wait_for_answers(stopped, held_until, links)
                # If it is clean, this stops the drain; else another round follows.
                entity.apply(core.BacklogDrained(), by="fence", only_if=self._is_clean)
                with entity.guard:
                    if self.round is None or stopped.is_set():
                        return
                    last = self.round
                    self._release()
                stopped.wait(PAUSE)
        finally:
            for link in links.values():
                link.discard()

    def _is_clean(self) -> bool:
        """Whether nothing is left in the backlog; the entity's guard is held."""
        return self.round is not None and self.round.is_clean and not self._in_flight

    def _begin_hold(self, stopped: Event, seconds: float) -> None:
        """Hold sends, and wait for those that are on their way into the backlog."""
        with self._entity.guard:
            if stopped.is_set():
                return
            self._hold = Event()
            idle = self._when_idle()
        idle.wait(seconds)

    def _begin_round(self, stopped: Event, last: Round) -> Round | None:
        """Begin a round with a fence for each queue; None if the drain was stopped."""
        while True:
            with self._entity.guard:
                if stopped.is_set():
                    return None
                fences = {str(uuid.uuid4()): path for path in sorted(self.queues)}
                self._changed = Event()
                self.round = started = last.next(fences, monotonic())
                if fences or not self._in_flight:
                    return started
                idle = self._when_idle()
            idle.wait(OVERDUE)  # no queue has taken anything yet

    def _when_idle(self) -> Event:
        """Set when no call puts messages into the backlog; the entity's guard is held."""
        self._idle = Event()
        if not self._in_flight:
            self._idle.set()
        return self._idle

    def _send_fences(self, current: Round, links: dict[str, Link], stopped: Event) -> None:
        """Send the fences that are not answered, unless they are being sent."""
        for fence, path in current.fences.items():
            if fence not in self._sending:
                self._sending.add(fence)
                if path not in links:  # separate links: the queue has the messages already
                    links[path] = self._entity.pair.backlog_link(path, "fence in ")
                link = links[path]
                name = f"pairbus fence {self._entity.name}"
                spawn(self._send, fence, link, stopped, name=name)

    def _send(self, fence: str, link: Link, stopped: Event) -> None:
        """Send a fence to a backlog queue; retry until the queue has accepted it."""
        entity, pair = self._entity, self._entity.pair
        message = fence_message(fence, entity.name, pair.replies.path, pair.client_id)
        retry = FIRST_RETRY
        while not stopped.is_set():
            check_cancelled()
            try:
                link.send(message, deadline=monotonic() + pair.timing.send_timeout)
            except Exception as error:  # noqa: BLE001  # whatever it is, the drain waits
                self.problem = f"{link.path}: {describe(error)}"
            else:
                self.problem = None
                self._sending.discard(fence)
                pair.accounts.fenced(link.path)
                return
            self._report_overdue()
            stopped.wait(retry)
            retry = min(2 * retry, MAX_RETRY)

    def _wait_for_answers(
        self, stopped: Event, held_until: float, links: dict[str, Link]
    ) -> None:
        """Wait until all fences were answered; sends are held until `held_until` at most.

        A fence can be lost: dead-lettered while the reply queue was missing, or purged with its
        queue. So an overdue one is sent again; two answers to it do no harm.
        """
        overdue_at = monotonic() + OVERDUE
        while not stopped.is_set():
            with self._entity.guard:
                if self.round is None or self.round.is_answered:
                    return
                changed, current = self._changed, self.round
                left = held_until - monotonic()
                if left <= 0:
                    self._release()
                    left = max(1.0, overdue_at - monotonic())
            if not changed.wait(left):
                self._report_overdue()
                if monotonic() >= overdue_at and not stopped.is_set():
                    overdue_at = monotonic() + OVERDUE
                    self._send_fences(current, links, stopped)

    def _report_overdue(self) -> None:
        entity = self._entity
        with entity.guard:
            now, current = monotonic(), self.round
            if current is None or self._is_reported_overdue or not current.is_overdue(now):
                return
            self._is_reported_overdue = True
            for path in sorted(set(current.fences.values())):
                entity.emit_later(
                    events.FenceOverdue, backlog_queue=path, seconds=now - current.began_at
                )
        entity.emit_pending()
