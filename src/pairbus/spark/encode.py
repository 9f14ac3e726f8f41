"""Columns as AMQP messages, for rows that carry no encoded message.

Only columns that are there are used, and only values that are not null are set. Application
properties are strings, as the map's type says; a message that needs other AMQP types travels as
the column `message`.
"""

from typing import TYPE_CHECKING, Any

from pairbus.amqp.message import Message, Properties
from pairbus.amqp.types import Symbol

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["encode_message", "with_messages"]

# The session id, the time to live and the scheduled time are set when the message is sent, as for
# messages from the backlog.
_PROPERTIES = {
    "messageId": "message_id",
    "to": "to",
    "subject": "subject",
    "replyTo": "reply_to",
    "correlationId": "correlation_id",
    "contentType": "content_type",
    "replyToSessionId": "reply_to_group_id",
}


def with_messages(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """The batch with a column `message`, encoded from the other columns."""
    import pyarrow as pa

    wanted = [*_PROPERTIES, "body", "partitionKey", "applicationProperties"]
    names = [name for name in wanted if name in batch.schema.names]
    columns = [batch.column(name).to_pylist() for name in names]
    messages = [
        encode_message(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)
    ]
    return batch.append_column("message", pa.array(messages, pa.binary()))


def encode_message(row: dict[str, Any]) -> bytes:
    """One message, from column values."""
    given: dict[str, Any] = {
        _PROPERTIES[name]: str(value)
        for name, value in row.items()
        if name in _PROPERTIES and value is not None
    }
    key, body = row.get("partitionKey"), row.get("body")
    return Message.build(
        message_annotations=None if key is None else {Symbol("x-opt-partition-key"): key},
        properties=Properties(**given) if given else None,
        application_properties=dict(row.get("applicationProperties") or ()) or None,
        data=body.encode() if isinstance(body, str) else bytes(body or b""),
    ).encode()
