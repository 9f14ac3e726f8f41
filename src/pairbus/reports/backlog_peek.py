"""Peeks the messages in the backlog queues without changing them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pairbus.envelope.fields import peek_aliases
from pairbus.ledger.schema import arrow_schema
from pairbus.reports.rows import save_rows
from pairbus.syphon.rows import as_text

if TYPE_CHECKING:
    from pairbus.client import BulkConnection
    from pairbus.client.received import Received

PAGE = 250
PEEKED = (
    "message_id", "destination", "session_id", "backlog_queue", "sequence_number", "size",
    "enqueued_at",
)  # fmt: skip
"""The columns of the messages table that a peeked row has; `dead_letter` comes on top."""


def peek_backlog(
    connection: BulkConnection,
    queues: Iterable[str],
    *,
    count: Callable[[str, int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each message in these queues and their dead-letter queues.

    Args:
        connection: the connection to the secondary.
        queues: paths; one that does not exist counts as empty.
        count: is called for each peek, which is charged, with its entity and the messages returned.
    """
    for queue in queues:
        for entity, dead in ((queue, False), (f"{queue}/$deadletterqueue", True)):
            for page in connection.management(entity).peek_pages(PAGE):
                if count is not None:
                    count(entity, len(page))
                yield from (_row(received, queue, dead) for received in page)


def save_peeked(rows: Iterable[dict[str, Any]], file: str) -> int:
    """Write peeked rows as a Parquet file for Spark, a batch at a time; return how many."""
    import pyarrow as pa

    known = arrow_schema("messages")
    fields = [known.field(name) for name in PEEKED]
    return save_rows(rows, pa.schema([*fields, pa.field("dead_letter", pa.bool_())]), file)


def _row(received: Received, queue: str, dead: bool) -> dict[str, Any]:
    message = received.message
    destination, session_id = peek_aliases(message.application_properties)
    properties = message.properties
    enqueued = received.enqueued_time
    message_id = properties.message_id if properties is not None else None
    return {
        "message_id": as_text(message_id),  # as the ledger has it
        "destination": destination,
        "session_id": session_id,
        "backlog_queue": queue,
        "sequence_number": received.sequence_number,
        "size": len(received.payload),
        "enqueued_at": None
        if enqueued is None
        else dt.datetime.fromtimestamp(enqueued / 1000, dt.UTC),
        "dead_letter": dead,
    }
