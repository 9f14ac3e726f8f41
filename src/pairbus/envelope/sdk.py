"""Wraps messages of azure-servicebus for a backlog queue, by their public attributes."""

from __future__ import annotations

import calendar
import copy
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from pairbus.envelope.fields import (
    PATH,
    SCHEDULED_ENQUEUE_TIME,
    SESSION_ID,
    TIME_TO_LIVE,
    Aliases,
    Fields,
    check_reserved,
)
from pairbus.envelope.fields import wrap as wrap_fields

SdkMessage: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage

# The SDK writes its own annotations with keys of bytes; an application may use text.
_SCHEDULED_KEYS: Final = (b"x-opt-scheduled-enqueue-time", "x-opt-scheduled-enqueue-time")


def annotated(message: SdkMessage) -> AmqpAnnotatedMessage:
    """Return the AMQP message inside `message`, or `message` itself if it is one."""
    return message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message


def is_empty(header: AmqpMessageHeader) -> bool:
    """Return whether no field of the header is set, so that the SDK writes no header."""
    return (
        header.time_to_live is None
        and header.durable is None
        and header.delivery_count is None
        and header.priority is None
        and header.first_acquirer is None
    )


def wrap(message: SdkMessage, path: str, *, now: int) -> AmqpAnnotatedMessage:
    """Return a copy of `message` for a backlog queue; `message` itself is not changed.

    Args:
        message: The message for its destination.
        path: The destination.
        now: Milliseconds since 1970; see `pairbus.envelope.fields.wrap`.

    Raises:
        ReservedPropertyError: the message uses the name of an alias itself.
    """
    source = annotated(message)
    names = source.application_properties
    if names:
        check_reserved(names)
    header, properties, annotations = source.header, source.properties, source.annotations
    key, scheduled = _scheduled(annotations) if annotations else (None, None)
    group_id = expires_at = created_at = None
    if properties is not None:
        group_id = properties.group_id
        expires_at = properties.absolute_expiry_time
        created_at = properties.creation_time
    ttl = header.time_to_live if header is not None else None
    fields = Fields(
        group_id=None if group_id is None else _text(group_id),
        ttl=None if ttl is None else _integer(ttl),
        absolute_expiry_time=expires_at,
        creation_time=created_at,
        scheduled_enqueue_time=scheduled,
    )
    waiting, aliases = wrap_fields(fields, path, now=now)
    wrapped = copy.copy(source)
    if header is not None:
        if header.time_to_live is not None:
            wrapped.header = header = copy.copy(header)
            header.time_to_live = waiting.ttl
        if is_empty(header):
            wrapped.header = None  # type: ignore[assignment]  # so that the SDK does not check each field
    if aliases.session_id is not None or aliases.time_to_live is not None:
        changed = copy.copy(properties) if properties is not None else AmqpMessageProperties()
        changed.group_id = waiting.group_id
        changed.absolute_expiry_time = waiting.absolute_expiry_time
        changed.creation_time = waiting.creation_time
        wrapped.properties = changed
    if annotations and key is not None:
        wrapped.annotations = {k: v for k, v in annotations.items() if k != key}
    entries = _entries(aliases)
    wrapped.application_properties = {**names, **entries} if names else entries
    return wrapped


def _entries(aliases: Aliases) -> dict[str | bytes, Any]:
    """The aliases with their AMQP types, as the SDK takes them."""
    entries: dict[str | bytes, Any] = {PATH: aliases.path}
    if aliases.session_id is not None:
        entries[SESSION_ID] = aliases.session_id
    if aliases.time_to_live is not None:
        # The SDK writes a Python int as an AMQP int; the alias is a long.
        entries[TIME_TO_LIVE] = {"TYPE": "LONG", "VALUE": aliases.time_to_live}
    if aliases.scheduled_enqueue_time is not None:
        entries[SCHEDULED_ENQUEUE_TIME] = {
            "TYPE": "TIMESTAMP",
            "VALUE": aliases.scheduled_enqueue_time,
        }
    return entries


def _scheduled(annotations: Mapping[Any, Any]) -> tuple[Any, int | None]:
    """Return key and value (milliseconds) of the annotation for the scheduled enqueue time."""
    for key in _SCHEDULED_KEYS:
        value = _plain(annotations.get(key))
        if isinstance(value, datetime):
            # As the SDK encodes it: a time without a zone is UTC.
            return key, calendar.timegm(value.utctimetuple()) * 1000 + value.microsecond // 1000
        if isinstance(value, int):
            return key, value
    return None, None


def _plain(value: Any) -> Any:
    """Return the value without its AMQP type, which the SDK allows to be given with it."""
    return value["VALUE"] if isinstance(value, dict) and "VALUE" in value else value


def _text(value: Any) -> str | None:
    value = _plain(value)
    if value is None or isinstance(value, str):
        return value
    return value.decode() if isinstance(value, bytes) else str(value)


def _integer(value: Any) -> int | None:
    value = _plain(value)
    return None if value is None else int(value)
