"""Status by progress, never by connection: rate, time to go, and whether it is stalled.

A mover that is connected and moves nothing is the classic lie of such tools. Here `running` means
that messages were settled a moment ago; `stalled` means that there are messages, the operator did
not pause, and none was settled for a while, with the reason where one is known. `starting` is what
Spark does before it can move anything at all, and takes its time: that is no standstill.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = ["Progress", "Remaining", "State", "state_of"]


@dataclass(frozen=True, slots=True)
class State:
    """What the syphon does, in one word, and why it does nothing."""

    word: str
    stalled: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What was forwarded so far, and how fast of late."""

    forwarded: int = 0
    size: int = 0
    dead_lettered: Mapping[str, int] = field(default_factory=dict)
    rate: float = 0.0
    last_progress: float | None = None
    sampled_at: float | None = None
    sampled_settled: int = 0
    rated_for: float = 0.0  # seconds that the rate is of, up to the window

    @property
    def settled(self) -> int:
        """Messages that left the backlog, forwarded or dead-lettered."""
        return self.forwarded + sum(self.dead_lettered.values())

    def sample(
        self,
        now: float,
        *,
        forwarded: int,
        size: int,
        dead_lettered: Mapping[str, int],
        window: float = 10.0,
    ) -> "Progress":
        """The progress with new totals, and a rate smoothed over about `window` seconds."""
        new = replace(self, forwarded=forwarded, size=size, dead_lettered=dict(dead_lettered))
        if self.sampled_at is None:
            return replace(
                new,
                sampled_at=now,
                sampled_settled=new.settled,
                last_progress=now if new.settled else None,
            )
        gap = now - self.sampled_at
        if gap <= 0:
            return new
        moved = new.settled - self.sampled_settled
        # At first it is the mean since messages move: else it would take a window to get there.
        rated_for = min(window, gap + (self.rated_for if self.rate else 0.0))
        weight = min(1.0, gap / rated_for)
        rate = self.rate * (1 - weight) + (moved / gap) * weight
        return replace(
            new,
            rated_for=rated_for,
            rate=rate if rate > 0.01 else 0.0,
            sampled_at=now,
            sampled_settled=new.settled,
            last_progress=now if moved > 0 else self.last_progress,
        )

    def eta(self, remaining: int | None) -> float | None:
        """Seconds until the backlog is empty at this rate; None when that cannot be said."""
        if remaining is None:
            return None
        if remaining == 0:
            return 0.0
        return remaining / self.rate if self.rate > 0 else None


@dataclass(frozen=True, slots=True)
class Remaining:
    """How many messages are left, told from one count of the queues to the next.

    Counting costs a call for each queue, so it is done now and then. In between, what was settled
    since is taken off.
    """

    total: int | None = None  # settled so far, and still there

    def counted(self, messages: int, settled: int, *, moving: bool) -> "Remaining":
        """The queues have so many messages, and so many were settled in all.

        While they move, what was settled is told a moment later than the queues know it: then
        the total does not become less.
        """
        total = messages + settled
        if moving and messages and self.total is not None:
            total = max(total, self.total)
        return Remaining(total)

    def left(self, settled: int) -> int | None:
        """How many are left when so many were settled in all; None when nobody counted."""
        return None if self.total is None else max(0, self.total - settled)


def state_of(
    now: float,
    *,
    stopped: bool,
    paused: bool,
    problem: str | None,
    remaining: int | None,
    waiting: int,
    active: bool,
    doubtful: int = 0,
    since: float,
    last_progress: float | None,
    begun: bool = True,
    patience: float = 30.0,
    start_patience: float = 300.0,
) -> State:
    """Say what the syphon does, by what it got done.

    Args:
        now: the time.
        stopped: it was stopped.
        paused: the operator paused it.
        problem: a known reason why nothing can move (`ledger`, `primary: …`).
        remaining: messages in the backlog, None when nobody knows.
        waiting: messages that are held for destinations that cannot take them.
        active: a micro-batch runs or is due.
        doubtful: queues that wait until all that a lost reader was given is back.
        since: when it started, or was resumed.
        last_progress: when a message was last settled.
        begun: Spark runs the query: it looked, or listens, at the backlog queues.
        patience: seconds without progress after which it counts as stalled.
        start_patience: seconds that Spark may take to begin.
    """
    if stopped:
        return State("stopped")
    if paused:
        return State("paused")
    if problem:
        return State("stalled", problem)
    quiet = now - max(since, last_progress or since)
    if not begun:
        if now - since <= start_patience:
            return State("starting")
        return State("stalled", f"Spark did not begin in the {int(now - since)} s since the start")
    if waiting and quiet > patience:
        return State("stalled", f"{waiting} messages wait for their destinations")
    if doubtful and quiet > patience:
        queues = "1 backlog queue waits" if doubtful == 1 else f"{doubtful} backlog queues wait"
        return State("stalled", f"{queues} for locks of a lost reader to end")
    if remaining and quiet > patience:
        since_start = last_progress is None or last_progress < since
        when = f"in the {int(quiet)} s since it began" if since_start else f"for {int(quiet)} s"
        return State("stalled", f"nothing moved {when}")
    if remaining or active:
        return State("running")
    return State("idle")
