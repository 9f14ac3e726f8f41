"""The columns of received messages, as data: names, types, and meanings.

This list is the source of the Spark schema, of the Arrow schema that must equal it, and of the
reference page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["ALIASES", "COLUMNS", "Column", "arrow_schema", "select"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type is named as Spark's DDL names it."""

    name: str
    type: str
    meaning: str


COLUMNS = (
    Column("entity", "string", "path of the queue or subscription that it came from"),
    Column("sequenceNumber", "bigint", "its sequence number there"),
    Column("enqueuedTime", "timestamp", "when it was enqueued there"),
    Column("lockToken", "binary", "`peekLock`: the 16 bytes by which it is settled"),
    Column("lockedUntil", "timestamp", "`peekLock`: when the lock expires"),
    Column("receivedTime", "timestamp", "when the reader received it"),
    Column("deliveryCount", "int", "how often it was delivered before"),
    Column("state", "string", "`active`, `deferred` or `scheduled`"),
    Column("size", "bigint", "encoded bytes"),
    Column("body", "binary", "the data sections, or a value or sequence as encoded AMQP"),
    Column("bodyType", "string", "`data`, `value` or `sequence`"),
    Column("messageId", "string", "message id"),
    Column("sessionId", "string", "session id (AMQP group-id)"),
    Column("correlationId", "string", "correlation id"),
    Column("subject", "string", "subject, or label"),
    Column("contentType", "string", "content type"),
    Column("to", "string", "address that the sender gave"),
    Column("replyTo", "string", "address to reply to"),
    Column("replyToSessionId", "string", "session to reply to"),
    Column("partitionKey", "string", "partition key"),
    Column("timeToLive", "bigint", "time to live in milliseconds"),
    Column("scheduledEnqueueTime", "timestamp", "when it is to be delivered"),
    Column("applicationProperties", "map<string,string>", "application properties, as text"),
    Column("annotations", "map<string,string>", "message annotations, as text"),
    Column("deadLetterReason", "string", "why it was dead-lettered"),
    Column("deadLetterErrorDescription", "string", "description of the dead-letter reason"),
    Column("deadLetterSource", "string", "the entity that dead-lettered it"),
    Column("message", "binary", "the encoded message: header, annotations, and the bare message "
           "byte for byte, so that nothing loses its AMQP type"),
)  # fmt: skip

ALIASES = (
    Column("aliasPath", "string", "`x-ms-path`"),
    Column("aliasSessionId", "string", "`x-ms-sessionid`"),
    Column("aliasTimeToLive", "bigint", "`x-ms-timetolive`, milliseconds"),
    Column("aliasScheduledEnqueueTime", "timestamp", "`x-ms-scheduledenqueuetimeutc`"),
    Column("aliasProblem", "string", "what is wrong with the aliases"),
)


def select(names: Sequence[str], *, aliases: bool = False) -> list[Column]:
    """The columns of these names (`all` for all), in the table's order.

    Raises:
        ValueError: names the column that does not exist.
    """
    extra = list(ALIASES) if aliases else []
    if [name.lower() for name in names] == ["all"]:
        return [*COLUMNS, *extra]
    known = {column.name.lower() for column in COLUMNS}
    for name in names:
        if name.lower() not in known:
            names_known = ", ".join(column.name for column in COLUMNS)
            raise ValueError(
                f"servicebus: columns: there is no column {name!r}; there are {names_known}"
            )
    wanted = {name.lower() for name in names}
    return [column for column in COLUMNS if column.name.lower() in wanted] + extra


def arrow_schema(columns: Sequence[Column]) -> Any:
    """Return the columns as an Arrow schema, equal to the one that Spark derives from its own."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.field("value", pa.string(), nullable=True)),
    }
    return pa.schema([pa.field(column.name, kinds[column.type]) for column in columns])
