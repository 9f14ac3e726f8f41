"""Orphaned locks: messages that are locked with unknown tokens.

If a reader dies while messages are being delivered to it, their lock tokens are lost: they stay
locked until the locks expire, and a reader that continued meanwhile would get newer messages. The
same may happen if a connection breaks, or if a message cannot be returned. To keep the order, such
a queue is *uncertain* and is not read until all its messages are available again. The other queues
are read as usual.

In most cases no message was handed out, and an inspection shows it: receive the first available
message, release it, and peek the messages before it. These are locked; if the syphon does not hold
them, the queue waits until their locks expire. An inspection cannot see past a message that was
handed out before and is available again (it was returned, or its lock expired): messages behind it
may still be locked. Then the queue waits for the duration of a lock.

This module decides; the coordinator acts between `begin_check`, `end_check` and `clear`. Its guard
is held in all methods except `read` and `pages`, which read the journal.
"""

import logging
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from pairbus.syphon.journal import JournalPage
from pairbus.syphon.object_journal import LockJournal

__all__ = ["Check", "Inspection", "OrphanedLocks"]

log = logging.getLogger("pairbus.syphon")

GRACE = 1.0  # seconds: credit that a reader granted before it died may still be on its way
AGAIN = 5.0  # seconds between two inspections
LONGEST = 300.0  # seconds: Service Bus has no longer locks


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of inspecting a queue for unknown locked messages.

    Args:
        is_clean: all locked messages are known.
        lock_seconds: how long a lock lasts, if a message was received.
        size: bytes of the message that was received and released, if there was one.
        peeks: how many peek requests were made.
    """

    is_clean: bool
    lock_seconds: float | None = None
    size: int | None = None
    peeks: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    """The check of one uncertain queue: inspect it, if necessary, and return tokens.

    Args:
        queue: the queue.
        needs_inspection: whether to inspect it.
        from_journal: the journal is the only evidence.
        since: when the queue was last suspected.
        pages: its uncertain journal pages, read after the check began.
    """

    queue: str
    needs_inspection: bool
    from_journal: bool
    since: float
    pages: tuple[JournalPage, ...] = field(default=(), repr=False)

    @property
    def after(self) -> int:
        """Only messages after this sequence number are to be considered."""
        return max([page.newest for page in self.pages], default=0) if self.from_journal else 0

    @property
    def to_return(self) -> list[tuple[JournalPage, list[bytes]]]:
        """The pages of dead readers, each with the tokens to return, newest first."""
        return tokens_to_return(self.pages)


def tokens_to_return(pages: Sequence[JournalPage]) -> list[tuple[JournalPage, list[bytes]]]:
    """Return the pages that were taken over, each with its tokens, newest first."""
    found = [(page, page.tokens[::-1]) for page in pages if page.is_taken_over]
    return [(page, tokens) for page, tokens in found if tokens]


@dataclass(slots=True)
class _Uncertain:
    """One uncertain queue."""

    since: float
    due: float  # the next check
    from_journal: bool  # the journal is the only evidence
    lock_seconds: float | None = None
    answered_at: float | None = None  # when the queue answered first, since `since`
    is_blind: bool = False  # messages were returned: an inspection cannot see past them
    until: float = math.inf  # it ends then, or when all locks have expired


class OrphanedLocks:
    """The uncertain queues. Time is an argument.

    Args:
        journal: its pages show which readers died.
    """

    def __init__(self, journal: LockJournal) -> None:
        self._journal = journal
        self._epoch = -1
        self._uncertain: dict[str, _Uncertain] = {}

    def suspect(self, queue: str, now: float, *, from_journal: bool = False) -> None:
        """Mark a queue as uncertain: messages may be locked with unknown tokens."""
        old = self._uncertain.get(queue)
        if old is None:
            self._uncertain[queue] = _Uncertain(now, now + GRACE, from_journal)
        elif not from_journal:
            old.from_journal, old.since, old.until = False, now, math.inf
            old.answered_at = None

    def read(self, epoch: int) -> Collection[str]:
        """Return the queues with uncertain pages, for `search`; empty if it has searched already.

        If a check ends meanwhile, its queue may be among them without a page: then it is suspected
        again, and the next check finds nothing.
        """
        if epoch == self._epoch:
            return ()
        if self._epoch < 0:
            self._journal.abandon_after(epoch)
        return self._journal.uncertain(epoch).keys()

    def search(self, epoch: int, queues: Iterable[str], now: float) -> None:
        """Suspect the queues that `read` found; all epochs up to this one are over."""
        for queue in queues:
            if queue not in self._uncertain:
                log.warning("%s: a reader died; reading waits for its locks to expire", queue)
                self.suspect(queue, now, from_journal=True)
        self._epoch = epoch

    def queues(self) -> list[str]:
        """Return the uncertain queues."""
        return list(self._uncertain)

    def due(self, now: float) -> list[str]:
        """Return the queues to check now."""
        return [queue for queue, found in self._uncertain.items() if now >= found.due]

    def begin_check(self, queue: str, now: float) -> Check:
        """Return the check of an uncertain queue; `end_check` takes its results."""
        found = self._uncertain[queue]
        found.due = now + AGAIN
        needs_inspection = not found.is_blind or found.lock_seconds is None
        return Check(queue, needs_inspection, found.from_journal, found.since)

    def end_check(
        self,
        check: Check,
        now: float,
        *,
        inspection: Inspection | None,
        answered_at: float,
        has_returned: bool,
        lock_seconds: float | None,
    ) -> bool:
        """Decide whether the queue may be read again; then remove its pages, and call `clear`.

        While the queue cannot be reached, requests of a process that died may be on the way, and
        lock messages when it can be reached again. So locks may last from its first answer on.

        Args:
            check: the check that has ended.
            now: the time of the check.
            inspection: its result; None if there was none, or the queue could not be reached.
            answered_at: when the inspection was answered.
            has_returned: whether all tokens of `check.to_return` were returned.
            lock_seconds: how long locks last, if that is known.
        """
        found = self._uncertain[check.queue]
        if check.needs_inspection:
            if inspection is None:
                return False
            found.lock_seconds = inspection.lock_seconds or found.lock_seconds
            if found.since == check.since:  # it was not suspected again meanwhile
                found.answered_at = found.answered_at or answered_at
                if inspection.is_clean and not found.is_blind:
                    found.until = now
        found.is_blind = found.is_blind or bool(check.to_return)
        if not has_returned or found.since != check.since:  # suspected again meanwhile
            return False
        if found.from_journal and not any(page.is_open for page in check.pages):
            found.until = now  # the reader was alive, and has recorded everything
        lasts = found.lock_seconds or lock_seconds or LONGEST
        start = found.answered_at or found.since
        until = min(found.until, start + lasts + max(1.0, min(5.0, lasts / 12)))
        if now < until:
            found.due = min(found.due, until)
            return False
        return True

    def clear(self, check: Check) -> None:
        """The queue is no longer uncertain, unless it was suspected again since the check began."""
        if self._uncertain[check.queue].since == check.since:
            del self._uncertain[check.queue]

    def pages(self) -> dict[str, list[JournalPage]]:
        """Return the uncertain pages of all uncertain queues, by queue."""
        return self._journal.uncertain(self._epoch) if self._uncertain else {}
