"""When the sends of a draining entity may go to the primary without overtaking the backlog.

A fence is put into each backlog queue that took messages for the entity since it failed over. An
answer says that everything before the fence was delivered. If no message entered the backlog since
the fences were sent, nothing is left, and the drain is finished. Otherwise another *round* of
fences follows. If the application sends without a pause, there is always a newer message. So, once
a round was answered quickly, the next one *holds* the sends: they wait, the fences go behind the
last message, and the answers release the sends to the primary. A hold is limited in time: then the
sends continue to the backlog, and another round follows.

Time is an argument, and nothing here acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

OVERDUE = 60.0  # seconds after which a fence that was not answered is reported


def most_hold(send_timeout: float) -> float:
    """How long a send may be held, in seconds: half of the time that it may take."""
    return send_timeout / 2


@dataclass(frozen=True, slots=True)
class Round:
    """One round of fences. Times are monotonic seconds.

    Args:
        began_at: When its first fence was about to be sent.
        number: Counts the rounds of one drain.
        fences: The fences that were not answered yet: id and backlog queue.
        is_dirty: A message entered the backlog since the round began.
        answered_at: When the last fence was answered.
    """

    began_at: float
    number: int = 0
    fences: Mapping[str, str] = field(default_factory=dict)
    is_dirty: bool = False
    answered_at: float = 0.0

    @property
    def is_answered(self) -> bool:
        """Whether every fence of the round was answered."""
        return not self.fences

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left in the backlog, so that sends may go to the primary."""
        return self.is_answered and not self.is_dirty

    def answer(self, fence: str, now: float) -> Round:
        """A fence was answered; one of another round changes nothing."""
        if fence not in self.fences:
            return self
        left = {name: queue for name, queue in self.fences.items() if name != fence}
        return replace(self, fences=left, answered_at=now)

    def mark_dirty(self) -> Round:
        """A message entered the backlog after the fences."""
        return self if self.is_dirty else replace(self, is_dirty=True)

    def is_overdue(self, now: float) -> bool:
        """Whether a fence should have been answered long ago."""
        return bool(self.fences) and now >= self.began_at + OVERDUE

    def next(self, fences: Mapping[str, str], now: float) -> Round:
        """The next round, with these fences."""
        return Round(now, self.number + 1, dict(fences))

    def next_hold(self, send_timeout: float) -> float:
        """How long the next round holds the sends, in seconds; 0 if it does not.

        It does if this round was answered within a third of the time of a send: then the next one
        will probably be answered within a half. The first round of a drain never holds: how far
        the syphon has come is not known.
        """
        if not self.number or self.answered_at - self.began_at > send_timeout / 3:
            return 0.0
        return most_hold(send_timeout)
