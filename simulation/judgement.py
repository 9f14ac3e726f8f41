"""Whether a simulated pair kept its promises: calls against messages that arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from simulation.applications import Application, Times
from simulation.destinations import PRIMARY
from simulation.faults import OUTAGES, Planned
from simulation.history import History, Verdict, Window, judge, out_of_order, overtaken
from simulation.ledger import Ledger, disagreements
from simulation.limits import LIMITS

AFTERMATH = 20.0
"""Seconds after a fault in which it may duplicate a message that was sent after it: a worker that
Spark has given up may go on for 15."""
DEADLINE = max(limit.seconds(Times()) for limit in LIMITS)
"""The longest duration of a call that is documented."""

Taken = Sequence[tuple[float, str, str]]
"""What a broker took: when, for which entity, which message, in this order."""


@dataclass
class Report:
    """The result of one run."""

    seed: int
    digest: str
    seconds: float
    plan: list[Planned]
    verdict: Verdict
    messages: int
    applications: int
    failovers: int
    redirected: int
    forwarded: int
    strikes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each kind of fault struck in each phase."""
    timeline: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """What else must not be: no healing, wrong order, a failover without reason."""

    @property
    def problems(self) -> list[str]:
        """What must not be."""
        return [*self.verdict.problems, *self.others]

    @property
    def counts(self) -> bool:
        """Whether the run was hard enough to mean something."""
        faults = sum(self.strikes.values())
        return self.applications >= 2 and self.messages >= 100 and faults >= 5


@dataclass(frozen=True)
class Evidence:
    """What is known of a run at its end.

    Attributes:
        history: the sends.
        windows: when faults were in force.
        arrived: the messages that receivers got, one entry for each time.
        primary: what the primary took.
        backlog: what the secondary took.
        failovers: when an application failed over, and which.
        applications: the applications.
        syphons: how many syphons there were.
        ledger: what applications and syphons recorded.
        ids: the messages by their ids.
        billed: operations that the brokers counted, by the stages of `cost`.
    """

    history: History
    windows: Sequence[Window]
    arrived: Sequence[str]
    primary: Taken
    backlog: Taken
    failovers: Sequence[tuple[float, str]]
    applications: Sequence[Application]
    syphons: int
    ledger: Ledger
    ids: dict[str, str]
    billed: dict[str, int]

    def verdict(self) -> Verdict:
        """What became of the messages."""
        return judge(
            self.history,
            self.arrived,
            self.windows,
            deadline=DEADLINE,
            aftermath=AFTERMATH,
            detected=self._detected(),
            settled_at={name: at for at, _, name in self.primary},
        )

    def problems(self) -> list[str]:
        """What must not be, apart from the verdict on the messages."""
        found = [problem for one in self.applications for problem in one.problems]
        found += self._needless_failovers()
        found += self._missing_receipts()
        found += self._disagreements()
        if self.syphons == 1 and not self._has("clock_jump"):  # it ends locks early or late
            detecting = {one.name for one in PRIMARY if one.detects}
            found += _named(
                "overtaken", overtaken(self.history, self.backlog, self.primary, detecting)
            )
            found += _named("out of order", out_of_order(self._ordered(), self.primary))
        return found

    def _has(self, kind: str) -> bool:
        return any(window.kind == kind for window in self.windows)

    def _detected(self) -> set[str]:
        """The messages whose destination detects duplicates within its window."""
        if self._has("recreated") or self._has("clock_jump"):
            return set()  # the entity forgets its window, or the clock leaves it
        users = {one.name for one in self.applications if one.habits.entity.detects}
        return {name for name, call in self.history.calls.items() if call.application in users}

    def _ordered(self) -> History:
        """The sends whose order is promised: see `recovery="drain_first"`."""
        promised = {
            one.name: one.unordered
            for one in self.applications
            if one.habits.recovery == "drain_first"
        }
        return History(
            {
                name: call
                for name, call in self.history.calls.items()
                if call.life not in promised.get(call.application, {call.life})
            }
        )

    def _needless_failovers(self) -> list[str]:
        """Failovers although nothing was wrong with the primary."""
        patience = max(one.habits.failover_interval for one in self.applications) + DEADLINE
        outages = [one for one in self.windows if one.kind in OUTAGES and one.side == "primary"]
        return [
            f"{name} failed over at {at:.1f} although the primary was healthy"
            for at, name in self.failovers
            if not any(window.is_near(at, at, patience) for window in outages)
        ]

    def _disagreements(self) -> list[str]:
        """Where the ledger contradicts what the brokers took."""
        calls = {} if self._has("lose_application") else self.history.calls
        recorded = {
            name for name, one in calls.items() if one.outcome == "ok" and one.is_redirected
        }
        return disagreements(
            self.ledger, self.backlog, self.primary, self.ids, recorded, self.billed
        )

    def _missing_receipts(self) -> list[str]:
        """Messages that left the backlog without a receipt."""
        if self._has("recreated"):
            return []  # a queue that is made again counts from 1 again
        taken = Counter(queue for _, queue, name in self.backlog if name)  # a probe is empty
        rows, _ = self.ledger.read("messages")
        places = {
            (row["backlog_queue"].lower(), row["sequence_number"])
            for row in rows
            if row["event"] == "forwarded"
        }
        recorded = Counter(queue for queue, _ in places)
        return [
            f"{taken[queue] - recorded[queue]} messages left {queue} without a receipt"
            for queue in sorted(taken)
            if taken[queue] > recorded[queue]
        ]


def _named(kind: str, found: Sequence[str]) -> list[str]:
    return [f"{kind}: {', '.join(found)}"] if found else []
