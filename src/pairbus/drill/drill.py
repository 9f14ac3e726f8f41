"""The drill from start to end: check, cut, fail over, fail back, drain, reconcile, clean up."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from pairbus.drill import canary
from pairbus.drill.account import (
    DrillStoppedError,
    Messages,
    Outage,
    judge_absence,
    judge_busy_backlog,
    judge_clock,
    judge_messages,
    judge_outage,
    judge_stop,
)
from pairbus.drill.arrivals import Arrivals
from pairbus.drill.checks import collect
from pairbus.drill.drain import available, syphon
from pairbus.drill.facts import Facts
from pairbus.drill.findings import Finding, critical, ok, warning, worst
from pairbus.drill.judging import judge
from pairbus.drill.outage import Rehearsal
from pairbus.drill.settings import Cost, Operations, Settings, compared, outlook, price
from pairbus.exceptions import PairingError
from pairbus.monitoring.endpoints import Pair
from pairbus.monitoring.formatting import duration, one_line
from pairbus.reports.price_lists import load_prices

POLL = 0.5
SPARK_NOTE = ", which may take a minute"
MOST_OTHERS = 250  # with so many messages of applications in the backlog, there is no outage


@dataclass(frozen=True, slots=True)
class Step:
    """One step: how long it took, and its details."""

    name: str
    seconds: float
    detail: str = ""


@dataclass(slots=True)
class Report:
    """The result of a drill."""

    verdict: str = "ok"
    findings: list[Finding] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    messages: Messages = field(default_factory=Messages)
    operations: Operations = field(default_factory=Operations)
    cost: Cost | None = None
    outage_cost: Cost | None = None
    with_your_intervals: list[str] = field(default_factory=list)


class Drill:
    """One drill on one pair.

    Args:
        pair: the pair.
        settings: how it is run.
        show: called with each step when it is done.
        announce: called with a text before a step that may take long.

    Raises:
        PriceError: the price list has no such tier.
        ValueError: a setting is out of range.
    """

    def __init__(
        self,
        pair: Pair,
        settings: Settings,
        show: Callable[[Step], None] = lambda _step: None,
        announce: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._pair = pair
        self._settings = settings
        self._show = show
        self._announce = announce
        self._run = canary.PREFIX + uuid.uuid4().hex[:8]
        self._is_dirty = False
        self._prices = load_prices()
        # Before anything is done: it raises for settings that make no sense.
        self._outage_cost = outlook(settings, pair.backlog_queue_count, self._prices)
        self.report = Report()

    def check(self) -> Facts:
        """Check both namespaces; the findings are in the report."""
        began = time.monotonic()
        facts = collect(self._pair, self._settings.entities)
        self._find(*judge(facts, self._settings.expected, needs_canary=not self._settings.entities))
        self._step("check both namespaces", time.monotonic() - began)
        queues = max(1, len(facts.backlog))
        self.report.operations.management += 4 + 2 * queues
        return facts

    def run(self) -> Report:
        """Run all steps, and clean up in any case."""
        facts = self.check()
        if self.report.verdict == "critical":
            self._find(
                warning(
                    "outage",
                    "the outage was left out",
                    "it would fail for the reasons above",
                    "correct the critical findings, then repeat the drill",
                )
            )
            return self._finish()
        try:
            self._rehearse(facts)
        except DrillStoppedError as stopped:
            self._find(judge_stop(stopped))
        finally:
            self._clean()
        return self._finish()

    # -- the outage

    def _rehearse(self, facts: Facts) -> None:
        settings = self._settings
        named = {
            one.path: bool(one.properties and one.properties.requires_session)
            for one in facts.destinations
            if one.is_named
        }
        self._is_dirty = True
        if not named:
            canary.create(self._pair, self._run)
            self.report.operations.management += 2
        entities = named or {self._run: False}
        arrivals = Arrivals(self._pair, self._run, list(entities))
        others = arrivals.others_in_backlog()
        if others >= MOST_OTHERS:
            self._find(judge_busy_backlog(others))
            return
        rehearsal = Rehearsal(self._pair, settings, entities, self._run, self._step)
        try:
            outage = rehearsal.run()
        finally:
            self._count(rehearsal.outage)
        self._find(*judge_outage(outage))
        self._find(*judge_clock("secondary", outage, arrivals.in_backlog()))
        self._drain(arrivals, outage, others)
        self._reconcile(arrivals, outage)
        self._find(*judge_clock("primary", outage, arrivals.enqueued))

    def _count(self, outage: Outage) -> None:
        operations = self.report.operations
        direct = sum(a.is_ok and a.id not in outage.backlogged for a in outage.attempts)
        operations.send_primary += direct
        operations.send_backlog += len(outage.backlogged)
        operations.ping += outage.pings

    # -- the drain

    def _drain(self, arrivals: Arrivals, outage: Outage, others: int) -> None:
        settings, began = self._settings, time.monotonic()
        wanted = settings.syphon
        if wanted in ("auto", "running"):
            limit = settings.drain_timeout if wanted == "running" else settings.notice
            self._announce(f"waiting up to {duration(limit)} for a running syphon")
            is_drained = self._wait(arrivals, outage, limit)
            is_begun = is_drained or len(arrivals.in_backlog()) < len(outage.backlogged)
            if is_begun and (is_drained or self._wait(arrivals, outage, settings.drain_timeout)):
                self._step("drain", time.monotonic() - began, "by the syphon that is running")
                self._find(ok("syphon", "a running syphon drained the backlog"))
            if is_begun:
                return
        if wanted == "running":
            self._find(
                critical(
                    "syphon",
                    f"no syphon drained the backlog within {duration(settings.drain_timeout)}",
                    "after an outage the messages stay in the backlog",
                    "start one: pairbus syphon run, or enable_syphon in an application",
                )
            )
            return
        kind = available() if wanted == "auto" else wanted
        self._find(judge_absence(others, kind))
        if others or kind is None:
            return
        where = "on Spark" if kind == "spark" else "in this process, without Spark"
        self._announce(f"starting a syphon {where}{SPARK_NOTE if kind == 'spark' else ''}")
        began = time.monotonic()
        try:
            with syphon(self._pair, kind):
                self._step("start a syphon", time.monotonic() - began, where)
                began = time.monotonic()
                self._wait(arrivals, outage, settings.drain_timeout)
                drained = time.monotonic() - began
        except PairingError as exc:
            self._find(
                critical(
                    "syphon",
                    f"the syphon failed: {one_line(exc)}",
                    "after an outage the messages stay in the backlog",
                    "see the error; --syphon here drains without Spark",
                )
            )
            return
        self._step("drain", drained, "with the drill's own syphon")

    def _wait(self, arrivals: Arrivals, outage: Outage, seconds: float) -> bool:
        """Wait until every message of the backlog has arrived; False when the time is over."""
        deadline = time.monotonic() + seconds
        while True:
            arrivals.update()
            missing = outage.backlogged - set(arrivals.counts)
            if not missing or (self._settings.entities and not arrivals.in_backlog()):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL)

    # -- the account

    def _reconcile(self, arrivals: Arrivals, outage: Outage) -> None:
        # In the order of a message's way: it is in the queue before it leaves the backlog.
        waiting = set(arrivals.in_backlog())
        arrivals.update()
        counts = arrivals.counts
        sent = [attempt.id for attempt in outage.attempts if attempt.is_ok]
        gone = [one for one in sent if not counts[one]]
        is_named = bool(self._settings.entities)
        lost = () if is_named else tuple(one for one in gone if one not in waiting)
        undrained = tuple(one for one in gone if one in waiting)
        duplicated = tuple(sorted(one for one, count in counts.items() if count > 1))
        self.report.messages = Messages(
            len(sent), outage.failed, len(outage.backlogged), len(sent) - len(gone),
            lost, duplicated, undrained,
        )  # fmt: skip
        drained = len(outage.backlogged) - len(undrained)
        operations = self.report.operations
        operations.receive_backlog += drained
        operations.send_primary += drained
        operations.settle += drained
        if not is_named:
            operations.receive_primary += sum(counts.values())
            operations.settle += sum(counts.values())
        self._find(*judge_messages(self.report.messages, is_named=is_named))

    # -- the end

    def _clean(self) -> None:
        if not self._is_dirty:
            return
        began = time.monotonic()
        try:
            removed = canary.clean(self._pair, self._run, has_queues=not self._settings.entities)
        except Exception as exc:  # noqa: BLE001 - the report must not be lost
            removed = canary.Removed(left=[f"{self._run}: {one_line(exc)}"])
        self._is_dirty = False
        self.report.operations.management += 2
        for text in removed.left:
            self._find(
                warning(
                    "clean-up",
                    f"not removed: {text}",
                    "the syphon waits a day for their destination, then dead-letters them",
                    "pairbus drill clean",
                )
            )
        self._step("clean up", time.monotonic() - began)

    def _finish(self) -> Report:
        report = self.report
        report.cost = price(report.operations.total, self._prices, self._settings.rules)
        report.outage_cost = self._outage_cost
        report.with_your_intervals = compared(self._settings)
        return report

    def _find(self, *findings: Finding) -> None:
        self.report.findings += findings
        self.report.verdict = worst(self.report.findings)

    def _step(self, name: str, seconds: float, detail: str = "") -> None:
        step = Step(name, seconds, detail)
        self.report.steps.append(step)
        self._show(step)
