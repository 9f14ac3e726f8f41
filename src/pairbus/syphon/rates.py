"""How fast the syphon may read and send: it adapts to the rate that the namespaces allow.

A Standard namespace grants credits at the start of each second, and shares them between the syphon
and the live traffic. When they are used up it answers server-busy, to all clients. So the syphon
must find the rate that is left, stay close below it, and seldom try for more.

It starts slowly and grows by 30 % every second until the first server-busy answer (slow start),
which lowers the rate by 20 %; each later one lowers it by 12 %. The rate at which the answer came
is remembered as the *peak*; after slow start, which overshoots, the lowered rate is the peak. After
that the rate grows by addition, as CUBIC does for TCP (RFC 9438): quickly at first, more and more
slowly towards the peak, where it stays for most of the time, and faster again beyond it, because
then the namespace allows more than before. It never exceeds a ceiling that leaves a share of the
credits free for live traffic.

Reading (the secondary) and sending (the primary) have a rate each, and no more is read than can be
sent. The rate of sending is shared among the tasks of a micro-batch; each adapts its share while
it sends, and the planner adds the shares up again. Sends are spread evenly within the second: a
namespace executes an operation completely if any credit is left, so that a large operation uses up
the credits of others.

Nothing here acts; time is an argument.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pairbus.syphon.codec import Record
from pairbus.syphon.limits import Bucket

__all__ = ["AdaptiveRate", "Pace", "Pacer", "SendingPace", "ceiling_of"]

FIRST = 100.0  # messages a second, to begin with
FIRST_UNLIMITED = 2000.0  # where there is no ceiling
UNLIMITED = 50_000.0  # from here on a rate without a ceiling is no limit at all
FLOOR = 1.0
SLOW_START = 1.3  # times as fast after each second
SLOW_START_UNLIMITED = 4.0
DECREASE = 0.12  # of the rate, at a server-busy answer
FIRST_DECREASE = 0.2  # at the first one: slow start goes well beyond what is allowed
RECOVERY = 30.0  # seconds from a decrease back to the peak
PROBING = 15.0  # seconds from the peak to as far above it as the decrease was below
LASTING = 0.92  # of the peak: the mean of a rate that falls and recovers
THROTTLED_FOR = 60.0  # seconds after a server-busy answer
CHUNK = 0.01  # seconds between two sends, at least
BURST = 0.25  # seconds of unused rate that may be made up for


def ceiling_of(credits_per_second: float | None, share_left_free: float) -> float | None:
    """Return the most messages a second: each costs a credit in each of the two namespaces."""
    return None if credits_per_second is None else credits_per_second * (1 - share_left_free)


@dataclass(frozen=True, slots=True)
class AdaptiveRate(Record):
    """The rate that one namespace allows, in messages a second.

    Args:
        ceiling: never more than this; None for no ceiling.
        rate: messages a second that are allowed now.
        peak: the rate at the last server-busy answer (after the first one: the lowered rate); None
            before the first (slow start).
        busy_at: when that was.
    """

    ceiling: float | None
    rate: float
    peak: float | None = None
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

    @property
    def lasting(self) -> float | None:
        """Messages a second that can be expected in the long run; None for no limit."""
        return self.limit if self.peak is None else self._bounded(self.peak * LASTING)

    def used(self, seconds: float) -> "AdaptiveRate":
        """Return the higher rate after `seconds` of use without a server-busy answer."""
        if self.peak is None:
            growth = SLOW_START if self.ceiling is not None else SLOW_START_UNLIMITED
            return replace(self, rate=self._bounded(self.rate * growth ** min(seconds, 10.0)))
        since = _seconds_since_decrease(self.rate / self.peak) + seconds
        distance = since - RECOVERY
        scale = RECOVERY if distance < 0 else PROBING
        rate = self.peak * (1 + DECREASE * (distance / scale) ** 3)
        return replace(self, rate=self._bounded(rate))

    def busy(self, now: float, measured: float | None = None) -> "AdaptiveRate":
        """The namespace answered server-busy; several answers within a second count as one.

        Args:
            now: the time.
            measured: messages a second that were moved, if that may be less than the rate.
        """
        if now - self.busy_at < 1.0:
            return self
        peak = self.rate if measured is None else min(self.rate, max(FIRST, measured))
        is_first = self.peak is None
        rate = self._bounded(peak * (1 - (FIRST_DECREASE if is_first else DECREASE)))
        # Slow start goes far beyond the rate that is allowed: do not return to where it ended.
        return AdaptiveRate(self.ceiling, rate, rate if is_first else peak, now)

    def is_throttled(self, now: float) -> bool:
        """Whether the namespace allows less than the ceiling: it was busy a moment ago."""
        is_below = self.ceiling is None or self.rate < self.ceiling
        return is_below and now - self.busy_at < THROTTLED_FOR

    def _bounded(self, rate: float) -> float:
        return max(FLOOR, rate) if self.ceiling is None else min(max(FLOOR, rate), self.ceiling)

    # -- shares of tasks

    def share(self, tasks: int) -> "AdaptiveRate":
        """Return the share of each of these tasks."""
        ceiling = self.ceiling and self.ceiling / tasks
        return AdaptiveRate(
            ceiling, self.rate / tasks, self.peak and self.peak / tasks, self.busy_at
        )

    def joined(self, shares: Sequence["AdaptiveRate"], tasks: int) -> "AdaptiveRate":
        """Return the rate after tasks adapted their shares; some may not have reported theirs."""
        scale = tasks / len(shares)
        rate = scale * sum(share.rate for share in shares)
        peaks = [share.rate if share.peak is None else share.peak for share in shares]
        is_slow_start = all(share.peak is None for share in shares)
        return AdaptiveRate(
            self.ceiling,
            self._bounded(rate),
            None if is_slow_start else scale * sum(peaks),
            max(share.busy_at for share in shares),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, which has no infinity."""
        busy_at = None if self.peak is None else self.busy_at
        return {**super(AdaptiveRate, self).to_json(), "busy_at": busy_at}


def _seconds_since_decrease(ratio: float) -> float:
    """Return how many seconds after a decrease the rate reaches this ratio of its peak.

    Negative for a ratio that is lower than the one right after a decrease.
    """
    part = math.cbrt((ratio - 1) / DECREASE)
    return RECOVERY + (RECOVERY if part < 0 else PROBING) * part


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast one task may read, in messages a second."""

    rate: float

    @property
    def chunk(self) -> int:
        """Messages to request at a time: those of a tenth of a second."""
        return max(1, round(self.rate / 10))


class Pacer:
    """Spreads the reads of one task evenly over time."""

    def __init__(self, pace: Pace, now: float) -> None:
        self._rate = pace.rate
        self._bucket = Bucket(pace.rate, BURST, 0.0, now)

    def wait(self, now: float) -> float:
        """Return the seconds to wait before the next read."""
        return max(0.0, -self._bucket.refill(now).level / self._rate)

    def read(self, now: float, messages: int) -> None:
        """Messages were read."""
        self._bucket = self._bucket.refill(now).charge(messages)


class SendingPace:
    """Spreads the sends of one task evenly over time, and adapts the rate while it sends."""

    def __init__(self, rate: AdaptiveRate, now: float) -> None:
        self.rate = rate
        self._level = 0.0
        self._at = now
        self._used_at = now
        self._has_sent = True

    def wait(self, now: float) -> float:
        """Return the seconds to wait before the next send."""
        self._refill(now)
        chunk = max(1.0, self.rate.rate * CHUNK)
        return max(0.0, (chunk - self._level) / self.rate.rate)

    def allowance(self, now: float) -> int:
        """Return how many messages may be sent now, after the wait."""
        self._refill(now)
        return max(1, int(self._level + 1e-6))

    def sent(self, now: float, messages: int) -> None:
        """Record messages that were accepted; the rate grows, if it was the limit."""
        self._refill(now)
        if self._level < self.rate.rate * BURST:
            self.rate = self.rate.used(max(0.0, now - self._used_at))
        self._used_at = now
        self._level -= messages
        self._has_sent = True

    def busy(self, now: float, busy_at: float, wait: float) -> None:
        """The namespace answered server-busy, and nothing is sent for `wait` seconds.

        A second answer says nothing about the new rate if no message was accepted since the first.

        Args:
            now: the time, as for the other methods.
            busy_at: the time in seconds since 1970.
            wait: seconds.
        """
        if self._has_sent:
            self.rate = self.rate.busy(busy_at)
            self._has_sent = False
        self._level, self._at, self._used_at = 0.0, now + wait, now + wait

    def _refill(self, now: float) -> None:
        gained = max(0.0, now - self._at) * self.rate.rate
        self._level = min(self._level + gained, self.rate.rate * BURST)
        self._at = max(self._at, now)
