# generated from src/pairbus/syphon/_async/postponement.py by tools/gen_unasync.py; edit that one
"""Rows that cannot be sent now: held, deferred or returned, so that no newer row overtakes them."""

from collections.abc import Sequence

from pairbus.syphon._sync.settler import Settler
from pairbus.syphon.delivery_rows import DeliveryRows
from pairbus.syphon.held import WHOLE_PRIMARY
from pairbus.syphon.records import BlockedRecord, HeldMessage
from pairbus.syphon.settlement import Settlement

__all__ = ["Postponement"]


class Postponement:
    """Postpones rows of one task.

    Args:
        settler: settles and reports.
        blocked: which destinations defer, and which messages were received by their numbers.
    """

    def __init__(self, settler: Settler, blocked: BlockedRecord) -> None:
        self._settler = settler
        self._blocked = blocked
        self._kept: set[tuple[str, str]] = set()  # queues and destinations of postponed rows

    def has(self, queue: str, destination: str) -> bool:
        """Whether a message of this queue for this destination was postponed."""
        return (queue, destination) in self._kept

    def postpone(self, rows: DeliveryRows, indices: Sequence[int], destination: str) -> None:
        """Keep rows in the backlog until a destination, or `*` for the primary, accepts messages.

        Messages stay locked, or are deferred if the destination has been waited for long enough. A
        message that was received by its number is deferred again when it is returned.
        """
        key = destination if destination == WHOLE_PRIMARY else destination.lower()
        self._kept |= {(rows.entity[i], (rows.destination[i] or "").lower()) for i in indices}
        locked = [i for i in indices if rows.token[i] is not None]
        if self._blocked.fetched:
            fetched = [
                i for i in locked if self._blocked.is_fetched(rows.entity[i], rows.sequence[i])
            ]
            if fetched:
                self._settler.add(Settlement(rows, fetched, "abandoned", None))
                locked = sorted({*locked} - {*fetched})
        if key in self._blocked.deferring:
            if locked:
                self._settler.defer(rows, locked, key)
            return
        self._settler.hold(
            [
                HeldMessage(
                    rows.entity[i],
                    rows.token[i].hex(),
                    rows.sequence[i],
                    key,
                    rows.locked_until(i) or 0.0,
                )
                for i in locked
            ]
        )
