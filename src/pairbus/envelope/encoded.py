"""Encoded messages of a backlog queue: cut the aliases out, and put their values back.

The syphon reads the values of the aliases and a few numbers that the broker wrote into the
annotations; it forwards everything else byte for byte. So a message is cut at its sections and
entries (`pairbus.envelope.cutting`) and never decoded as a whole, which would take ten times as
long.

`open_message` removes the broker's additions and the aliases from a received message; `restore`
adds the original fields. In the result:

* The body, the footer, each application property, each annotation of the sender and each field of
  the properties section are the bytes that the sender wrote.
* Rewritten are the header (durable, priority, ttl; the fields of the last delivery are dropped)
  and, where an alias is set, group-id, absolute-expiry-time and x-opt-scheduled-enqueue-time.
* Dropped are the annotations of the broker and the delivery annotations in front of the body, which
  are for one hop.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.errors import ProtocolError
from pairbus.amqp.types import Symbol, Timestamp, UInt
from pairbus.envelope.cutting import (
    ANNOTATIONS,
    APPLICATION,
    BODIES,
    DELIVERY_ANNOTATIONS,
    EXPIRY,
    GROUP_ID,
    HEADER,
    PROPERTIES,
    SCHEDULED,
    SHORT_PROPERTIES,
    TTL,
    each_section,
    entries,
    make_map,
    replace_fields,
    sections,
    skip,
)
from pairbus.envelope.fields import (
    ALIASES,
    Aliases,
    AliasTypeError,
    Fields,
    parse_alias,
)
from pairbus.envelope.fields import restore as restore_fields
from pairbus.envelope.prefix import NUMBERS, Head, Place, Prefixes

_ALIASES: Final = {name.encode(): (index, name) for index, name in enumerate(ALIASES)}

# Annotations that a broker adds to a message that it delivers; no sender sets them.
_SEQUENCE, _ENQUEUED, _LOCKED, _STATE = 0, 1, 2, 3
_BROKER_ANNOTATIONS: Final = {
    b"x-opt-sequence-number": _SEQUENCE,
    b"x-opt-enqueued-time": _ENQUEUED,
    b"x-opt-locked-until": _LOCKED,
    b"x-opt-message-state": _STATE,
    b"x-opt-enqueue-sequence-number": 4,
    b"x-opt-enqueued-sequence-number": 4,
    b"x-opt-deadletter-source": 5,
    b"x-opt-lock-token": 6,
    b"x-opt-via-partition-key": 7,
}

_PROPERTIES_START, _APPLICATION_START = b"\x00\x53\x73", b"\x00\x53\x74"
_NO_NUMBERS: list[int | None] = [None] * 4
_NO_ALIASES: list[Any] = [None] * 5
_new = tuple.__new__


class Opened(NamedTuple):
    """A received message, taken apart. Times are milliseconds since 1970."""

    message: bytes  # without the annotations of the broker, and without the aliases
    sequence_number: int | None
    enqueued_time: int | None
    locked_until: int | None
    state: int
    delivery_count: int
    path: str | None = None
    session_id: str | None = None
    time_to_live: int | None = None
    scheduled: int | None = None
    problem: str | None = None  # which alias has a wrong type, or what cannot be decoded
    properties: tuple[int, int] | None = None  # where they are in the payload


def open_message(payload: bytes, *, aliases: bool = True) -> Opened:
    """Take a received message apart.

    Of a message that its sender encoded wrongly, only what the broker wrote is read, and `problem`
    is set: one such message must not keep the others from being read.

    Args:
        payload: The message as a broker delivered it.
        aliases: Whether to cut the aliases out, and to return their values.

    Raises:
        ValueError: what the broker wrote cannot be read.
    """
    head = _prefixes.read(payload)
    if head is None:
        return _open_slowly(payload, aliases)
    section, start, number, enqueued, locked, state, count = head
    try:
        pos = start
        properties = None
        values: Sequence[Any] = _NO_ALIASES
        application = b""
        if payload[pos : pos + 4] == SHORT_PROPERTIES:
            end = pos + 5 + payload[pos + 4]
            properties = (pos + 3, end)
            pos = end
        front = payload[start:pos]
        if payload[pos : pos + 3] == _APPLICATION_START:
            end = skip(payload, pos + 3)
            application = payload[pos:end]
            if aliases and b"x-ms-" in application:
                application, values = _split_aliases(application[3:])
            pos = end
        if payload[pos : pos + 3] not in BODIES:
            return _open_slowly(payload, aliases)
    except (IndexError, ValueError):
        return _open_slowly(payload, aliases)
    path, session, ttl, scheduled, problem = values
    # The constructor of the named tuple would take three times as long.
    return _new(
        Opened,
        (b"".join((section, front, application, payload[pos:])), number, enqueued, locked, state,
         count, path, session, ttl, scheduled, problem, properties),
    )  # fmt: skip


def restore(
    message: bytes,
    *,
    session_id: str | None = None,
    time_to_live: int | None = None,
    scheduled: int | None = None,
    now: int,
    expires_at: int | None = None,
) -> bytes:
    """Return the message for its destination, with the values of the aliases in their fields.

    Args:
        message: The message as `open_message` returned it.
        session_id: The session id, for group-id.
        time_to_live: The time to live in milliseconds, for the header.
        scheduled: The scheduled enqueue time in milliseconds since 1970, for the annotation.
        now: The time of forwarding, in milliseconds since 1970.
        expires_at: The original expiry; see `pairbus.envelope.fields.restore`.
    """
    if session_id is None and time_to_live is None and scheduled is None:
        return message
    aliases = Aliases("", session_id, time_to_live, scheduled)
    fields = restore_fields(Fields(), aliases, now=now, expires_at=expires_at)
    found, body = sections(message)
    changed: dict[int, bytes] = {}
    if fields.ttl is not None:
        ttl = {TTL: encode(UInt(fields.ttl))}
        changed[HEADER] = replace_fields(HEADER, message, found.get(HEADER), ttl)
    if fields.scheduled_enqueue_time is not None:
        kept = [
            message[pos:after]
            for key, pos, _, after in entries(message, *found[ANNOTATIONS])
            if key != SCHEDULED
        ] if ANNOTATIONS in found else []  # fmt: skip
        time = Timestamp(fields.scheduled_enqueue_time)
        entry = encode(Symbol(SCHEDULED.decode())) + encode(time)
        changed[ANNOTATIONS] = make_map(ANNOTATIONS, [*kept, entry])
    values: dict[int, bytes] = {}
    if fields.group_id is not None:
        values[GROUP_ID] = encode(fields.group_id)
    if fields.absolute_expiry_time is not None:
        values[EXPIRY] = encode(Timestamp(fields.absolute_expiry_time))
    if values:
        changed[PROPERTIES] = replace_fields(PROPERTIES, message, found.get(PROPERTIES), values)
    parts: list[bytes] = []
    for code in (HEADER, ANNOTATIONS, PROPERTIES, APPLICATION):
        if code in changed:
            parts.append(changed[code])
        elif code in found:
            parts.append(b"\x00\x53%c" % code + message[slice(*found[code])])
    parts.append(message[body:])
    return b"".join(parts)


# -- opening ------------------------------------------------------------------------------------


def _open_slowly(payload: bytes, aliases: bool) -> Opened:
    """Open a message of any form, section by section."""
    try:
        return _open_sections(payload, aliases)
    except (ValueError, IndexError, ProtocolError) as error:
        for code, start, end in each_section(payload):
            if code == ANNOTATIONS:
                _, (number, enqueued, locked, state) = _split_annotations(payload, start, end)
                return Opened(
                    payload[end:], number, enqueued, locked, state or 0, 0,
                    problem=f"The message cannot be read: {error}",
                )  # fmt: skip
        raise  # no broker delivered this


def _open_sections(payload: bytes, aliases: bool) -> Opened:
    found, body = sections(payload)
    parts: list[bytes] = []
    header, delivery_count = b"", 0
    if HEADER in found:
        header, delivery_count = _split_header(payload[slice(*found[HEADER])])
        parts.append(header)
    numbers: Sequence[int | None] = _NO_NUMBERS
    place = found.get(ANNOTATIONS)
    if place is not None:
        kept, numbers = _split_annotations(payload, *place)
        parts.append(kept)
        if not kept and _prefixes.is_worth_it():
            _learn_prefix(payload, found, header, delivery_count, numbers)
    properties = found.get(PROPERTIES)
    if properties is not None:
        parts.append(_PROPERTIES_START + payload[slice(*properties)])
    values: Sequence[Any] = _NO_ALIASES
    place = found.get(APPLICATION)
    if place is not None:
        raw = payload[slice(*place)]
        section = _APPLICATION_START + raw
        if aliases and b"x-ms-" in raw:
            section, values = _split_aliases(raw)
        parts.append(section)
    parts.append(payload[body:])
    number, enqueued, locked, state = numbers
    path, session, ttl, scheduled, problem = values
    return Opened(
        b"".join(parts), number, enqueued, locked, state or 0, delivery_count,
        path, session, ttl, scheduled, problem, properties,
    )  # fmt: skip


# A cache: the headers in a queue differ only in the delivery count.
_header_cache: dict[bytes, tuple[bytes, int]] = {}


def _split_header(raw: bytes) -> tuple[bytes, int]:
    """Return the header section to forward (durable, priority, ttl), and the delivery count."""
    known = _header_cache.get(raw)
    if known is None:
        fields = [*decode(raw, 0)[0], None, None, None, None, None][:5]
        sent = [fields[0], fields[1], fields[2]]
        section = b"" if sent == [None] * 3 else b"\x00\x53\x70" + encode(sent)
        known = (section, int(fields[4] or 0))
        if len(_header_cache) > 1000:
            _header_cache.clear()
        _header_cache[raw] = known
    return known


# A cache: small application properties are often the same in many messages.
_alias_cache: dict[bytes, tuple[bytes, list[Any]]] = {}


def _split_aliases(raw: bytes) -> tuple[bytes, list[Any]]:
    """Return the section without the aliases, then their four values and a problem, if any."""
    known = _alias_cache.get(raw)
    if known is None:
        known = _cut_aliases(raw)
        if len(raw) <= 512:
            if len(_alias_cache) >= 1000:
                _alias_cache.clear()
            _alias_cache[raw] = known
    return known


def _cut_aliases(buf: bytes) -> tuple[bytes, list[Any]]:
    values: list[Any] = [None] * 5
    kept: list[bytes] = []
    for key, pos, value, after in entries(buf, 0, len(buf)):
        alias = _ALIASES.get(key)
        if alias is None:
            kept.append(buf[pos:after])
            continue
        index, name = alias
        try:
            if index < 2 and buf[value] == 0xA1:  # a short string
                values[index] = buf[value + 2 : after].decode()
            else:
                values[index] = parse_alias(name, decode(buf, value)[0])
        except AliasTypeError as exc:
            values[4] = str(exc)
        except (UnicodeDecodeError, ProtocolError):
            values[4] = f"{name} cannot be decoded"
    return make_map(APPLICATION, kept), values


def _split_annotations(buf: bytes, start: int, end: int) -> tuple[bytes, list[int | None]]:
    """Return the section of the sender's annotations, and the numbers that the broker added."""
    numbers: list[int | None] = [None] * 4
    kept: list[bytes] = []
    for key, pos, value, after in entries(buf, start, end):
        index = _BROKER_ANNOTATIONS.get(key)
        if index is None:
            kept.append(buf[pos:after])
        elif index <= _STATE:
            numbers[index] = _number(buf, value)
    return make_map(ANNOTATIONS, kept), numbers


def _number(buf: bytes, pos: int) -> int | None:
    code = buf[pos]
    if code in (0x81, 0x83):
        return int.from_bytes(buf[pos + 1 : pos + 9], "big", signed=True)
    value = decode(buf, pos)[0]
    return int(value) if isinstance(value, int) else None


# -- the broker's sections in front of a message ------------------------------------------------

_prefixes = Prefixes()


def _learn_prefix(
    payload: bytes,
    found: dict[int, tuple[int, int]],
    header: bytes,
    delivery_count: int,
    numbers: Sequence[int | None],
) -> None:
    """Remember how the broker writes the front of its messages, to recognise the next one."""
    pos = 0
    places: list[Place] = []
    for code in (HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS):  # in this order, without gaps
        if code in found:
            start, end = found[code]
            if start != pos + 3:
                return
            pos = end
            if code == HEADER:
                places += _delivery_count_place(payload, start)
            else:
                places += _annotation_places(payload, start, end)
    head = Head(
        header, pos, numbers[_SEQUENCE], numbers[_ENQUEUED], numbers[_LOCKED],
        numbers[_STATE] or 0, delivery_count,
    )  # fmt: skip
    _prefixes.learn(payload, head, places)


def _delivery_count_place(buf: bytes, pos: int) -> list[Place]:
    """Return the place of the delivery count in a header, if there is one."""
    if buf[pos] != 0xC0 or buf[pos + 2] < 5:
        return []
    pos += 3
    for _ in range(4):
        pos = skip(buf, pos)
    form = NUMBERS.get(buf[pos])
    return [Place(pos + 1, form, 6)] if form else []


def _annotation_places(buf: bytes, start: int, end: int) -> list[Place]:
    """Return the places of the broker's values: numbers to read, and values to ignore."""
    places = []
    for key, _, value, after in entries(buf, start, end):
        index = _BROKER_ANNOTATIONS.get(key)
        form = NUMBERS.get(buf[value])
        if index is not None and form is not None:
            if index <= _STATE:
                places.append(Place(value + 1, form, index + 2))
            else:
                places.append(Place(value + 1, f"{after - value - 1}x"))
        elif buf[value] == 0x98:
            places.append(Place(value + 1, "16x"))
    return places
