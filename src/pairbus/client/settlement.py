"""How messages are received and settled: modes, outcomes, and settlements without an answer."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from pairbus.amqp.composite import Composite
from pairbus.amqp.performatives import ACCEPTED, RELEASED, Error, Modified, Rejected
from pairbus.client.errors import ClientError

NEXT_SESSION: Final = object()
"""As `session_id`: the next available session."""


class Mode(enum.Enum):
    """Whether a receive locks a message or deletes it."""

    PEEK_LOCK = "peek-lock"
    RECEIVE_AND_DELETE = "receive-and-delete"


def dead_letter(reason: str, description: str = "") -> Rejected:
    """The outcome that moves a message to the dead-letter queue."""
    info = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
    return Rejected(Error("com.microsoft:dead-letter", description or None, info))


OUTCOMES: dict[str, Composite] = {
    "completed": ACCEPTED,
    "abandoned": Modified(delivery_failed=True, undeliverable_here=False),
    "defered": Modified(delivery_failed=True, undeliverable_here=True),
    "released": RELEASED,
}
"""Outcomes by the names that `$management` uses, in its spelling."""


class Ticket:
    """Deliveries that were settled together, and the broker's answers so far."""

    __slots__ = ("errors", "numbers", "unanswered")

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self.unanswered = len(numbers)
        self.errors: dict[int, ClientError] = {}

    def answers(self) -> list[ClientError | None]:
        """For each delivery None, or the reason why it was not settled."""
        if not self.errors:
            return [None] * len(self.numbers)
        return [self.errors.get(number) for number in self.numbers]


class Settlements:
    """The deliveries of one link whose settlement the broker has not confirmed yet."""

    def __init__(self) -> None:
        self._open: dict[int, Ticket] = {}

    def begin(self, numbers: Sequence[int]) -> Ticket:
        """Expect an answer for each of these."""
        ticket = Ticket(numbers)
        for number in numbers:
            self._open[number] = ticket
        return ticket

    def answer(self, first: int, last: int, error: ClientError | None) -> None:
        """The broker answered for all deliveries from `first` to `last`."""
        found = self._open
        if not found:
            return
        count = (last - first) & 0xFFFFFFFF
        numbers: Sequence[int] = (
            range(first, first + count + 1)
            if count < len(found)
            else [number for number in found if 0 <= number - first <= count]
        )
        for number in numbers:
            ticket = found.pop(number, None)
            if ticket is not None:
                ticket.unanswered -= 1
                if error is not None:
                    ticket.errors[number] = error

    def abandon(self, ticket: Ticket) -> None:
        """Drop a ticket whose missing answers are no longer awaited."""
        if ticket.unanswered:
            for number in ticket.numbers:
                if self._open.get(number) is ticket:
                    del self._open[number]


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the runs of consecutive delivery numbers: one disposition each."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
