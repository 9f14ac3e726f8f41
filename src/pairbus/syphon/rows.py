"""Received messages as Arrow batches, with only the columns that were selected.

The syphon selects a few columns that need no decoding; a notebook may select all, and pays for it.
"""

import json
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pairbus.amqp.codec import decode
from pairbus.envelope.cutting import ANNOTATIONS, APPLICATION, HEADER, PROPERTIES, sections
from pairbus.envelope.encoded import Opened
from pairbus.syphon.columns import Column, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowMaker"]

_STATES = {0: "active", 1: "deferred", 2: "scheduled"}
_BODY = {0x75: "data", 0x76: "sequence", 0x77: "value"}


class RowMaker:
    """Makes Arrow batches of one set of columns."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = list(columns)
        self._schema = arrow_schema(columns)
        names = {column.name for column in columns}
        self._decodes = bool(names & (_DECODED.keys() - {"messageId"}))
        self._message_id = "messageId" in names and not self._decodes

    def batch_of(
        self,
        entity: str,
        received_us: int,
        messages: Sequence[tuple[bytes | None, bytes]],
        opened: Sequence[Opened],
    ) -> "pa.RecordBatch":
        """Make a batch of messages: lock token (None if there is none), payload, parsed payload."""
        import pyarrow as pa

        count = len(messages)
        tokens, payloads = zip(*messages, strict=True) if messages else ((), ())
        columns = list(zip(*opened, strict=True)) if opened else [()] * len(Opened._fields)
        decoded = [_Decoded(payload) for payload in payloads] if self._decodes else []
        arrays = []
        values: Sequence[Any]
        for column, field in zip(self._columns, self._schema, strict=True):
            name = column.name
            if name == "entity":
                arrays.append(pa.repeat(pa.scalar(entity, field.type), count))
                continue
            if name == "receivedTime":
                arrays.append(pa.repeat(received_us, count).view(field.type))
                continue
            if name in _OPENED:
                values = columns[_OPENED[name]]
                if name == "state":
                    values = [_STATES.get(one, "active") for one in values]
            elif name == "lockToken":
                values = tokens
            elif name == "size":
                values = list(map(len, payloads))
            elif name == "messageId" and self._message_id:
                values = list(map(message_id, payloads, columns[_PLACE]))
            else:
                values = [_DECODED[name](one) for one in decoded]
            if column.type == "timestamp":
                arrays.append(_times(values, field.type))
            else:
                arrays.append(pa.array(values, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _times(milliseconds: Sequence[int | None], kind: Any) -> Any:
    import pyarrow as pa

    times = pa.array(milliseconds, pa.int64()).view(pa.timestamp("ms", tz="UTC"))
    try:
        return times.cast(kind)
    except pa.ArrowInvalid:  # out of the calendar's range: use its limit
        most = (1 << 63) // 1000 - 1
        near = [None if ms is None else min(max(ms, -most), most) for ms in milliseconds]
        return pa.array(near, pa.int64()).view(times.type).cast(kind)


_OPENED = {
    name: Opened._fields.index(field)
    for name, field in {
        "sequenceNumber": "sequence_number",
        "enqueuedTime": "enqueued_time",
        "lockedUntil": "locked_until",
        "deliveryCount": "delivery_count",
        "state": "state",
        "message": "message",
        "aliasPath": "path",
        "aliasSessionId": "session_id",
        "aliasTimeToLive": "time_to_live",
        "aliasScheduledEnqueueTime": "scheduled",
        "aliasProblem": "problem",
    }.items()
}
_PLACE = Opened._fields.index("properties")


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
    """A value of any AMQP type as readable text."""
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
