"""A message as rules see it: system and user properties by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pairbus.broker.filters.values import Value, read, text_of

SYSTEM_PROPERTIES: dict[str, str] = {
    name.lower(): canonical
    for canonical, names in {
        "message_id": "MessageId",
        "correlation_id": "CorrelationId",
        "to": "To",
        "reply_to": "ReplyTo",
        "subject": "Subject Label",
        "session_id": "SessionId",
        "reply_to_session_id": "ReplyToSessionId",
        "content_type": "ContentType",
        "time_to_live": "TimeToLive",
        "scheduled_enqueue_time_utc": "ScheduledEnqueueTimeUtc ScheduledEnqueueTime",
        "enqueued_time_utc": "EnqueuedTimeUtc EnqueuedTime",
        "expires_at_utc": "ExpiresAtUtc ExpiresAt",
        "partition_key": "PartitionKey",
        "delivery_count": "DeliveryCount",
        "sequence_number": "SequenceNumber",
        "enqueued_sequence_number": "EnqueuedSequenceNumber",
        "size": "Size",
        "dead_letter_source": "DeadLetterSource",
    }.items()
    for name in names.split()
}
"""Names that can follow ``sys.``, in lower case, and the name of the property in a view."""

TEXT_PROPERTIES = frozenset(
    {"message_id", "correlation_id", "to", "reply_to", "subject", "session_id"}
    | {"reply_to_session_id", "content_type", "partition_key", "dead_letter_source"}
)


class MessageView(Protocol):
    """A message as a rule sees it."""

    @property
    def properties(self) -> Mapping[str, Any]:
        """The application properties, in their AMQP types."""

    def system(self, name: str) -> Any:
        """A system property by its name in :data:`SYSTEM_PROPERTIES`; None when it is not set."""


def is_named(key: object, folded: str) -> bool:
    """Whether a key, which may be of any type, is this name; *folded* is in lower case."""
    return isinstance(key, str) and key.lower() == folded


def find_property(properties: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    """Whether there is a property of that name, and its value. Case is ignored."""
    if name in properties:
        return True, properties[name]
    folded = name.lower()
    for key, value in properties.items():
        if is_named(key, folded):
            return True, value
    return False, None


def canonical_value(view: MessageView, canonical: str) -> Value:
    """A system property by its name in a view."""
    value = view.system(canonical)
    if canonical in TEXT_PROPERTIES and not isinstance(value, str | None | bytes):
        return text_of(read(value))
    return read(value)
