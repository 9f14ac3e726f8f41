"""The results of a drill, and the findings that follow from them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pairbus.drill.facts import Kind, Problem
from pairbus.drill.findings import Finding, critical, ok, warning
from pairbus.drill.wording import throttled
from pairbus.monitoring.formatting import duration

CLOCK_WARNING, CLOCK_CRITICAL = 60.0, 300.0  # seconds


class DrillStoppedError(Exception):
    """The drill cannot continue; names the step and the problem."""

    def __init__(self, step: str, problem: Problem) -> None:
        super().__init__(f"{step}: {problem.text}")
        self.step = step
        self.problem = problem


@dataclass(slots=True)
class Attempt:
    """One send: its message id, and its result."""

    id: str
    began: float  # seconds since 1970
    ended: float = 0.0
    is_ok: bool = False
    error: str = ""


@dataclass(slots=True)
class Outage:
    """The measurements between the cut and the failback.

    Attributes:
        attempts: Every send.
        until_failover: Seconds from the cut until sends went to the backlog.
        until_failback: Seconds from the end of the outage until sends went to the primary.
        backlogged: Ids of the messages in the backlog.
        removed: Backlog queues that left the rotation, with the reason.
        pings: Pings that were sent.
    """

    attempts: list[Attempt] = field(default_factory=list)
    until_failover: float = 0.0
    until_failback: float = 0.0
    backlogged: set[str] = field(default_factory=set)
    removed: dict[str, str] = field(default_factory=dict)
    pings: int = 0

    @property
    def failed(self) -> int:
        """Sends that raised."""
        return sum(not attempt.is_ok for attempt in self.attempts)


@dataclass(frozen=True, slots=True)
class Messages:
    """The outcomes of the drill's messages."""

    sent: int = 0
    failed: int = 0
    backlogged: int = 0
    arrived: int = 0
    lost: tuple[str, ...] = ()
    duplicated: tuple[str, ...] = ()
    undrained: tuple[str, ...] = ()


def judge_clock(role: str, outage: Outage, enqueued: dict[str, float]) -> Iterator[Finding]:
    """Compare the times at which a namespace accepted messages with the clock of this machine."""
    offsets = [
        max(at - attempt.ended, 0.0) or min(at - attempt.began, 0.0)
        for attempt in outage.attempts
        if (at := enqueued.get(attempt.id)) is not None
        and attempt.is_ok
        and (role == "secondary") == (attempt.id in outage.backlogged)
    ]
    if not offsets:
        return
    offset = min(offsets, key=abs)
    if abs(offset) < CLOCK_WARNING:
        yield ok("clocks", f"this machine and the {role} agree")
        return
    grade = critical if abs(offset) >= CLOCK_CRITICAL else warning
    side = "behind" if offset > 0 else "ahead of"
    yield grade(
        "clocks",
        f"the clock of this machine is {duration(abs(offset))} {side} the {role}'s",
        "locks and tokens seem to last longer or shorter than they do",
        "let a time service (NTP) set the clock of this machine",
    )


def judge_outage(outage: Outage) -> Iterator[Finding]:
    """Return the findings about failover and failback, and about the backlog queues meanwhile."""
    for path, reason in outage.removed.items():
        yield critical(
            "backlog queues",
            f"{path} failed during the outage ({reason})",
            "sends had to try another queue",
            "see the reason; `pairbus backlog list` shows the queue",
        )
    yield ok(
        "failover",
        f"failed over {outage.until_failover:.1f} s after the cut, failed back "
        f"{outage.until_failback:.1f} s after its end",
    )


def judge_absence(others: int, kind: str | None) -> Finding:
    """Return the finding if no syphon is running; the drill starts one if the result is ok."""
    if others:
        return critical(
            "syphon",
            f"no syphon is running, and the backlog holds {others} or more messages of "
            "applications",
            "these messages have not been delivered",
            "pairbus syphon run --until-empty, then repeat the drill",
        )
    if kind is None:
        return critical(
            "syphon",
            "no syphon is running, and none can be started here",
            "after an outage the messages stay in the backlog",
            "pip install 'pairbus[spark]', or let one run elsewhere: pairbus syphon run",
        )
    return ok("syphon", "none is running (start one after an outage, or let one run all the time)")


def judge_busy_backlog(others: int) -> Finding:
    """Return the finding if the backlog holds messages of applications."""
    return critical(
        "backlog",
        f"the backlog holds {others:,} or more messages of applications",
        "an outage or its drain is under way; the outage of the drill was left out",
        "wait for the drain (pairbus syphon status), then repeat the drill",
    )


def judge_messages(messages: Messages, *, is_named: bool) -> Iterator[Finding]:
    """Compare the messages confirmed with those that arrived."""
    if messages.lost:
        yield critical(
            "reconciliation",
            f"{len(messages.lost)} of {messages.sent} messages are lost",
            "they were confirmed, and are neither at their destination nor in the backlog",
            "repeat the drill with --json, and report it with the ids",
        )
    if messages.undrained:
        yield critical(
            "reconciliation",
            f"{len(messages.undrained)} messages are still in the backlog",
            "no syphon drained them in time",
            "pairbus syphon status says why; --drain-timeout gives it more time",
        )
    if messages.duplicated:
        yield warning(
            "reconciliation",
            f"{len(messages.duplicated)} messages arrived more than once",
            "consumers must be idempotent, or the destination must detect duplicates",
            "enable duplicate detection on the destination",
        )
    if not (messages.lost or messages.undrained or messages.duplicated):
        how = "left the backlog or arrived" if is_named else "arrived exactly once"
        yield ok("reconciliation", f"all {messages.sent} messages {how}")


def judge_stop(stopped: DrillStoppedError) -> Finding:
    """Return the finding for a step that did not succeed."""
    step, problem = stopped.step, stopped.problem
    role = "secondary" if "outage" in step else "primary"
    if problem.kind is Kind.BUSY:
        return throttled(role, problem.text)
    what = f"{step} failed: {problem.text}"
    if problem.kind is Kind.RIGHT:
        return critical(
            f"{role} rights",
            f"{role}: the credentials lack the right Send ({problem.text})",
            "neither applications nor the syphon can send there",
            "give the rule or identity the right Send",
        )
    remedies = {
        Kind.KEY: "check whether the key was regenerated or has expired",
        Kind.FULL: "drain it: pairbus syphon run --until-empty",
        Kind.MISSING: "pairbus pair create",
    }
    return critical(
        "outage",
        what,
        "an application would have failed in the same way in a real outage",
        remedies.get(problem.kind, "see the error; docs/howto/drill.md explains the steps"),
    )
