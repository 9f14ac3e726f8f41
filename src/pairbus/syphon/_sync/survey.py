# generated from src/pairbus/syphon/_async/survey.py by tools/gen_unasync.py; edit that one
"""Peeks backlog queues from their heads, to find messages that another receiver may hold."""

from collections.abc import Iterable, Sequence

from pairbus.envelope.encoded import open_message
from pairbus.runtime import Runtime
from pairbus.syphon._sync.receiving import Browser
from pairbus.syphon.object_journal import LockJournal
from pairbus.syphon.records import HeldMessage
from pairbus.syphon.retarget import TargetRecord, highest_handed_out

__all__ = ["record_change"]

PAGE = 250


def record_change(
    runtime: Runtime,
    browser: Browser,
    journal: LockJournal,
    queues: Sequence[str],
    *,
    host: str,
    former: str,
    is_known: bool,
    held: Iterable[HeldMessage] = (),
) -> TargetRecord:
    """Return the record of a change of target that happens now.

    Args:
        runtime: the clock.
        browser: browses the secondary.
        journal: the journal of the former syphon.
        queues: the backlog queues.
        host: the host of the new target.
        former: the name of the former target.
        is_known: whether the state directory is that of the former syphon.
        held: messages that the former syphon held: while they are locked, browsing does not show
            that they were handed out.
    """
    lowest: dict[str, int] = {}
    handed_out: dict[str, int] = {}
    locked: dict[str, int] = {}
    for one in held:
        locked[one.queue] = max(one.sequence, locked.get(one.queue, 0))
    for queue in queues:
        lowest[queue], redelivered = _survey(browser, queue)
        pages = journal.pages_of(queue)
        highest = highest_handed_out(lowest[queue], redelivered, pages, is_known=is_known)
        handed_out[queue] = max(highest, locked.get(queue, 0))
    return TargetRecord(host, former, runtime.time(), lowest, handed_out)


def _survey(browser: Browser, queue: str) -> tuple[int, int]:
    """Return the lowest sequence number of a queue, and the highest that was redelivered.

    Browses up to the first page that was never handed out: later messages were not either.
    """
    lowest = redelivered = first = 0
    while True:
        page = [open_message(m, aliases=False) for m in browser.peek(queue, first, PAGE)]
        if not page:
            return lowest, redelivered
        numbers = [one.sequence_number or 0 for one in page]
        lowest = lowest or numbers[0]
        again = [n for n, one in zip(numbers, page, strict=True) if one.delivery_count]
        if not again:
            return lowest, redelivered
        redelivered, first = max(redelivered, *again), numbers[-1] + 1
