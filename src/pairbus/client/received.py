"""A received message: its bytes, and the broker's annotations, decoded when they are read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pairbus.amqp.message import MESSAGE_ANNOTATIONS, Message, section_at
from pairbus.amqp.summary import find_entries

_NAMES = {
    b"x-opt-sequence-number": "sequence_number",
    b"x-opt-enqueued-time": "enqueued_time",
    b"x-opt-locked-until": "locked_until",
    b"x-opt-enqueue-sequence-number": "enqueued_sequence_number",
    b"x-opt-message-state": "state",
    b"x-opt-deadletter-source": "dead_letter_source",
}
_WANTED = frozenset(_NAMES)


def broker_facts(payload: bytes) -> dict[str, Any]:
    """The broker's message annotations, by our names; times in milliseconds since 1970.

    Raises:
        ProtocolError: the message cannot be read.
    """
    pos, total = 0, len(payload)
    while pos < total:
        code, start, end = section_at(payload, pos)
        if code == MESSAGE_ANNOTATIONS:
            found = find_entries(payload, start, _WANTED)
            return {_NAMES[key]: value for key, value in found.items()}
        if code > MESSAGE_ANNOTATIONS:
            break
        pos = end
    return {}


class Received:
    """One received message.

    Times are milliseconds since 1970. `lock_token` is None after receive and delete.
    """

    __slots__ = ("_facts", "_message", "delivery_id", "payload", "tag")

    def __init__(self, payload: bytes, tag: bytes, delivery_id: int = -1) -> None:
        self.payload = payload
        self.tag = tag
        self.delivery_id = delivery_id
        self._facts: dict[str, Any] | None = None
        self._message: Message | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """All annotations of the broker: see `broker_facts`."""
        if self._facts is None:
            self._facts = broker_facts(self.payload)
        return self._facts

    @property
    def lock_token(self) -> UUID | None:
        """The lock token: valid on any connection."""
        return UUID(bytes_le=self.tag) if len(self.tag) == 16 else None

    @property
    def sequence_number(self) -> int:
        """The sequence number that the broker gave the message."""
        return int(self.facts.get("sequence_number", 0))

    @property
    def locked_until(self) -> int | None:
        """When the lock ends."""
        value = self.facts.get("locked_until")
        return None if value is None else int(value)

    @property
    def enqueued_time(self) -> int | None:
        """When the broker enqueued the message."""
        value = self.facts.get("enqueued_time")
        return None if value is None else int(value)

    @property
    def message(self) -> Message:
        """The message, section by section."""
        if self._message is None:
            self._message = Message.parse(self.payload)
        return self._message

    @property
    def delivery_count(self) -> int:
        """The number of earlier deliveries."""
        header = self.message.header
        return (header.delivery_count or 0) if header is not None else 0

    def __repr__(self) -> str:
        return f"<Received {len(self.payload)} bytes>"
