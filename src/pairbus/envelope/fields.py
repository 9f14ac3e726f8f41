"""The envelope: how a message waits in a backlog queue, and how it is restored.

A backlog queue holds messages for many entities. It has no sessions, and nothing may expire or be
held back in it. So `wrap` moves the fields that would do that into *aliases*, which are application
properties, and `restore` moves them back:

| alias                          | AMQP type | in place of                                    |
|--------------------------------|-----------|------------------------------------------------|
| `x-ms-path`                    | string    | the link's target; always set                  |
| `x-ms-sessionid`               | string    | properties.group-id                            |
| `x-ms-timetolive`              | long, ms  | header.ttl and properties.absolute-expiry-time |
| `x-ms-scheduledenqueuetimeutc` | timestamp | annotation x-opt-scheduled-enqueue-time        |

The old .NET client wrote the time to live as a `com.microsoft:timespan` (ticks of 100 ns), which is
read too. All other fields and sections travel unchanged.

These functions work on plain records and know no encoding. Two adapters read the records from
messages and write them back: `pairbus.envelope.sdk` for messages of azure-servicebus, and
`pairbus.envelope.encoded` for encoded messages, whose sections are cut and not decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from pairbus.amqp.types import Described, Long, Timestamp

PATH: Final = "x-ms-path"
SESSION_ID: Final = "x-ms-sessionid"
TIME_TO_LIVE: Final = "x-ms-timetolive"
SCHEDULED_ENQUEUE_TIME: Final = "x-ms-scheduledenqueuetimeutc"
ALIASES: Final = (PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED_ENQUEUE_TIME)
RESERVED: Final = frozenset(ALIASES) | {name.encode() for name in ALIASES}

# Reasons for which a message of a backlog queue is dead-lettered instead of restored.
NO_DESTINATION: Final = "NoDestination"
WRONG_ALIAS_TYPE: Final = "WrongAliasType"
EXPIRED: Final = "ExpiredInBacklog"

MAX_TTL: Final = 0xFFFFFFFF  # a header holds 49 days
MAX_EXPIRY: Final = 253402300799000  # the last second of the year 9999
_TIMESPAN: Final = "com.microsoft:timespan"
_TICKS_PER_MILLISECOND: Final = 10_000


class Aliases(NamedTuple):
    """The values of the aliases. Times are milliseconds."""

    path: str
    session_id: str | None = None
    time_to_live: int | None = None
    scheduled_enqueue_time: int | None = None


class Fields(NamedTuple):
    """The fields of a message that the envelope moves. Times are milliseconds."""

    group_id: str | None = None
    ttl: int | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    scheduled_enqueue_time: int | None = None


class AliasTypeError(ValueError):
    """An alias does not have the AMQP type that the envelope defines; the text names both."""


def wrap(fields: Fields, path: str, *, now: int) -> tuple[Fields, Aliases]:
    """Return the fields as they are in a backlog queue, and the aliases.

    Args:
        fields: The fields of the original message.
        path: The destination.
        now: Milliseconds since 1970. A message with a time to live gets a creation time, as the
            SDK would have set it.
    """
    ttl = fields.ttl or None
    return (
        Fields(
            ttl=None if ttl else fields.ttl,
            absolute_expiry_time=None if ttl else fields.absolute_expiry_time,
            creation_time=fields.creation_time or (now if ttl else None),
        ),
        Aliases(path, fields.group_id, ttl, fields.scheduled_enqueue_time),
    )


def restore(fields: Fields, aliases: Aliases, *, now: int, expires_at: int | None = None) -> Fields:
    """Return the fields for the destination: the inverse of `wrap`.

    Args:
        fields: The fields in the backlog queue.
        aliases: The values of the aliases; a time to live may be less than the original one.
        now: The time of forwarding, in milliseconds since 1970.
        expires_at: The original expiry, where the time in the backlog is deducted. Left out, the
            absolute expiry time is `now` plus the time to live.
    """
    ttl, expiry = fields.ttl, fields.absolute_expiry_time
    if aliases.time_to_live is not None:
        ttl = min(max(aliases.time_to_live, 0), MAX_TTL)
        expiry = now + aliases.time_to_live if expires_at is None else expires_at
        expiry = min(max(expiry, 0), MAX_EXPIRY)
    return Fields(
        group_id=fields.group_id if aliases.session_id is None else aliases.session_id,
        ttl=ttl,
        absolute_expiry_time=expiry,
        creation_time=fields.creation_time,
        scheduled_enqueue_time=(
            fields.scheduled_enqueue_time
            if aliases.scheduled_enqueue_time is None
            else aliases.scheduled_enqueue_time
        ),
    )


def check_reserved(names: Iterable[object] | Mapping[Any, Any] | None) -> None:
    """Refuse application properties that use the name of an alias.

    Raises:
        ReservedPropertyError: there are any.
    """
    if not names:
        return
    used = RESERVED.intersection(names)
    if used:
        from pairbus.exceptions import ReservedPropertyError  # it needs azure-servicebus

        raise ReservedPropertyError(
            sorted(name.decode() if isinstance(name, bytes) else str(name) for name in used)
        )


def parse_alias(name: str, value: Any) -> str | int:
    """Return the value of an alias as a record holds it: text, or milliseconds.

    Args:
        name: One of `ALIASES`.
        value: The value with its AMQP type, as `pairbus.amqp` decodes it.

    Raises:
        AliasTypeError: the value has a different type.
    """
    kind = type(value)
    if name in (PATH, SESSION_ID):
        if kind is str:
            return str(value)
    elif name == TIME_TO_LIVE:
        if kind is int or kind is Long:
            return int(value)
        if kind is Described and value.descriptor == _TIMESPAN:
            ticks = value.value
            if type(ticks) in (int, Long):
                return int(ticks) // _TICKS_PER_MILLISECOND
    elif kind is Timestamp:
        return int(value)
    shown = "null" if value is None else f"of type {kind.__name__}"
    raise AliasTypeError(f"{name} is {shown}")


def peek_aliases(properties: Mapping[Any, Any] | None) -> tuple[str | None, str | None]:
    """Return destination and session id of a message in a backlog queue, for display.

    Keys and values may be text or bytes, as the SDK and the bulk client return them. A value of
    a wrong type is shown as well, because an operator has to find it.
    """
    shown: list[str | None] = []
    for name in (PATH, SESSION_ID):
        value = (properties or {}).get(name)
        if value is None:
            value = (properties or {}).get(name.encode())
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        shown.append(None if value is None else str(value))
    return shown[0], shown[1]
