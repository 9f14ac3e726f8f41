"""Delivered messages as Arrow batches, and only the columns that were asked for.

A mover asks for a few columns that cost little; a notebook asks for all, and pays for decoding.
"""

import json
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pairbus.amqp.codec import decode
from pairbus.core.syphon_message import (
    ANNOTATIONS,
    APPLICATION,
    HEADER,
    PROPERTIES,
    Opened,
    open_message,
    sections,
)
from pairbus.spark.schema import Column, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowMaker"]

_STATES = {0: "active", 1: "deferred", 2: "scheduled"}
_BODY = {0x75: "data", 0x76: "sequence", 0x77: "value"}


class RowMaker:
    """Makes Arrow batches of one set of columns."""

    def __init__(self, columns: Sequence[Column], *, aliases: bool) -> None:
        self._columns = list(columns)
        self._schema = arrow_schema(columns)
        self._aliases = aliases
        names = {column.name for column in columns}
        self._decodes = bool(names & (_DECODED.keys() - {"messageId"}))
        self._message_id = "messageId" in names and not self._decodes

    def batch(
        self, entity: str, received_us: int, messages: Sequence[tuple[bytes | None, bytes]]
    ) -> "pa.RecordBatch":
        """Make a batch of deliveries: lock token (None when there is none) and payload of each."""
        opened = [open_message(payload, aliases=self._aliases) for _, payload in messages]
        return self.batch_of(entity, received_us, messages, opened)

    def batch_of(
        self,
        entity: str,
        received_us: int,
        messages: Sequence[tuple[bytes | None, bytes]],
        opened: Sequence[Opened],
    ) -> "pa.RecordBatch":
        """The same for messages that are taken apart already."""
        import pyarrow as pa

        count = len(messages)
        decoded = [_Decoded(payload) for _, payload in messages] if self._decodes else []
        arrays = []
        for column, field in zip(self._columns, self._schema, strict=True):
            name = column.name
            if name == "entity":
                arrays.append(pa.array([entity] * count, field.type))
            elif name == "receivedTime":
                arrays.append(pa.array([received_us] * count, pa.int64()).view(field.type))
            elif name == "lockToken":
                arrays.append(pa.array([token for token, _ in messages], field.type))
            elif name == "size":
                arrays.append(pa.array([len(payload) for _, payload in messages], field.type))
            elif name == "messageId" and self._message_id:
                ids = [
                    message_id(payload, one.properties)
                    for (_, payload), one in zip(messages, opened, strict=True)
                ]
                arrays.append(pa.array(ids, field.type))
            elif name in _OPENED:
                values: list[Any] = [_OPENED[name](one) for one in opened]
                if column.type == "timestamp":
                    arrays.append(_times(values, field.type))
                else:
                    arrays.append(pa.array(values, field.type))
            else:
                values = [_DECODED[name](one) for one in decoded]
                if column.type == "timestamp":
                    arrays.append(_times(values, field.type))
                else:
                    arrays.append(pa.array(values, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _times(milliseconds: list[int | None], kind: Any) -> Any:
    import pyarrow as pa

    values = [None if ms is None else ms * 1000 for ms in milliseconds]
    return pa.array(values, pa.int64()).view(kind)


_OPENED: dict[str, Callable[[Opened], Any]] = {
    "sequenceNumber": lambda o: o.sequence_number,
    "enqueuedTime": lambda o: o.enqueued_time,
    "lockedUntil": lambda o: o.locked_until,
    "deliveryCount": lambda o: o.delivery_count,
    "state": lambda o: _STATES.get(o.state, "active"),
    "message": lambda o: o.message,
    "aliasPath": lambda o: o.path,
    "aliasSessionId": lambda o: o.session_id,
    "aliasTimeToLive": lambda o: o.time_to_live,
    "aliasScheduledEnqueueTime": lambda o: o.scheduled,
    "aliasProblem": lambda o: o.problem,
}


def message_id(payload: bytes, place: tuple[int, int] | None) -> str | None:
    """The message id as text, without decoding the other properties."""
    if place is None:
        return None
    pos = place[0]
    code = payload[pos]
    if code == 0x45:
        return None
    first = pos + (3 if code == 0xC0 else 9)
    if first >= place[1]:
        return None
    if payload[first] == 0xA1:
        return payload[first + 2 : first + 2 + payload[first + 1]].decode()
    return as_text(decode(payload, first)[0])


def as_text(value: Any) -> str | None:
    """A value of any AMQP type as text that people read."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | uuid.UUID):
        return str(value)
    return json.dumps(value, default=as_text)


class _Decoded:
    """A message's sections, decoded."""

    def __init__(self, payload: bytes) -> None:
        found, body = sections(payload)

        def section(code: int) -> Any:
            return decode(payload, found[code][0])[0] if code in found else None

        self.header = [*(section(HEADER) or []), *[None] * 5][:5]
        self.properties = [*(section(PROPERTIES) or []), *[None] * 13][:13]
        self.application = dict(section(APPLICATION) or {})
        self.annotations = {str(k): v for k, v in dict(section(ANNOTATIONS) or {}).items()}
        self.body, self.body_type = _body(payload, body)


def _body(payload: bytes, pos: int) -> tuple[bytes | None, str | None]:
    data: list[bytes] = []
    kind = None
    while pos < len(payload):
        descriptor, value = decode(payload, pos + 1)
        name = _BODY.get(int(descriptor)) if isinstance(descriptor, int) else None
        if name is None:
            break  # the footer
        decoded, after = decode(payload, value)
        kind = name
        data.append(bytes(decoded) if name == "data" else payload[value:after])
        pos = after
    return (b"".join(data) if kind else None), kind


def _property(index: int) -> Callable[[_Decoded], str | None]:
    return lambda d: as_text(d.properties[index])


def _texts(values: dict[Any, Any]) -> list[tuple[str, str | None]]:
    return [(str(key), as_text(value)) for key, value in values.items()]


def _milliseconds(value: Any) -> int | None:
    return int(value) if isinstance(value, int) else None


_DECODED: dict[str, Callable[[_Decoded], Any]] = {
    "body": lambda d: d.body,
    "bodyType": lambda d: d.body_type,
    "messageId": _property(0),
    "to": _property(2),
    "subject": _property(3),
    "replyTo": _property(4),
    "correlationId": _property(5),
    "contentType": _property(6),
    "sessionId": _property(10),
    "replyToSessionId": _property(12),
    "partitionKey": lambda d: as_text(d.annotations.get("x-opt-partition-key")),
    "timeToLive": lambda d: _milliseconds(d.header[2]),
    "scheduledEnqueueTime": lambda d: _milliseconds(
        d.annotations.get("x-opt-scheduled-enqueue-time")
    ),
    "applicationProperties": lambda d: _texts(d.application),
    "annotations": lambda d: _texts(d.annotations),
    "deadLetterReason": lambda d: as_text(d.application.get("DeadLetterReason")),
    "deadLetterErrorDescription": lambda d: as_text(
        d.application.get("DeadLetterErrorDescription")
    ),
    "deadLetterSource": lambda d: as_text(d.annotations.get("x-opt-deadletter-source")),
}
