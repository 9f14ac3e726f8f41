"""Credits of a namespace: the operations per second that the Standard tier allows.

At the start of each second a namespace gets its credits; unused ones expire. If the balance is
above zero, an operation is executed completely, whatever it costs, so the balance can fall below
zero. The missing credits are taken from the next seconds. If the balance is zero or below, an
operation is refused.

The arithmetic is pure: time is an argument, in milliseconds.
"""

from __future__ import annotations

MESSAGE = 1
"""Credits of a message that is sent, received or peeked, and of a filter that is evaluated."""
MANAGEMENT = 10
"""Credits of an operation on an entity: create, read, update, delete."""


class CreditBalance:
    """The credits that a namespace has left in the current second.

    Args:
        per_second: credits given at the start of each second; 0 gives them without limit.
        is_debt_owed: False resets a negative balance at the start of each second.
    """

    __slots__ = ("_balance", "_second", "is_debt_owed", "per_second")

    def __init__(self, per_second: int, *, is_debt_owed: bool = True) -> None:
        if per_second < 0:
            raise ValueError(f"credits per second must be >= 0, got {per_second}")
        self.per_second = per_second
        self.is_debt_owed = is_debt_owed
        self._balance = 0
        self._second = -1

    def __repr__(self) -> str:
        return f"<CreditBalance {self._balance} of {self.per_second}>"

    def at(self, now: int) -> int:
        """The credits left at this time; zero or below: the next operation is refused."""
        second = now // 1000
        if second != self._second:
            # A clock that was put back begins a new second, too: it may take long to catch up.
            passed = second - self._second if 0 <= self._second < second else 1
            debt = min(0, self._balance) if self.is_debt_owed else 0
            self._balance = min(self.per_second, debt + passed * self.per_second)
            self._second = second
        return self._balance

    def charge(self, now: int, credits: int) -> None:
        """Take credits for an operation that was executed."""
        if self.per_second:
            self._balance = self.at(now) - credits

    def refuses(self, now: int) -> bool:
        """Whether an operation at this time is refused."""
        return self.per_second > 0 and self.at(now) <= 0
