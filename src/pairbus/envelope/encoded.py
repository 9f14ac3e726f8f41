"""Take an encoded message apart at its sections and put it together again, without decoding it.

An AMQP message (part 3, section 3.2) is a row of described sections, each with its length in
front. A mover needs four numbers out of the annotations, the aliases out of the application
properties, and must carry everything else byte for byte: so this walks over the sections, cuts
out what a broker or an envelope put there, and copies the rest. It costs a few microseconds; a
decoded message costs ten times that.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.types import Symbol, Timestamp, UInt
from pairbus.envelope.prefix import NUMBERS, Head, Place, Prefixes

__all__ = ["ALIAS_NAMES", "Opened", "compose", "join", "open_message", "sections", "skip"]

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION = 0x70, 0x71, 0x72, 0x73, 0x74

#: The aliases of the envelope: path, session id, time to live, scheduled time.
ALIAS_NAMES = (
    b"x-ms-path",
    b"x-ms-sessionid",
    b"x-ms-timetolive",
    b"x-ms-scheduledenqueuetimeutc",
)
_ALIASES = {name: index for index, name in enumerate(ALIAS_NAMES)}

# What a broker says of a message that it delivers, and no sender gives it.
_SEQUENCE, _ENQUEUED, _LOCKED, _STATE = 0, 1, 2, 3
_BROKER = {
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

_SCHEDULED = Symbol("x-opt-scheduled-enqueue-time")
_FIXED = {4: 1, 5: 2, 6: 3, 7: 5, 8: 9, 9: 17}


class Opened(NamedTuple):
    """A delivered message, taken apart. Times are milliseconds since 1970."""

    message: bytes  # what to send on: without the broker's marks, and without the aliases
    sequence_number: int | None
    enqueued_time: int | None
    locked_until: int | None
    state: int
    delivery_count: int
    path: str | None = None
    session_id: str | None = None
    time_to_live: int | None = None
    scheduled: int | None = None
    problem: str | None = None
    properties: tuple[int, int] | None = None  # where they are in the payload


def skip(buf: bytes, pos: int) -> int:
    """The position after the value that begins at `pos`."""
    code = buf[pos]
    if code == 0:
        return skip(buf, skip(buf, pos + 1))
    kind = code >> 4
    width = _FIXED.get(kind)
    if width is not None:
        return pos + width
    if kind in (0xA, 0xC, 0xE):
        return pos + 2 + buf[pos + 1]
    if kind in (0xB, 0xD, 0xF):
        return pos + 5 + int.from_bytes(buf[pos + 1 : pos + 5], "big")
    raise ValueError(f"no AMQP value begins with 0x{code:02x}")


def sections(buf: bytes) -> tuple[dict[int, tuple[int, int]], int]:
    """Where each section before the body begins and ends, and where the body begins."""
    found: dict[int, tuple[int, int]] = {}
    pos, length = 0, len(buf)
    while pos < length:
        if buf[pos] != 0:
            raise ValueError("a section is a described value")
        if buf[pos + 1] == 0x53:
            code, value = buf[pos + 2], pos + 3
        else:
            descriptor, value = decode(buf, pos + 1)
            code = _BY_NAME.get(str(descriptor), descriptor if isinstance(descriptor, int) else 0)
        if not HEADER <= code <= APPLICATION:
            break
        end = skip(buf, value)
        found[code] = (value, end)
        pos = end
    return found, pos


_BY_NAME = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION,
}

# A queue's headers are alike but for the delivery count: the few that there are are kept.
_headers: dict[bytes, tuple[bytes, int]] = {}


def _header(raw: bytes) -> tuple[bytes, int]:
    """The header section to send on (durable, priority, ttl), and the delivery count."""
    known = _headers.get(raw)
    if known is None:
        fields = [*decode(raw, 0)[0], None, None, None, None, None][:5]
        sent = [fields[0], fields[1], fields[2]]
        section = b"" if sent == [None] * 3 else b"\x00\x53\x70" + encode(sent)
        known = (section, int(fields[4] or 0))
        if len(_headers) > 1000:
            _headers.clear()
        _headers[raw] = known
    return known


def _map_start(buf: bytes, pos: int) -> tuple[int, int]:
    """The position of a map's first key, and how many values it holds."""
    if buf[pos] == 0xC1:
        return pos + 3, buf[pos + 2]
    if buf[pos] == 0xD1:
        return pos + 9, int.from_bytes(buf[pos + 5 : pos + 9], "big")
    raise ValueError("not a map")


def _map(section: int, pieces: list[bytes], count: int) -> bytes:
    if not count:
        return b""
    body = b"".join(pieces)
    if len(body) < 255 and count < 256:
        return b"\x00\x53%c\xc1%c%c" % (section, len(body) + 1, count) + body
    return (
        b"\x00\x53%c\xd1" % section
        + (len(body) + 4).to_bytes(4, "big")
        + count.to_bytes(4, "big")
        + body
    )


def _number(buf: bytes, pos: int) -> int | None:
    code = buf[pos]
    if code in (0x81, 0x83):
        return int.from_bytes(buf[pos + 1 : pos + 9], "big", signed=True)
    value = decode(buf, pos)[0]
    return int(value) if isinstance(value, int) else None


def open_message(payload: bytes, *, aliases: bool = True) -> Opened:
    """Take a delivered message apart.

    Args:
        payload: the message as a broker delivered it.
        aliases: cut the aliases of the envelope out of it too, and give what they say.
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
        if payload[pos : pos + 4] == _SHORT_P:
            end = pos + 5 + payload[pos + 4]
            properties = (pos + 3, end)
            pos = end
        front = payload[start:pos]
        if payload[pos : pos + 3] == _A:
            end = skip(payload, pos + 3)
            application = payload[pos:end]
            if aliases and b"x-ms-" in application:
                application, values = _aliases(application[3:])
            pos = end
        if payload[pos : pos + 3] not in _BODIES:
            return _open_slowly(payload, aliases)
    except IndexError:
        return _open_slowly(payload, aliases)
    path, session, ttl, scheduled, problem = values
    # A tuple of all fields, as the class itself would make it at three times the price.
    return _new(
        Opened,
        (b"".join((section, front, application, payload[pos:])), number, enqueued, locked, state,
         count, path, session, ttl, scheduled, problem, properties),
    )  # fmt: skip


def _open_slowly(payload: bytes, aliases: bool) -> Opened:
    """The same for a message of any form, section by section."""
    found, body = sections(payload)
    parts: list[bytes] = []
    header, delivery_count = b"", 0
    if HEADER in found:
        start, end = found[HEADER]
        header, delivery_count = _header(payload[start:end])
        parts.append(header)
    marks: Sequence[int | None] = _NO_MARKS
    place = found.get(ANNOTATIONS)
    if place is not None:
        kept, marks = _marks(payload, *place)
        parts.append(kept)
        if not kept and _prefixes.is_worth_it():
            _learn(payload, found, header, delivery_count, marks)
    properties = found.get(PROPERTIES)
    if properties is not None:
        parts.append(_P)
        parts.append(payload[properties[0] : properties[1]])
    values: Sequence[Any] = _NO_ALIASES
    place = found.get(APPLICATION)
    if place is not None:
        start, end = place
        if aliases and payload.find(b"x-ms-", start, end) >= 0:
            section, values = _aliases(payload[start:end])
            parts.append(section)
        else:
            parts.append(_A)
            parts.append(payload[start:end])
    parts.append(payload[body:])
    return Opened(
        b"".join(parts),
        marks[_SEQUENCE],
        marks[_ENQUEUED],
        marks[_LOCKED],
        marks[_STATE] or 0,
        delivery_count,
        values[0],
        values[1],
        values[2],
        values[3],
        values[4],
        properties,
    )


_prefixes = Prefixes()
_new = tuple.__new__
_P, _A = b"\x00\x53\x73", b"\x00\x53\x74"
_SHORT_P = _P + b"\xc0"
_BODIES = frozenset({b"\x00\x53\x75", b"\x00\x53\x76", b"\x00\x53\x77"})


def _learn(
    payload: bytes,
    found: dict[int, tuple[int, int]],
    header: bytes,
    delivery_count: int,
    marks: Sequence[int | None],
) -> None:
    """Keep how the broker writes the front of its messages, to know it in the next one."""
    pos = 0
    places: list[Place] = []
    for code in (HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS):  # in this order, and nothing between
        if code in found:
            start, end = found[code]
            if start != pos + 3:
                return
            pos = end
            if code == HEADER:
                places += _count_place(payload, start)
            else:
                places += _mark_places(payload, start, end)
    head = Head(
        header, pos, marks[_SEQUENCE], marks[_ENQUEUED], marks[_LOCKED], marks[_STATE] or 0,
        delivery_count,
    )  # fmt: skip
    _prefixes.learn(payload, head, places)


def _count_place(buf: bytes, pos: int) -> list[Place]:
    """Where a header has its delivery count."""
    if buf[pos] != 0xC0 or buf[pos + 2] < 5:
        return []
    pos += 3
    for _ in range(4):
        pos = skip(buf, pos)
    form = NUMBERS.get(buf[pos])
    return [Place(pos + 1, form, 6)] if form else []


def _mark_places(buf: bytes, start: int, end: int) -> list[Place]:
    """Where annotations have the numbers that we want, and those that differ for nothing."""
    pos, _ = _map_start(buf, start)
    places = []
    while pos < end:
        value = skip(buf, pos)
        after = skip(buf, value)
        mark = _BROKER.get(buf[pos + 2 : value]) if buf[pos] == 0xA3 else None
        code = buf[value]
        form = NUMBERS.get(code)
        if mark is not None and form is not None:
            if mark <= _STATE:
                places.append(Place(value + 1, form, mark + 2))
            else:
                places.append(Place(value + 1, f"{after - value - 1}x"))
        elif code == 0x98:
            places.append(Place(value + 1, "16x"))
        pos = after
    return places


_NO_MARKS: list[int | None] = [None] * 8
_NO_ALIASES: list[Any] = [None] * 5

# Application properties are often the same in many messages: a few small ones are kept.
_known: dict[bytes, tuple[bytes, list[Any]]] = {}


def _aliases(raw: bytes) -> tuple[bytes, list[Any]]:
    """The application properties without the aliases; their values, and what is wrong with them."""
    known = _known.get(raw)
    if known is None:
        values: list[Any] = [None] * 5
        section, values[4] = _without_aliases(raw, 0, len(raw), values)
        known = (section, values)
        if len(raw) <= 512:
            if len(_known) >= 1000:
                _known.clear()
            _known[raw] = known
    return known


def _marks(buf: bytes, start: int, end: int) -> tuple[bytes, list[int | None]]:
    """The annotations that a sender gave, and the broker's marks."""
    marks: list[int | None] = [None] * 8
    pos, _ = _map_start(buf, start)
    kept: list[bytes] = []
    while pos < end:
        value = skip(buf, pos)
        after = skip(buf, value)
        mark = _BROKER.get(buf[pos + 2 : value]) if buf[pos] == 0xA3 else None
        if mark is None:
            kept.append(buf[pos:after])
        elif mark <= _STATE:
            marks[mark] = _number(buf, value)
        pos = after
    return (_map(ANNOTATIONS, kept, 2 * len(kept)) if kept else b""), marks


def _without_aliases(
    buf: bytes, start: int, end: int, values: list[Any]
) -> tuple[bytes, str | None]:
    pos, _ = _map_start(buf, start)
    kept: list[bytes] = []
    problem = None
    while pos < end:
        value = skip(buf, pos)
        after = skip(buf, value)
        code = buf[pos]
        key = buf[pos + 2 : value] if code in (0xA1, 0xA3) else buf[pos + 5 : value]
        alias = _ALIASES.get(key)
        if alias is None:
            kept.append(buf[pos:after])
        else:
            decoded, right = _alias(buf, value, after, alias)
            if right:
                values[alias] = decoded
            else:
                problem = f"{key.decode()} is {_describe(decoded)}"
        pos = after
    return _map(APPLICATION, kept, 2 * len(kept)), problem


def _alias(buf: bytes, value: int, after: int, alias: int) -> tuple[Any, bool]:
    """An alias's value, and whether it has the type that the envelope gives it."""
    code = buf[value]
    if alias < 2:  # a string
        if code == 0xA1:
            return buf[value + 2 : after].decode(), True
        decoded = decode(buf, value)[0]
        return decoded, type(decoded) is str
    decoded = decode(buf, value)[0]
    if alias == 2:  # a long
        return int(decoded) if code in (0x81, 0x55) else decoded, code in (0x81, 0x55)
    return int(decoded) if code == 0x83 else decoded, code == 0x83  # a timestamp


def _describe(value: Any) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"


def compose(
    message: bytes,
    *,
    session_id: str | None = None,
    time_to_live: int | None = None,
    scheduled: int | None = None,
) -> bytes:
    """Put session id, time to live and scheduled time (milliseconds) back where they belong."""
    if session_id is None and time_to_live is None and scheduled is None:
        return message
    found, body = sections(message)

    def raw(code: int) -> Any:
        return decode(message, found[code][0])[0] if code in found else None

    parts: list[bytes] = []
    header = [*(raw(HEADER) or []), None, None, None][:3]
    if time_to_live is not None:
        header[2] = UInt(min(max(time_to_live, 0), 0xFFFFFFFF))
    if header != [None, None, None]:
        parts.append(b"\x00\x53\x70" + encode(header))
    annotations: Any = raw(ANNOTATIONS) or {}
    if scheduled is not None:
        annotations = {**dict(annotations), _SCHEDULED: Timestamp(scheduled)}
    if annotations:
        parts.append(b"\x00\x53\x72" + encode(annotations))
    properties = raw(PROPERTIES)
    if session_id is not None or (time_to_live is not None and properties):
        properties = _properties(properties, session_id, time_to_live)
    if properties is not None:
        parts.append(_P + encode(properties))
    if APPLICATION in found:
        start, end = found[APPLICATION]
        parts.append(_A + message[start:end])
    parts.append(message[body:])
    return b"".join(parts)


def _properties(fields: Any, session_id: str | None, time_to_live: int | None) -> list[Any]:
    """The properties with group-id, and absolute-expiry-time where there is a creation time."""
    full = [*(fields or []), *[None] * 13][:13]
    if session_id is not None:
        full[10] = session_id
    if time_to_live is not None and isinstance(full[9], int):
        # As the SDK writes a message with a time to live: both, or neither.
        full[8] = Timestamp(min(int(full[9]) + time_to_live, 253402300799000))
    while full and full[-1] is None:
        full.pop()
    return full


def join(messages: list[bytes]) -> bytes:
    """The body of a batch transfer (format 0x80013700): one data section per message."""
    parts: list[bytes] = []
    for message in messages:
        size = len(message)
        parts.append(
            b"\x00\x53\x75\xa0%c" % size
            if size < 256
            else b"\x00\x53\x75\xb0" + size.to_bytes(4, "big")
        )
        parts.append(message)
    return b"".join(parts)
