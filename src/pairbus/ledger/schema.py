"""The ledger's two tables, as data: every column with its type and meaning.

The Arrow schemas of the writers, the Spark schemas of the jobs, and the page of the reference are
derived from it. A change that older readers cannot handle increases `VERSION`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
"""The version in `ledger.json`; a reader refuses any other."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type is named as Spark's DDL names it."""

    name: str
    type: str
    nullable: bool
    meaning: str


OPERATIONS = (
    Column("writer", "string", False, "the writer of the row: unique to one run of one client"),
    Column("sequence", "bigint", False, "the row's number within its writer and table, from 0"),
    Column("minute", "timestamp", False, "the start of the minute that the row sums up, UTC"),
    Column("client_id", "string", False, "the paired client, syphon or tool that acted"),
    Column("namespace", "string", False, "the namespace that was called"),
    Column("entity", "string", False, "the queue, topic or subscription that was called"),
    Column("stage", "string", False, "the stage of a message, or another charged operation"),
    Column("operation", "string", False, "the call, such as `send`, `receive`, `complete`"),
    Column("size_step", "int", False, "steps of 64 KB of each message in these calls"),
    Column("count", "bigint", False, "calls"),
    Column("messages", "bigint", False, "messages in these calls"),
    Column("bytes", "bigint", False, "encoded bytes of these messages"),
    Column("billable", "bigint", False, "billable operations, if each message counts separately"),
    Column("billable_batched", "bigint", False, "the same if a batch counts by its whole size"),
)

MESSAGES = (
    Column("writer", "string", False, "the writer of the row: unique to one run of one client"),
    Column("sequence", "bigint", False, "the row's number within its writer and table, from 0"),
    Column("event", "string", False, "`backlogged`, `forwarded`, `dead_lettered` or `completed`"),
    Column("at", "timestamp", False, "when that happened, UTC"),
    Column("client_id", "string", False, "the paired client or syphon that did it"),
    Column("message_id", "string", True, "the message's id"),
    Column("destination", "string", True, "the entity that the message is for, in the primary"),
    Column("session_id", "string", True, "the session that the message belongs to"),
    Column("backlog_queue", "string", True, "the path of the backlog queue"),
    Column(
        "sequence_number", "bigint", True, "the message's number there; null in `backlogged` rows"
    ),
    Column("size", "bigint", True, "encoded bytes"),
    Column("enqueued_at", "timestamp", True, "when the backlog queue accepted it, UTC"),
    Column(
        "reason",
        "string",
        True,
        "why it was dead-lettered or completed, or where it was re-routed to",
    ),
)

TABLES = {"operations": OPERATIONS, "messages": MESSAGES}


def arrow_schema(table: str) -> pa.Schema:
    """Return the Arrow schema of one of the two tables."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema(pa.field(c.name, types[c.type], nullable=c.nullable) for c in TABLES[table])


def spark_schema(table: str) -> str:
    """Return the Spark schema, as DDL; columns are nullable there, as in all files Spark reads."""
    return ", ".join(f"`{c.name}` {c.type}" for c in TABLES[table])
