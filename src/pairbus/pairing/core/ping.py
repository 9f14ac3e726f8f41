"""When an entity is pinged next."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PING_TIME_TO_LIVE", "PingSchedule"]

PING_TIME_TO_LIVE = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class PingSchedule:
    """The next ping of one entity is due at `due`; they are `interval` seconds apart.

    Pings of one entity never overlap: one that took longer than the interval is followed at once
    by the next, and the ones it swallowed are not made up for.
    """

    due: float
    interval: float

    def wait(self, now: float) -> float:
        """How long until the next ping, in seconds; 0 if it is due."""
        return max(0.0, self.due - now)

    def after(self, now: float) -> PingSchedule:
        """The schedule once the ping that was due has ended at `now`."""
        return PingSchedule(max(self.due + self.interval, now), self.interval)
