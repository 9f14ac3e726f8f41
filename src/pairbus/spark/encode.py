"""Columns as AMQP messages, for rows that carry no encoded message.

Only columns that are there are used, and only values that are not null are set. Application
properties are strings, as the map's type says; a message that needs other AMQP types travels as
the column `message`.
"""

from typing import TYPE_CHECKING, Any

from pairbus.amqp.codec import encode
from pairbus.amqp.types import Symbol

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["encode_message", "with_messages"]

# Section 3.2.4, by index in the properties list. The session id, the time to live and the
# scheduled time are set when the message is sent, as for messages from the backlog.
_PROPERTIES = {
    "messageId": 0,
    "to": 2,
    "subject": 3,
    "replyTo": 4,
    "correlationId": 5,
    "contentType": 6,
    "replyToSessionId": 12,
}
_SYMBOLS = {"contentType"}


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
    parts: list[bytes] = []
    key = row.get("partitionKey")
    if key is not None:
        parts.append(b"\x00\x53\x72" + encode({Symbol("x-opt-partition-key"): key}))
    properties: list[Any] = [None] * 13
    for name, index in _PROPERTIES.items():
        value = row.get(name)
        if value is not None:
            properties[index] = Symbol(value) if name in _SYMBOLS else value
    while properties and properties[-1] is None:
        properties.pop()
    if properties:
        parts.append(b"\x00\x53\x73" + encode(properties))
    application = row.get("applicationProperties")
    if application:
        parts.append(b"\x00\x53\x74" + encode(dict(application)))
    body = row.get("body")
    raw = body.encode() if isinstance(body, str) else bytes(body or b"")
    parts.append(b"\x00\x53\x75" + encode(raw))
    return b"".join(parts)
