"""When an entity is pinged next."""

from __future__ import annotations

from dataclasses import dataclass

from pairbus.pairing.core.timing import Timing

PING_TIME_TO_LIVE = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class PingSchedule:
    """The next ping of one entity is due at `due`; the one after it `gap` seconds later.

    The gap doubles up to `interval`. Pings of one entity never overlap: one that took longer than
    the gap is followed immediately by the next, and pings that were missed are not made up for.
    """

    due: float
    gap: float
    interval: float

    def wait(self, now: float) -> float:
        """How long until the next ping, in seconds; 0 if it is due."""
        return max(0.0, self.due - now)

    def after(self, now: float) -> PingSchedule:
        """The schedule once the ping that was due has ended at `now`."""
        gap = min(2 * self.gap, self.interval)
        return PingSchedule(max(self.due + gap, now), gap, self.interval)


def first_gap(timing: Timing) -> float:
    """How long after a failover the first ping is sent, in seconds.

    An application that fails over quickly should also return quickly; one that waits a minute
    before it fails over does not ping more often than that.
    """
    return min(timing.ping_primary_interval, max(timing.failover_interval, 1.0))
