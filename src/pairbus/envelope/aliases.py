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

import functools
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

from pairbus.amqp.encoder import encode
from pairbus.amqp.message import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    Header,
    Message,
    Properties,
    section_at,
)
from pairbus.amqp.types import Long, Timestamp
from pairbus.exceptions import ReservedPropertyError

__all__ = [
    "ALIASES",
    "PATH",
    "SCHEDULED_ENQUEUE_TIME",
    "SESSION_ID",
    "TIME_TO_LIVE",
    "AliasError",
    "Aliases",
    "check_reserved",
    "read_aliases",
    "restore",
    "wrap",
    "wrap_encoded",
]

PATH: Final = "x-ms-path"
SESSION_ID: Final = "x-ms-sessionid"
TIME_TO_LIVE: Final = "x-ms-timetolive"
SCHEDULED_ENQUEUE_TIME: Final = "x-ms-scheduledenqueuetimeutc"
ALIASES: Final = (PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED_ENQUEUE_TIME)
RESERVED: Final = frozenset(ALIASES) | {name.encode() for name in ALIASES}

_X_OPT_SCHEDULED: Final = "x-opt-scheduled-enqueue-time"
_MAX_UINT: Final = 0xFFFFFFFF
_MAX_EXPIRY: Final = 253402243199000  # the last day of the year 9999, as the SDK has it
_SCHEDULED_KEYS: Final = (_X_OPT_SCHEDULED.encode(), _X_OPT_SCHEDULED)

_SHORT_PROPERTIES: Final = b"\x00\x53\x73\xc0"  # a properties section of less than 256 bytes
_DATA: Final = b"\x00\x53\x75"

_T = TypeVar("_T")
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
    used = RESERVED.intersection(names)
    if used:
        raise ReservedPropertyError(
            sorted(name.decode() if isinstance(name, bytes) else name for name in used)
        )


def clone(thing: _T) -> _T:
    """A shallow copy of an SDK object, at a quarter of the price of `copy.copy`.

    This is on the way of every redirected message; the SDK's classes are plain ones.
    """
    made = thing.__class__.__new__(thing.__class__)
    made.__dict__.update(thing.__dict__)
    return made


def has_nothing(header: AmqpMessageHeader) -> bool:
    """Whether the SDK would write no header at all: none of its fields is set."""
    return (
        header.time_to_live is None
        and header.durable is None
        and header.delivery_count is None
        and header.priority is None
        and header.first_acquirer is None
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
    names = source.application_properties
    if names:
        check_reserved(names)
    wrapped = clone(source)
    aliases: dict[str | bytes, Any] = {PATH: path}

    # Asked for None and not for truth: an SDK object counts its fields to say whether it is true.
    header = source.header
    ttl = _value(header.time_to_live) if header is not None else None
    properties = source.properties
    session = properties.group_id if properties is not None else None
    if session is not None:
        aliases[SESSION_ID] = _text(_value(session))
    if header is not None and ttl:
        # The SDK writes a Python int as an AMQP int; the alias is a long.
        aliases[TIME_TO_LIVE] = {"TYPE": "LONG", "VALUE": int(ttl)}
        wrapped.header = header = clone(header)
        header.time_to_live = None
    if header is not None and has_nothing(header):
        wrapped.header = None  # type: ignore[assignment]  # the SDK finds that out at ten times the price
    if ttl or session is not None:
        wrapped.properties = properties = (
            clone(properties) if properties is not None else AmqpMessageProperties()
        )
        properties.group_id = None
        if ttl:
            properties.absolute_expiry_time = None
            if not properties.creation_time:
                # As the SDK sets it on every message with a time to live.
                properties.creation_time = int(time.time() * 1000)

    annotations = source.annotations
    for key in _SCHEDULED_KEYS if annotations else ():
        scheduled = annotations.get(key) if annotations else None
        if scheduled is not None:
            wrapped.annotations = {k: v for k, v in (annotations or {}).items() if k != key}
            value = _value(scheduled)
            is_number = isinstance(value, int)
            # A datetime is a timestamp to the SDK already; a number must be told.
            aliases[SCHEDULED_ENQUEUE_TIME] = (
                {"TYPE": "TIMESTAMP", "VALUE": value} if is_number else value
            )
            break

    wrapped.application_properties = {**names, **aliases} if names else aliases
    return wrapped


def wrap_encoded(payload: bytes, path: str) -> tuple[bytes, Any, str | None]:
    """An encoded message as it waits in a backlog queue for `path`, its id, and its session.

    Raises:
        ReservedPropertyError: if the message uses one of the aliases' names itself.
    """
    message = Message.parse(payload)
    names = message.application_properties or {}
    check_reserved(names)
    aliases: dict[Any, Any] = {PATH: path}
    changes: dict[str, Any] = {}

    properties = message.properties or Properties()
    header = message.header
    changed = properties
    session: str | None = None
    if properties.group_id is not None:
        session = aliases[SESSION_ID] = str(properties.group_id)
        changed = replace(changed, group_id=None)
    if header is not None and header.ttl:
        aliases[TIME_TO_LIVE] = Long(header.ttl)
        changes["header"] = replace(header, ttl=None)
        changed = replace(changed, absolute_expiry_time=None)
    annotations = message.message_annotations or {}
    if annotations.get(_X_OPT_SCHEDULED) is not None:
        aliases[SCHEDULED_ENQUEUE_TIME] = Timestamp(int(annotations[_X_OPT_SCHEDULED]))
        kept = {key: value for key, value in annotations.items() if key != _X_OPT_SCHEDULED}
        changes["message_annotations"] = kept or None
    if changed is not properties:
        changes["properties"] = changed
    changes["application_properties"] = {**names, **aliases}
    return message.replace(**changes).encode(), properties.message_id, session


def wrap_plain(payload: bytes, path: str) -> bytes:
    """As `wrap_encoded`, for a message that is known to have no session and no reserved names.

    If it has no header and no annotations either, only its application properties change: one
    entry is added, and everything else is the same bytes.
    """
    if payload[:4] == _SHORT_PROPERTIES:
        at = 5 + payload[4]
        if payload[at : at + 3] == _DATA:  # most messages: properties, then the body
            return b"".join((payload[:at], _path_section(path), payload[at:]))
    at = 0
    if not payload:  # the SDK writes no body where its value is empty
        return _path_section(path)
    code, start, end = section_at(payload, 0)
    if code == PROPERTIES:
        at = end
        if at == len(payload):
            return payload + _path_section(path)
        code, start, end = section_at(payload, at)
    if code < PROPERTIES:
        return wrap_encoded(payload, path)[0]
    if code != APPLICATION_PROPERTIES:
        return b"".join((payload[:at], _path_section(path), payload[at:]))
    kind = payload[start]
    if kind == 0xC1:
        count, first = payload[start + 2], start + 3
    elif kind == 0xD1:
        count, first = int.from_bytes(payload[start + 5 : start + 9]), start + 9
    else:
        return wrap_encoded(payload, path)[0]
    section = _new_section(count + 2, payload[first:end] + _path_entry(path))
    return b"".join((payload[:at], section, payload[end:]))


@functools.lru_cache(maxsize=1024)
def _path_entry(path: str) -> bytes:
    return encode(PATH) + encode(path)


@functools.lru_cache(maxsize=1024)
def _path_section(path: str) -> bytes:
    return _new_section(2, _path_entry(path))


def _new_section(count: int, entries: bytes) -> bytes:
    head = b"\x00\x53\x74\xd1"
    return head + (len(entries) + 4).to_bytes(4) + count.to_bytes(4) + entries


class AliasError(ValueError):
    """The aliases of a message in a backlog queue cannot be read.

    Attributes:
        reason: `NoDestination` or `WrongAliasType`, as it stands on the dead letter.
    """

    def __init__(self, reason: str, description: str) -> None:
        self.reason = reason
        super().__init__(description)


def read_aliases(message: Message) -> Aliases:
    """What the aliases of a message in a backlog queue say.

    Raises:
        AliasError: if the destination is missing, or an alias has another AMQP type.
    """
    names = message.application_properties or {}
    path = names.get(PATH)
    if path is None or path == "":
        raise AliasError("NoDestination", f"the message has no {PATH}")
    session = names.get(SESSION_ID)
    ttl = names.get(TIME_TO_LIVE)
    scheduled = names.get(SCHEDULED_ENQUEUE_TIME)
    for name, value, is_right in (
        (PATH, path, type(path) is str),
        (SESSION_ID, session, session is None or type(session) is str),
        (TIME_TO_LIVE, ttl, ttl is None or type(ttl) in (int, Long)),
        (SCHEDULED_ENQUEUE_TIME, scheduled, scheduled is None or type(scheduled) is Timestamp),
    ):
        if not is_right:
            raise AliasError("WrongAliasType", f"{name} is of type {type(value).__name__}")
    return Aliases(
        path=str(path),
        session_id=session,
        time_to_live=None if ttl is None else int(ttl),
        scheduled_enqueue_time=None if scheduled is None else int(scheduled),
    )


def restore(message: Message, aliases: Aliases, *, now: int, ttl: int | None = None) -> Message:
    """The message for its destination: the inverse of `wrap`.

    Args:
        message: The message as it was in the backlog queue.
        aliases: What `read_aliases` said of it.
        now: The time, in milliseconds since 1970: with a time to live goes an absolute expiry.
        ttl: The time to live to set instead of the full one, in milliseconds.
    """
    names = message.application_properties or {}
    kept = {name: value for name, value in names.items() if name not in RESERVED}
    changes: dict[str, Any] = {"application_properties": kept or None}
    properties = message.properties or Properties()
    changed = properties
    if aliases.session_id is not None:
        changed = replace(changed, group_id=aliases.session_id)
    ttl = aliases.time_to_live if ttl is None else ttl
    if ttl is not None:
        # A header holds 49 days; what lives longer has it in its absolute expiry alone.
        changes["header"] = replace(message.header or Header(), ttl=min(ttl, _MAX_UINT))
        changed = replace(changed, absolute_expiry_time=min(now + ttl, _MAX_EXPIRY))
    if changed is not properties:
        changes["properties"] = changed
    if aliases.scheduled_enqueue_time is not None:
        changes["message_annotations"] = {
            **(message.message_annotations or {}),
            _X_OPT_SCHEDULED: Timestamp(aliases.scheduled_enqueue_time),
        }
    return message.replace(**changes)
