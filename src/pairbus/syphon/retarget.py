"""A change of target: the backlog goes to another namespace when the primary is permanently lost.

The former target may have received messages whose receipts are missing: they were sent, and the
syphon stopped before it wrote the receipt. So two sequence numbers are recorded for each backlog
queue when the target changes: the lowest in the queue, and the highest that may have been handed
out. A message up to the highest number is *in doubt* if its delivery count is not 0 and it has no
receipt. It is delivered, because delivery is promised at least once, and its receipt says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pairbus.syphon.codec import Record
from pairbus.syphon.journal import JournalPage

__all__ = ["ALL", "Route", "TargetRecord", "highest_handed_out"]

#: Higher than any sequence number: it is not known which messages were handed out.
ALL = 1 << 62

#: Most messages that a reader may have been handed out beyond those that it recorded.
_UNRECORDED = 20_000


@dataclass(frozen=True, slots=True)
class TargetRecord(Record):
    """`target.json`: the namespace that the backlog is delivered to.

    Args:
        host: its host.
        former: the name of the former target; empty if the target never changed.
        changed_at: when it changed, in seconds since 1970.
        lowest: per queue, the lowest sequence number that was there at that time.
        handed_out: per queue, the highest sequence number that may have been handed out by then.
    """

    host: str = ""
    former: str = ""
    changed_at: float = 0.0
    lowest: Mapping[str, int] = field(default_factory=dict)
    handed_out: Mapping[str, int] = field(default_factory=dict)


def highest_handed_out(
    lowest: int, redelivered: int, pages: Sequence[JournalPage], *, is_known: bool
) -> int:
    """Return the highest sequence number of a queue that may have been handed out.

    Args:
        lowest: the lowest sequence number in the queue; 0 if it is empty.
        redelivered: the highest with a delivery count above 0; 0 if there is none.
        pages: the queue's journal pages.
        is_known: whether the state directory is that of the former syphon; a new one has no record.
    """
    if not is_known:
        return ALL
    highest = max([redelivered, *(page.newest for page in pages)])
    if any(page.is_open for page in pages):
        highest = max(highest, lowest) + _UNRECORDED
    return highest


@dataclass(frozen=True, slots=True)
class Route:
    """Where messages go instead of to the destination that their sender chose.

    Args:
        namespace: the name of the target; empty if it is the primary.
        destinations: entities of the target by the name that their sender chose, in lower case.
        former: the name of the former target; empty if the target never changed.
        handed_out: per queue, the highest sequence number that the former target may have received.
    """

    namespace: str = ""
    destinations: Mapping[str, str] = field(default_factory=dict)
    former: str = ""
    handed_out: Mapping[str, int] = field(default_factory=dict)

    def map(self, destination: str | None) -> str | None:
        """Return the entity to send to."""
        return self.destinations.get((destination or "").lower(), destination)

    def may_have_been_sent(self, queue: str, sequence: int, delivery_count: int) -> bool:
        """Whether the former target may have this message, if it has no receipt."""
        return (
            bool(self.former) and delivery_count > 0 and sequence <= self.handed_out.get(queue, 0)
        )

    def reason(self, destination: str) -> str:
        """Return the reason of a receipt; empty for a delivery to the primary."""
        return f"to {self.namespace}/{destination}" if self.namespace else ""
