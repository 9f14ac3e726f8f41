"""Rows that are settled in one way, and their receipts for the ledger."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pairbus.syphon.delivery_rows import DeliveryRows
from pairbus.syphon.verdicts import ORIGINAL

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DEFER", "Settlement", "receipts_of"]

#: How to settle a message to defer it, in the spelling of the protocol.
DEFER = "defered"


@dataclass(frozen=True, slots=True)
class Settlement:
    """Rows of one Arrow batch that are settled in one way, once their receipts are durable.

    Args:
        rows: the batch.
        indices: which of its rows.
        how: `completed`, `abandoned`, `suspended` (dead-lettered) or `defered`.
        event: the event of the receipt; None for rows that get none.
        reason: the reason of a dead letter or receipt.
        description: the description of a dead letter.
    """

    rows: DeliveryRows
    indices: list[int]
    how: str
    event: str | None
    reason: str = ""
    description: str = ""

    def add_tokens(self, queues: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
        """Add the lock tokens of the rows, by queue."""
        token, entity = self.rows.token, self.rows.entity
        for i in self.indices:
            if token[i] is not None:
                queues.setdefault(entity[i], []).append(token[i])
        return queues

    @property
    def size(self) -> int:
        """Encoded bytes of the rows."""
        message = self.rows.message
        return sum([len(message[i]) for i in self.indices])


def receipts_of(settlement: Settlement, now: float) -> "pa.Table":
    """Return the receipts of some rows, in the schema of the ledger's table of messages."""
    import pyarrow as pa

    batch = settlement.rows.batch
    first, count = settlement.indices[0], len(settlement.indices)
    if settlement.indices[-1] - first == count - 1:  # a run without gaps
        batch = batch.slice(first, count)
    else:
        batch = batch.take(pa.array(settlement.indices))
    names = set(batch.schema.names)
    time_type = pa.timestamp("us", tz="UTC")

    def column(name: str, kind: Any) -> Any:
        return batch.column(name).cast(kind) if name in names else pa.nulls(count, kind)

    destination = column("destination", pa.string())
    reason = pa.repeat(pa.scalar(settlement.reason or None, pa.string()), count)
    if ORIGINAL in names:  # the ledger knows a message by the destination that its sender chose
        import pyarrow.compute as pc

        original, sent_to = column(ORIGINAL, pa.string()), destination
        destination = pc.coalesce(original, sent_to)
        if settlement.event == "forwarded":
            moved = pc.fill_null(pc.not_equal(original, sent_to), False)
            reason = pc.if_else(moved, pc.binary_join_element_wise("to", sent_to, " "), reason)
    return pa.table(
        {
            "event": pa.repeat(pa.scalar(settlement.event, pa.string()), count),
            "at": pa.repeat(int(now * 1e6), count).view(time_type),
            "message_id": column("messageId", pa.string()),
            "destination": destination,
            "session_id": column("sessionId", pa.string()),
            "backlog_queue": column("entity", pa.string()),
            "sequence_number": column("sequenceNumber", pa.int64()),
            "size": column("size", pa.int64()),
            "enqueued_at": column("enqueuedTime", time_type),
            "reason": reason,
        }
    )
