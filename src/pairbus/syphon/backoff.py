"""How long to wait after a failure, and until when a locked message may still be sent."""

from dataclasses import dataclass

__all__ = ["Backoff", "may_send"]

RESERVE = 1 / 3  # of a lock


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait after the n-th consecutive failure: it doubles, between two bounds (seconds)."""

    first: float = 10.0
    most: float = 300.0

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after `failures` consecutive failures (1 is the first)."""
        doubled = self.first * 2.0 ** min(max(failures - 1, 0), 30)
        return min(self.most, doubled)


def may_send(now: float, received_at: float, locked_until: float) -> bool:
    """Whether enough of a message's lock is left to send it, write its receipt and settle it.

    A message that is sent just before its lock expires is delivered twice, because it cannot be
    settled in time. So nothing is sent when less than the share `RESERVE` of its lock is left.
    """
    return now < locked_until - max(0.0, locked_until - received_at) * RESERVE
