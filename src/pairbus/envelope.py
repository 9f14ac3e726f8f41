"""The aliases: wrap a message for a backlog queue, restore it for its destination.

A message in a backlog queue carries as application properties where it was going and what would
have made the backlog queue hold it back, expire it or need sessions:

| alias                          | AMQP type      | instead of                                    |
|--------------------------------|----------------|-----------------------------------------------|
| `x-ms-path`                    | string         | the link's target; always there               |
| `x-ms-sessionid`               | string         | properties.group-id                           |
| `x-ms-timetolive`              | long, ms       | header.ttl and properties.absolute-expiry-time |
| `x-ms-scheduledenqueuetimeutc` | timestamp      | annotation x-opt-scheduled-enqueue-time       |

Everything else travels as it is. Messages are wrapped where the application hands them over, as
SDK objects; they are restored in the syphon, on encoded AMQP, so that what is not touched stays the
same bytes.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from pairbus.exceptions import ReservedPropertyError

__all__ = [
    "ALIASES",
    "PATH",
    "SCHEDULED_ENQUEUE_TIME",
    "SESSION_ID",
    "TIME_TO_LIVE",
    "Aliases",
    "check_reserved",
    "wrap",
]

PATH: Final = "x-ms-path"
SESSION_ID: Final = "x-ms-sessionid"
TIME_TO_LIVE: Final = "x-ms-timetolive"
SCHEDULED_ENQUEUE_TIME: Final = "x-ms-scheduledenqueuetimeutc"
ALIASES: Final = (PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED_ENQUEUE_TIME)
_RESERVED: Final = frozenset(ALIASES) | {name.encode() for name in ALIASES}

_X_OPT_SCHEDULED: Final = "x-opt-scheduled-enqueue-time"
_SCHEDULED_KEYS: Final = (_X_OPT_SCHEDULED.encode(), _X_OPT_SCHEDULED)

SdkMessage: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliases:
    """What the aliases of a backlog message say. Times are milliseconds."""

    path: str
    session_id: str | None = None
    time_to_live: int | None = None
    scheduled_enqueue_time: int | None = None


def check_reserved(names: Iterable[object] | Mapping[Any, Any] | None) -> None:
    """Refuse application properties that use one of the aliases' names.

    Raises:
        ReservedPropertyError: if there are any.
    """
    if not names:
        return
    used = _RESERVED.intersection(names)
    if used:
        raise ReservedPropertyError(
            sorted(name.decode() if isinstance(name, bytes) else name for name in used)
        )


def annotated(message: SdkMessage) -> AmqpAnnotatedMessage:
    """The AMQP message inside `message`, or `message` itself if it is one."""
    return message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _value(value: Any) -> Any:
    """The plain value of one that may carry its AMQP type, as the SDK writes typed values."""
    return value["VALUE"] if isinstance(value, dict) and "VALUE" in value else value


def wrap(message: SdkMessage, path: str) -> AmqpAnnotatedMessage:
    """A copy of `message` that waits in a backlog queue for `path`. `message` is left as it is.

    Raises:
        ReservedPropertyError: if the message uses one of the aliases' names itself.
    """
    source = annotated(message)
    check_reserved(source.application_properties)
    wrapped = copy.copy(source)
    aliases: dict[str | bytes, Any] = {PATH: path}

    header = source.header
    ttl = _value(header.time_to_live) if header else None
    properties = source.properties
    if properties is not None and properties.group_id is not None:
        aliases[SESSION_ID] = _text(_value(properties.group_id))
    if header and ttl:
        # The SDK writes a Python int as an AMQP int; the alias is a long.
        aliases[TIME_TO_LIVE] = {"TYPE": "LONG", "VALUE": int(ttl)}
        wrapped.header = header = copy.copy(header)
        header.time_to_live = None
    if ttl or SESSION_ID in aliases:
        wrapped.properties = properties = (
            copy.copy(properties) if properties is not None else AmqpMessageProperties()
        )
        properties.group_id = None
        if ttl:
            properties.absolute_expiry_time = None
            if not properties.creation_time:
                # As the SDK sets it on every message with a time to live.
                properties.creation_time = int(time.time() * 1000)

    for key in _SCHEDULED_KEYS:
        scheduled = (source.annotations or {}).get(key)
        if scheduled is not None:
            annotations = dict(source.annotations or {})
            del annotations[key]
            wrapped.annotations = annotations
            value = _value(scheduled)
            is_number = isinstance(value, int)
            # A datetime is a timestamp to the SDK already; a number must be told.
            aliases[SCHEDULED_ENQUEUE_TIME] = (
                {"TYPE": "TIMESTAMP", "VALUE": value} if is_number else value
            )
            break

    wrapped.application_properties = {**(source.application_properties or {}), **aliases}
    return wrapped
