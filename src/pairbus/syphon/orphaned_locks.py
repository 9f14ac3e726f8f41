"""Doubts: queues of which messages may be locked by tokens that nobody has.

A reader that dies while messages are on their way to it takes the knowledge of their locks with it:
they stay locked until these end, and whoever reads on meanwhile gets newer ones. The same may
happen where a connection breaks, or where a message cannot be given back. To keep the order, such
a queue is not read until all of its messages are back. The others go on.

Mostly nothing was handed out, and a look shows it: the first message that can be had is taken and
released again, and what browsing finds before it is locked. If that is nobody's, the locks are
waited out. A look cannot see past messages that were given back, so that then time alone decides.
"""

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pairbus.names import billable
from pairbus.syphon.journal import Journal, Left

if TYPE_CHECKING:
    from pairbus.client.management import LeanManagement
    from pairbus.client.receiver import LeanReceiver

__all__ = ["Doubts", "Look", "Looking", "look_at"]

log = logging.getLogger("pairbus.syphon")

GRACE = 1.0  # seconds: credit that a reader gave before it died may still be on its way
AGAIN = 5.0  # seconds between two looks
LONGEST = 300.0  # seconds: Service Bus has no longer locks
PEEKS = 100  # at most, in one look


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a queue found."""

    clean: bool  # all that is locked is known
    lock: float | None = None  # seconds that a lock lasts, where that was seen
    size: int | None = None  # bytes of the message that was taken and released, if there was one
    peeks: int = 0


class Looking(Protocol):
    """The secondary, as doubts see it."""

    def look(self, queue: str, after: int, known: Collection[int]) -> Look | None:
        """Whether messages are locked that nobody knows of; None if it could not be asked."""

    def give_back(self, queue: str, tokens: list[bytes]) -> bool:
        """Abandon locks, in this order; False if the queue could not be asked to."""


def look_at(
    receiver: "LeanReceiver", management: "LeanManagement", after: int, known: Collection[int]
) -> Look:
    """Look whether messages behind the number `after` are locked that are not in `known`."""
    first, size, lock = None, None, None
    got = receiver.receive_now(1)
    if got:
        first, size = got[0].sequence_number, len(got[0].payload)
        if got[0].locked_until is not None:
            lock = got[0].locked_until / 1000 - time.time()
        receiver.settle(got, "released")  # waits: whoever reads next must find it
        if first <= after:  # it hides what is behind it
            return Look(False, lock, size)
    number, count = after + 1, 1
    for peeks in range(1, PEEKS + 1):
        found = management.peek(number, count)
        for one in found:
            if first is not None and one.sequence_number >= first:
                return Look(True, lock, size, peeks)
            if one.sequence_number not in known and not one.facts.get("state"):
                return Look(False, lock, size, peeks)
            number = one.sequence_number + 1
        if not found:
            return Look(True, lock, size, peeks)
        count = 250
    return Look(False, lock, size, PEEKS)


@dataclass(slots=True)
class _Doubt:
    """One queue."""

    since: float
    due: float  # the next look
    by_pages: bool  # the journal alone says so
    lasts: float | None = None  # seconds of a lock, once that was seen
    is_blind: bool = False  # messages were given back, and a look does not get past them
    until: float = math.inf  # it is over then; and when all locks have ended, too


class Doubts:
    """The queues that are not to be read for a while. Time is an argument.

    Args:
        journal: whose pages tell of readers that died.
        backlog: the secondary.
        note: counts an operation for the ledger: stage, queue, operation, calls, messages, bytes,
            billable.
    """

    def __init__(self, journal: Journal, backlog: Looking, note: Callable[..., None]) -> None:
        self._journal = journal
        self._backlog = backlog
        self._note = note
        self._epoch = -1
        self._doubts: dict[str, _Doubt] = {}

    def add(self, queue: str, now: float, *, by_pages: bool = False) -> None:
        """Something of this queue may be locked."""
        old = self._doubts.get(queue)
        if old is None:
            self._doubts[queue] = _Doubt(now, now + GRACE, by_pages)
        elif not by_pages:
            old.by_pages = False
            old.since = now

    def find(self, epoch: int, now: float) -> None:
        """Look into the journal: all epochs up to this one are over."""
        self._epoch = epoch
        for queue in self._journal.doubtful(epoch):
            if queue not in self._doubts:
                log.warning("%s: waits until all that was handed out is back", queue)
                self.add(queue, now, by_pages=True)

    def may_read(self, queue: str, now: float, known: Collection[int], lock: float | None) -> bool:
        """Whether a queue may be read now. Where there is a doubt, and it is time, look.

        Args:
            queue: the queue.
            now: the time.
            known: numbers of messages that we hold locked ourselves.
            lock: seconds that locks last, if that is known.
        """
        doubt = self._doubts.get(queue)
        if doubt is None:
            return True
        if now < doubt.due:
            return False
        doubt.due = now + AGAIN
        pages = self._journal.doubtful(self._epoch).get(queue, [])
        if not doubt.is_blind or doubt.lasts is None:
            after = max([page.newest for page in pages], default=0) if doubt.by_pages else 0
            look = self._backlog.look(queue, after, known)
            if look is None:
                return False
            self._count(queue, look)
            doubt.lasts = look.lock or doubt.lasts
            if look.clean and not doubt.is_blind:
                doubt.until = now
        if not self._give_back(queue, doubt, pages):
            return False
        if doubt.by_pages and not any(page.is_open for page in pages):
            doubt.until = now  # it lived, and noted everything
        lasts = doubt.lasts or lock or LONGEST
        until = min(doubt.until, doubt.since + lasts + max(1.0, min(5.0, lasts / 12)))
        if now < until:
            doubt.due = min(doubt.due, until)
            return False
        for page in pages:
            page.path.unlink(missing_ok=True)
        del self._doubts[queue]
        return True

    def _give_back(self, queue: str, doubt: _Doubt | None, pages: Sequence[Left]) -> bool:
        """Give back what dead readers had noted; False if that cannot be done now."""
        for page in pages:
            tokens = page.tokens if page.is_taken_over else []
            tokens.reverse()
            if tokens:
                if doubt is not None:
                    doubt.is_blind = True
                if not self._backlog.give_back(queue, tokens):
                    return False
                self._note("settle", queue, "abandoned", 1, len(tokens), 0, len(tokens))
                page.given_back()
        return True

    def _count(self, queue: str, look: Look) -> None:
        if look.size is None:
            self._note("idle_poll", queue, "receive", 1, 0, 0, 1)
        else:
            self._note("receive_backlog", queue, "doorbell", 1, 0, look.size, billable(look.size))
            self._note("settle", queue, "released", 1, 1, 0, 1)
        if look.peeks:
            self._note("management", queue, "peek", look.peeks, 0, 0, look.peeks)

    def release(self) -> None:
        """The syphon ends: what dead readers had noted is given back, whatever is in doubt."""
        for queue, pages in self._journal.doubtful(self._epoch).items() if self._doubts else ():
            self._give_back(queue, self._doubts.get(queue), pages)

    def queues(self) -> list[str]:
        """The queues that are in doubt."""
        return list(self._doubts)
