"""Wraps the encoded messages of a batch for a backlog queue.

The SDK encodes a message when it is added to a batch, and the object may have changed since. So the
bytes are wrapped, not the object; sections are cut and not decoded, as in
`pairbus.envelope.encoded`.
"""

import functools
from typing import Any, NamedTuple

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.types import Long, Timestamp
from pairbus.envelope.cutting import (
    ANNOTATIONS,
    APPLICATION,
    BODIES,
    CREATED,
    EXPIRY,
    GROUP_ID,
    HEADER,
    MESSAGE_ID,
    NULL,
    PROPERTIES,
    SCHEDULED,
    SHORT_PROPERTIES,
    TTL,
    append_entries,
    entries,
    list_fields,
    make_list,
    make_map,
    sections,
)
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


class Wrapped(NamedTuple):
    """An encoded message for a backlog queue, its id and its session id."""

    message: bytes
    message_id: Any
    session_id: str | None


def wrap(payload: bytes, path: str, *, now: int, has_session: bool = True) -> Wrapped:
    """Return an encoded message as it waits in a backlog queue for `path`.

    Args:
        payload: The encoded message.
        path: The destination.
        now: Milliseconds since 1970; see `pairbus.envelope.fields.wrap`.
        has_session: False if the message is known to have no session id and no reserved names, and
            its id is not needed. Most messages are then wrapped in one copy.

    Raises:
        ReservedPropertyError: the message uses the name of an alias itself.
    """
    if not has_session and payload[:4] == SHORT_PROPERTIES:
        at = 5 + payload[4]
        if payload[at : at + 3] in BODIES:
            section = make_map(APPLICATION, [_path_entry(path)])
            return Wrapped(b"".join((payload[:at], section, payload[at:])), None, None)
    found, body = sections(payload)
    header = list_fields(payload, found.get(HEADER))
    properties = list_fields(payload, found.get(PROPERTIES))
    annotations = found.get(ANNOTATIONS)
    kept, scheduled = _without_schedule(payload, annotations) if annotations else ([], None)
    original = Fields(
        group_id=_value(properties, GROUP_ID),
        ttl=_value(header, TTL),
        absolute_expiry_time=_value(properties, EXPIRY),
        creation_time=_value(properties, CREATED),
        scheduled_enqueue_time=scheduled,
    )
    waiting, aliases = wrap_fields(original, path, now=now)

    parts: list[bytes] = []
    if aliases.time_to_live is not None:
        header[TTL] = NULL
        properties += [NULL] * (CREATED + 1 - len(properties))
        properties[EXPIRY] = NULL
        properties[CREATED] = encode(Timestamp(waiting.creation_time or 0))
    if aliases.session_id is not None:
        properties[GROUP_ID] = NULL
    if any(value != NULL for value in header):
        parts.append(make_list(HEADER, header))
    if kept:
        parts.append(make_map(ANNOTATIONS, kept))
    if properties:
        parts.append(make_list(PROPERTIES, properties))
    place = found.get(APPLICATION)
    if place is not None:
        raw = payload[slice(*place)]
        if b"x-ms-" in raw:
            check_reserved({key for key, _, _, _ in entries(raw, 0, len(raw))})
    parts.append(append_entries(APPLICATION, payload, place, _entries(aliases)))
    parts.append(payload[body:])
    return Wrapped(b"".join(parts), _value(properties, MESSAGE_ID), aliases.session_id)


def _without_schedule(buf: bytes, place: tuple[int, int]) -> tuple[list[bytes], int | None]:
    """Return the annotations without the scheduled enqueue time, and that time in milliseconds."""
    kept: list[bytes] = []
    scheduled: int | None = None
    for key, pos, value, after in entries(buf, *place):
        time = decode(buf, value)[0] if key == SCHEDULED else None
        if isinstance(time, int):
            scheduled = int(time)
        else:
            kept.append(buf[pos:after])
    return kept, scheduled


def _value(fields: list[bytes], index: int) -> Any:
    """A field, decoded; None if the list is too short."""
    return decode(fields[index], 0)[0] if index < len(fields) else None


def _entries(aliases: Aliases) -> list[bytes]:
    found = [_path_entry(aliases.path)]
    if aliases.session_id is not None:
        found.append(encode(SESSION_ID) + encode(str(aliases.session_id)))
    if aliases.time_to_live is not None:
        found.append(encode(TIME_TO_LIVE) + encode(Long(aliases.time_to_live)))
    if aliases.scheduled_enqueue_time is not None:
        time = Timestamp(aliases.scheduled_enqueue_time)
        found.append(encode(SCHEDULED_ENQUEUE_TIME) + encode(time))
    return found


@functools.lru_cache(maxsize=1024)
def _path_entry(path: str) -> bytes:
    return encode(PATH) + encode(path)
