# generated from src/pairbus/syphon/_async/paced_sending.py by tools/gen_unasync.py; edit that one
"""Send at the rate that the primary allows: wait before sends and after server-busy answers."""

from pairbus.runtime import Runtime
from pairbus.syphon.rates import AdaptiveRate, SendingPace

__all__ = ["PacedSending"]

FIRST_BUSY_WAIT, MOST_BUSY_WAIT = 0.25, 4.0  # seconds, after a server-busy answer


class PacedSending:
    """The pace of one task.

    Args:
        runtime: clock and sleep.
        rate: the task's share of the rate; None for no limit.
    """

    def __init__(self, runtime: Runtime, rate: AdaptiveRate | None) -> None:
        self._runtime = runtime
        self._first_rate = rate
        self._pace: SendingPace | None = None  # from the first send on
        self._busy_wait = FIRST_BUSY_WAIT

    @property
    def rate(self) -> AdaptiveRate | None:
        """The task's share as it has adapted it; None if it has sent nothing at a limited rate."""
        return None if self._pace is None else self._pace.rate

    def allowance(self) -> int | None:
        """Wait until messages may be sent; return how many, None for no limit."""
        if self._first_rate is None:
            return None
        if self._pace is None:
            self._pace = SendingPace(self._first_rate, self._runtime.monotonic())
        wait = self._pace.wait(self._runtime.monotonic())
        if wait:
            self._runtime.sleep(wait)
        return self._pace.allowance(self._runtime.monotonic())

    def sent(self, messages: int) -> None:
        """Record messages that were sent without a server-busy answer."""
        self._busy_wait = FIRST_BUSY_WAIT
        if self._pace is not None:
            self._pace.sent(self._runtime.monotonic(), messages)

    def busy(self) -> None:
        """The primary answered server-busy: slow down, and wait, for longer each time."""
        if self._pace is not None:
            self._pace.busy(self._runtime.monotonic(), self._runtime.time(), self._busy_wait)
        self._runtime.sleep(self._busy_wait)
        self._busy_wait = min(2 * self._busy_wait, MOST_BUSY_WAIT)
