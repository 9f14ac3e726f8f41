"""How fast the syphon may read and send: it adapts to the rate that the namespaces allow.

A Standard namespace grants credits at the start of each second, and shares them between the syphon
and the live traffic. When they are used up it answers server-busy. So the syphon starts slowly,
doubles its rate until the first server-busy answer (slow start), and from then on adds a little
every second and takes off 15 % at each server-busy answer, as TCP does. The rate stays below a
ceiling that leaves a share of the credits free for live traffic. Reading (the secondary) and
sending (the primary) have a rate each; the lower one applies, so that no more is read than can be
sent.

Nothing here acts; time is an argument.
"""

import math
from dataclasses import dataclass, replace

__all__ = ["AdaptiveRate", "Pace", "Pacer", "ceiling_of"]

FIRST = 100.0  # messages a second, to begin with
FIRST_UNLIMITED = 2000.0  # where there is no ceiling
UNLIMITED = 50_000.0  # from here on a rate without a ceiling is no limit at all
FLOOR = 5.0
SLOW_START = 2.0  # times as fast after each micro-batch
SLOW_START_UNLIMITED = 4.0
DECREASE = 0.85
INCREASE = 0.01  # of the rate at the last decrease, every second
THROTTLED_FOR = 10.0  # seconds after a server-busy answer


def ceiling_of(credits_per_second: float | None, share_left_free: float) -> float | None:
    """Return the most messages a second: each costs a credit in each of the two namespaces."""
    return None if credits_per_second is None else credits_per_second * (1 - share_left_free)


@dataclass(frozen=True, slots=True)
class AdaptiveRate:
    """The rate that one namespace allows, in messages a second.

    Args:
        ceiling: never more than this; None for no ceiling.
        rate: the rate allowed now.
        is_slow_start: the namespace has not been busy yet.
        step: added every second after the slow start.
        grown_at: when the rate last grew.
        busy_at: when the namespace was last busy.
    """

    ceiling: float | None
    rate: float
    is_slow_start: bool = True
    step: float = 0.0
    grown_at: float | None = None
    busy_at: float = -math.inf

    @classmethod
    def begin(cls, ceiling: float | None) -> "AdaptiveRate":
        """Return the rate to begin with."""
        return cls(ceiling, FIRST_UNLIMITED if ceiling is None else min(FIRST, ceiling))

    @property
    def limit(self) -> float | None:
        """Messages a second that are allowed now; None for no limit."""
        is_unlimited = self.ceiling is None and self.rate >= UNLIMITED
        return None if is_unlimited else self.rate

    def used(self, now: float) -> "AdaptiveRate":
        """A micro-batch at this rate had no server-busy answer: grow."""
        elapsed = 0.0 if self.grown_at is None else min(max(0.0, now - self.grown_at), 10.0)
        if self.is_slow_start:
            rate = self.rate * (SLOW_START if self.ceiling is not None else SLOW_START_UNLIMITED)
        else:
            rate = self.rate + self.step * elapsed
        return replace(self, rate=self._bounded(rate), grown_at=now)

    def busy(self, now: float) -> "AdaptiveRate":
        """The namespace answered server-busy; several answers within a second count as one."""
        if now - self.busy_at < 1.0:
            return self
        rate = self._bounded(self.rate * DECREASE)
        step = INCREASE * self.rate
        return replace(self, rate=rate, is_slow_start=False, step=step, grown_at=now, busy_at=now)

    def is_throttled(self, now: float) -> bool:
        """Whether the namespace answered server-busy in the last seconds."""
        return now - self.busy_at < THROTTLED_FOR

    def _bounded(self, rate: float) -> float:
        return max(FLOOR, rate if self.ceiling is None else min(rate, self.ceiling))


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast one task may read.

    Args:
        rate: messages a second.
        burst: messages that it may read without waiting: the time since the last micro-batch.
    """

    rate: float
    burst: float = 0.0

    @property
    def chunk(self) -> int:
        """Messages to ask for at a time: a tenth of a second's."""
        return max(1, round(self.rate / 10))


class Pacer:
    """Spreads the reads of one task evenly over time."""

    def __init__(self, pace: Pace, now: float) -> None:
        self._rate = pace.rate
        self._level = pace.burst
        self._at = now

    def wait(self, now: float) -> float:
        """Return the seconds to wait before the next read."""
        return max(0.0, -self._refilled(now) / self._rate)

    def read(self, now: float, messages: int) -> None:
        """Messages were read."""
        self._level = self._refilled(now) - messages
        self._at = now

    def _refilled(self, now: float) -> float:
        return self._level + max(0.0, now - self._at) * self._rate
