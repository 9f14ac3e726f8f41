"""The state of the syphon by its progress: rate, remaining time, and whether it is stalled.

A syphon that is connected and forwards nothing must not look healthy. So `running` means that
messages were settled in the last seconds; `stalled` means that there are messages, the operator did
not pause, and none was settled for a while, with the reason if it is known. `starting` is the time
that Spark needs before it runs the query.
"""

from dataclasses import dataclass

__all__ = ["STANDSTILL", "Progress", "State", "state_of"]

STANDSTILL = "no message was settled"  # begins the reason if no other is known
REPORTED_EVERY = 2.0  # seconds between two reports of a task


@dataclass(frozen=True, slots=True)
class State:
    """The state in one word, and the reason if it is stalled."""

    word: str
    stalled: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The messages settled so far, forwarded or dead-lettered, and the rate of the last seconds."""

    settled: int = 0
    rate: float = 0.0
    last_progress: float | None = None
    sampled_at: float | None = None
    rated_for: float = 0.0  # seconds over which the rate was measured, at most the window

    def sample(self, now: float, settled: int, *, window: float = 10.0) -> "Progress":
        """Return the progress with a new total, and a rate smoothed over about `window` seconds."""
        if self.sampled_at is None:
            began = now if settled else None
            return Progress(settled, sampled_at=now, last_progress=began)
        gap = now - self.sampled_at
        if gap <= 0:
            return self
        moved = settled - self.settled
        # At first the rate is the mean since the first message; else it would take a whole window.
        rated_for = min(window, gap + (self.rated_for if self.rate else 0.0))
        weight = min(1.0, gap / rated_for)
        rate = self.rate * (1 - weight) + (moved / gap) * weight
        return Progress(
            settled,
            rate=rate if rate > 0.01 else 0.0,
            last_progress=now if moved > 0 else self.last_progress,
            sampled_at=now,
            rated_for=rated_for,
        )

    def eta(self, remaining: int | None, now: float, allowed: float | None = None) -> float | None:
        """Return the seconds until the backlog is empty; None if unknown.

        Args:
            remaining: messages that were left when the totals last changed; None if unknown.
            now: the time.
            allowed: messages a second that the namespaces allow; None for no limit. Once the
                drain is close to it, the estimate uses the mean of both rates: the measured one
                follows slowly, and the allowed one is too high after the slow start.
        """
        if remaining is None:
            return None
        if remaining == 0:
            return 0.0
        is_limited = allowed is not None and self.rate >= 0.5 * allowed
        rate = (self.rate + allowed) / 2 if is_limited and allowed is not None else self.rate
        if rate <= 0:
            return None
        # Messages went on moving since then; tasks report them every few seconds.
        since = 0.0 if self.last_progress is None else now - self.last_progress
        return max(0.0, remaining / rate - min(max(0.0, since), REPORTED_EVERY))


def state_of(
    now: float,
    *,
    stopped: bool,
    paused: bool,
    problem: str | None,
    remaining: int | None,
    waiting: int,
    active: bool,
    uncertain: int = 0,
    since: float,
    last_progress: float | None,
    is_started: bool = True,
    patience: float = 30.0,
    start_patience: float = 300.0,
) -> State:
    """Return the state of the syphon, by its progress.

    Args:
        now: the time.
        stopped: it was stopped.
        paused: the operator paused it.
        problem: a known reason why nothing can be forwarded (`ledger`, `primary: …`).
        remaining: messages in the backlog, None if unknown.
        waiting: messages that are held for destinations that cannot accept them.
        active: a micro-batch runs or is due.
        uncertain: queues that wait until the locks of a lost reader have expired.
        since: when it started, was resumed, or last had nothing to do.
        last_progress: when a message was last settled.
        is_started: Spark runs the query.
        patience: seconds without progress after which it counts as stalled.
        start_patience: seconds that Spark may take to start.
    """
    if stopped:
        return State("stopped")
    if paused:
        return State("paused")
    if problem:
        return State("stalled", problem)
    quiet = now - max(since, last_progress or since)
    if not is_started:
        if now - since <= start_patience:
            return State("starting")
        return State("stalled", f"Spark did not start in {int(now - since)} s")
    if waiting and quiet > patience:
        return State("stalled", f"{waiting} messages wait for their destinations")
    if uncertain and quiet > patience:
        queues = "1 backlog queue waits" if uncertain == 1 else f"{uncertain} backlog queues wait"
        return State("stalled", f"{queues} for locks of a lost reader to expire")
    if remaining and quiet > patience:
        return State("stalled", f"{STANDSTILL} for {int(quiet)} s")
    if remaining or active:
        return State("running")
    return State("idle")
