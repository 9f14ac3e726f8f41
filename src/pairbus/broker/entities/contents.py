"""Reads and edits the sections of a message, for rules, forwarding and dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pairbus.amqp.encoder import encode, encode_compound
from pairbus.amqp.errors import ProtocolError
from pairbus.amqp.message import Message, Properties
from pairbus.amqp.sections import raw_map_entries
from pairbus.amqp.summary import find_entries
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.broker.entities.messages import IncomingMessage
from pairbus.broker.filters.actions import Changes

_FIELDS = {
    "message_id": "message_id",
    "correlation_id": "correlation_id",
    "to": "to",
    "reply_to": "reply_to",
    "subject": "subject",
    "session_id": "group_id",
    "reply_to_session_id": "reply_to_group_id",
    "content_type": "content_type",
}
"""System properties that are fields of the properties section."""

_PARTITION_KEY = Symbol("x-opt-partition-key")
_PARTITION_KEY_BYTES = frozenset({_PARTITION_KEY.encode()})


def set_properties(bare: bytes, properties: Mapping[str, object]) -> bytes:
    """The bare message with these application properties set; the others keep their bytes.

    A message that cannot be parsed is returned unchanged: its properties cannot be read anyway.
    """
    try:
        message = Message.parse(bare)
        merged = dict(message.application_properties or {})
        merged.update(properties)
        return message.replace(application_properties=merged).bare
    except ProtocolError:
        return bare


def message_id_of(bare: bytes) -> str | None:
    """The message identifier inside a bare message, as the text that duplicates share."""
    try:
        properties = Message.parse(bare).properties
    except ProtocolError:
        return None
    return None if properties is None else identifier(properties.message_id)


def identifier(value: object) -> str | None:
    """A message identifier, which is text, bytes, a number or a UUID, as text; bytes as hex."""
    return value.hex() if isinstance(value, bytes) else _text(value)


def partition_key_of(annotations: bytes) -> str | None:
    """The partition key in encoded message annotations, as text."""
    found = find_entries(annotations, 0, _PARTITION_KEY_BYTES) if annotations else {}
    return _text(next(iter(found.values()), None))


class View:
    """A message as the rules of a subscription see it; sections are decoded on demand."""

    def __init__(self, message: IncomingMessage, now: int, number: int) -> None:
        self._message = message
        self._now = now
        self._number = number
        self._parsed: Message | None = None

    @property
    def parsed(self) -> Message:
        """The message's sections."""
        if self._parsed is None:
            self._parsed = Message.parse(self._message.bare)
        return self._parsed

    @property
    def properties(self) -> Mapping[str, Any]:
        """The application properties, in their AMQP types."""
        return self.parsed.application_properties or {}

    def system(self, name: str) -> Any:
        """A system property by its name; None when it is not set."""
        field = _FIELDS.get(name)
        if field is not None:
            properties = self.parsed.properties
            return None if properties is None else getattr(properties, field)
        message = self._message
        match name:
            case "time_to_live":
                return None if message.ttl is None else timedelta(milliseconds=message.ttl)
            case "expires_at_utc":
                return None if message.ttl is None else Timestamp(self._now + message.ttl)
            case "scheduled_enqueue_time_utc":
                return None if message.scheduled is None else Timestamp(message.scheduled)
            case "enqueued_time_utc":
                return Timestamp(self._now)
            case "partition_key":
                return message.partition_key
            case "delivery_count":
                return 0
            case "sequence_number" | "enqueued_sequence_number":
                return self._number
            case "size":
                return message.size
            case _:
                return None


def changed_copy(message: IncomingMessage, view: View, changes: Changes) -> IncomingMessage:
    """A copy of a message with the changes of a SQL action."""
    parsed = view.parsed
    if changes.properties is not None:
        parsed = parsed.replace(application_properties=changes.properties)
    fields: dict[str, Any] = {_FIELDS[n]: v for n, v in changes.system.items() if n in _FIELDS}
    if fields:
        parsed = parsed.replace(properties=replace(parsed.properties or Properties(), **fields))
    system = changes.system
    annotations = message.annotations
    partition_key = message.partition_key
    if "partition_key" in system:
        partition_key = _text(system["partition_key"])
        annotations = _with_partition_key(annotations, partition_key)
    ttl = message.ttl
    if "time_to_live" in system:
        duration = system["time_to_live"]
        ttl = None
        if isinstance(duration, timedelta):  # a negative one cannot be written into a header
            ttl = max(0, round(duration / timedelta(milliseconds=1)))
    bare = parsed.bare
    return replace(
        message,
        bare=bare,
        annotations=annotations,
        size=message.size + len(bare) - len(message.bare),
        message_id=_text(system.get("message_id", message.message_id)),
        session_id=_text(system.get("session_id", message.session_id)),
        partition_key=partition_key,
        content_type=_text(system.get("content_type", message.content_type)),
        ttl=ttl,
        scheduled=None,
    )


def _with_partition_key(annotations: bytes, key: str | None) -> bytes:
    entries = raw_map_entries(annotations, 0, len(annotations)) if annotations else {}
    entries.pop(_PARTITION_KEY, None)
    if key is not None:
        entries[_PARTITION_KEY] = encode(_PARTITION_KEY) + encode(key)
    body = b"".join(entries.values())
    return encode_compound(0xC1, 0xD1, 2 * len(entries), body) if entries else b""


def _text(value: object) -> str | None:
    return None if value is None else str(value)
