"""Messages as sections (part 3, section 3.2), read one by one and only when asked for.

A message is kept as the bytes of its sections. Reading a section decodes it; everything else stays
as it came. `replace` writes anew only the sections that it is given, and in a map section only the
values that are new: a value taken over from the message keeps its very bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pairbus.amqp.composite import Composite
from pairbus.amqp.decoder import MALFORMED, decode, skip, skip_plain
from pairbus.amqp.encoder import encode, encode_binary, encode_compound
from pairbus.amqp.errors import ProtocolError, decode_error
from pairbus.amqp.types import Described, Symbol

BATCH_FORMAT: Final = 0x80013700
"""The message-format of a batch: a body of Data sections, each a whole message."""

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS = 0x70, 0x71, 0x72
PROPERTIES, APPLICATION_PROPERTIES = 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78

_SECTION_NAMES = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
_u32 = struct.Struct(">I").unpack_from
_pack_u32 = struct.Struct(">I").pack


@dataclass(slots=True)
class Header(Composite):
    """Part 3, section 3.2.1."""

    CODE: ClassVar[int] = HEADER
    NAME: ClassVar[str] = "amqp:header:list"
    WIRE: ClassVar[str] = "boolean ubyte uint boolean uint"
    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int | None = None


@dataclass(slots=True)
class Properties(Composite):
    """Part 3, section 3.2.4."""

    CODE: ClassVar[int] = PROPERTIES
    NAME: ClassVar[str] = "amqp:properties:list"
    WIRE: ClassVar[str] = (
        "id binary any string any id symbol symbol timestamp timestamp string uint string"
    )
    message_id: Any = None
    user_id: bytes | None = None
    to: Any = None
    subject: str | None = None
    reply_to: Any = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


def section_at(buf: bytes, pos: int) -> tuple[int, int, int]:
    """The section at `pos`: its code, where its value starts, and where it ends.

    Raises:
        ProtocolError: there is no message section.
    """
    try:
        if buf[pos] == 0:
            if buf[pos + 1] == 0x53:
                code = buf[pos + 2]
                start = pos + 3
            else:
                descriptor, start = decode(buf, pos + 1)
                if isinstance(descriptor, str):
                    descriptor = _SECTION_NAMES.get(descriptor, 0)
                code = descriptor if isinstance(descriptor, int) else 0
            if HEADER <= code <= FOOTER:
                if buf[start] == 0:
                    return code, start, skip(buf, start)
                return code, start, skip_plain(buf, start, buf[start])
    except MALFORMED as exc:
        raise decode_error("the message is cut short") from exc
    raise decode_error("no message section")


class _Keep:
    """Marks a section that `replace` leaves as it is."""


_KEEP: Final = _Keep()
Annotations = Mapping[Any, Any]


class Message:
    """A message as its sections; immutable: `replace` gives a changed copy."""

    __slots__ = ("_bare", "_cache", "_raw", "_rest")

    def __init__(
        self, raw: dict[int, bytes], bare: bytes | None, rest: dict[int, bytes] | None = None
    ) -> None:
        self._raw = raw  # header and annotations, by section code
        self._bare = bare  # everything from the properties on, in one piece
        self._rest = rest  # the same, section by section; the body is one piece under DATA
        self._cache: dict[int, Any] = {}

    @classmethod
    def parse(cls, payload: bytes) -> Message:
        """Take a message apart as far as needed to know where its bare message starts.

        Raises:
            ProtocolError: these are no message's sections (`amqp:decode-error`).
        """
        raw: dict[int, bytes] = {}
        pos = 0
        total = len(payload)
        last = 0
        while pos < total:
            code, _, end = section_at(payload, pos)
            if code >= PROPERTIES:
                break
            if code <= last:
                raise decode_error("message sections out of order")
            raw[code] = payload[pos:end]
            last = code
            pos = end
        return cls(raw, payload[pos:] if pos else payload)

    @classmethod
    def build(
        cls,
        *,
        header: Header | None = None,
        delivery_annotations: Annotations | None = None,
        message_annotations: Annotations | None = None,
        properties: Properties | None = None,
        application_properties: Annotations | None = None,
        data: bytes | Iterable[bytes] | None = None,
        sequence: Iterable[list[Any]] | None = None,
        value: Any = _KEEP,
        footer: Annotations | None = None,
    ) -> Message:
        """A new message; its body is `data`, `sequence` or `value` (by default empty data)."""
        if value is not _KEEP:
            body = b"\x00\x53\x77" + encode(value)
        elif sequence is not None:
            body = b"".join([b"\x00\x53\x76" + encode(list(part)) for part in sequence])
        else:
            parts = [data or b""] if data is None or isinstance(data, bytes) else data
            body = b"".join([b"\x00\x53\x75" + encode_binary(part) for part in parts])
        rest = {DATA: body}
        if footer is not None:
            rest[FOOTER] = _encode_map_section(FOOTER, footer)
        return cls({}, None, rest).replace(
            header=header,
            delivery_annotations=delivery_annotations,
            message_annotations=message_annotations,
            properties=properties,
            application_properties=application_properties,
        )

    # -- reading -----------------------------------------------------------------------------

    @property
    def bare(self) -> bytes:
        """Everything from the properties section on, as bytes."""
        if self._bare is None:
            rest = self._rest or {}
            self._bare = b"".join(
                [rest[c] for c in (PROPERTIES, APPLICATION_PROPERTIES, DATA, FOOTER) if c in rest]
            )
        return self._bare

    def _sections(self) -> dict[int, bytes]:
        """Properties, application properties, body (under DATA) and footer, as bytes."""
        rest = self._rest
        if rest is None:
            buf = self.bare
            rest = {}
            pos, total, last = 0, len(buf), 0
            body_start = -1
            while pos < total:
                code, _, end = section_at(buf, pos)
                repeats = code == last and code in (DATA, SEQUENCE)
                if code < last or (code == last and not repeats) or (
                    code != last and last in (DATA, SEQUENCE, VALUE) and code != FOOTER
                ):  # fmt: skip
                    raise decode_error("message sections out of order")
                if code in (DATA, SEQUENCE, VALUE):
                    if body_start < 0:
                        body_start = pos
                    rest[DATA] = buf[body_start:end] if end == total else b""
                else:
                    if body_start >= 0:
                        rest[DATA] = buf[body_start:pos]
                    rest[code] = buf[pos:end]
                last = code
                pos = end
            self._rest = rest
        return rest

    def _section(self, code: int) -> bytes | None:
        if code < PROPERTIES:
            return self._raw.get(code)
        return self._sections().get(code)

    def _decoded(self, code: int) -> Any:
        cache = self._cache
        if code in cache:
            return cache[code]
        raw = self._section(code)
        value: Any = None
        if raw is not None:
            _, start, _ = section_at(raw, 0)
            value, _ = decode(raw, start)
            if code == HEADER:
                value = Header.from_list(value)
            elif code == PROPERTIES:
                value = Properties.from_list(value)
            elif not isinstance(value, dict):
                raise decode_error("a message section is no map")
        cache[code] = value
        return value

    @property
    def header(self) -> Header | None:
        """The header, or None."""
        header: Header | None = self._decoded(HEADER)
        return header

    @property
    def delivery_annotations(self) -> dict[Any, Any] | None:
        """The delivery annotations, or None."""
        annotations: dict[Any, Any] | None = self._decoded(DELIVERY_ANNOTATIONS)
        return annotations

    @property
    def message_annotations(self) -> dict[Any, Any] | None:
        """The message annotations, or None."""
        annotations: dict[Any, Any] | None = self._decoded(MESSAGE_ANNOTATIONS)
        return annotations

    @property
    def properties(self) -> Properties | None:
        """The properties, or None."""
        properties: Properties | None = self._decoded(PROPERTIES)
        return properties

    @property
    def application_properties(self) -> dict[Any, Any] | None:
        """The application properties, or None."""
        properties: dict[Any, Any] | None = self._decoded(APPLICATION_PROPERTIES)
        return properties

    @property
    def footer(self) -> dict[Any, Any] | None:
        """The footer, or None."""
        footer: dict[Any, Any] | None = self._decoded(FOOTER)
        return footer

    @property
    def body_kind(self) -> int | None:
        """DATA, SEQUENCE or VALUE; None for a message without a body."""
        raw = self._section(DATA)
        return section_at(raw, 0)[0] if raw else None

    @property
    def body(self) -> Any:
        """The body: the bytes of all data sections, a list of sequences, or the value."""
        kind = self.body_kind
        if kind is None:
            return None
        values = [value for _, value in _values(self._section(DATA) or b"")]
        if kind == DATA:
            if not all(type(value) is bytes for value in values):
                raise decode_error("a data section is no binary")
            return values[0] if len(values) == 1 else b"".join(values)
        return values if kind == SEQUENCE else values[0]

    @property
    def body_bytes(self) -> bytes:
        """The body's sections, encoded."""
        return self._section(DATA) or b""

    def raw_section(self, code: int) -> bytes | None:
        """A section with its descriptor, as it is on the wire; the body is under DATA."""
        return self._section(code)

    # -- changing ----------------------------------------------------------------------------

    def replace(
        self,
        *,
        header: Header | _Keep | None = _KEEP,
        delivery_annotations: Annotations | _Keep | None = _KEEP,
        message_annotations: Annotations | _Keep | None = _KEEP,
        properties: Properties | _Keep | None = _KEEP,
        application_properties: Annotations | _Keep | None = _KEEP,
    ) -> Message:
        """A message with some sections changed, or without them where None is given."""
        raw = dict(self._raw)
        bare = self._bare
        rest = self._rest
        if not (isinstance(properties, _Keep) and isinstance(application_properties, _Keep)):
            rest = dict(self._sections())
            bare = None
        changed = Message(raw, bare, rest)
        changes = (
            (HEADER, header), (DELIVERY_ANNOTATIONS, delivery_annotations),
            (MESSAGE_ANNOTATIONS, message_annotations), (PROPERTIES, properties),
            (APPLICATION_PROPERTIES, application_properties),
        )  # fmt: skip
        for code, value in changes:
            if isinstance(value, _Keep):
                continue
            sections = raw if code < PROPERTIES or rest is None else rest
            if value is None:
                sections.pop(code, None)
            elif isinstance(value, Composite):
                sections[code] = value.encode()
            else:
                sections[code] = _encode_map_section(
                    code, value, self._section(code), self._cache.get(code)
                )
        return changed

    def encode(self) -> bytes:
        """The whole message."""
        raw = self._raw
        if not raw:
            return self.bare
        return b"".join([raw[code] for code in sorted(raw)]) + self.bare

    def __repr__(self) -> str:
        return f"<Message of {len(self.encode())} bytes>"


def _values(buf: bytes) -> Iterable[tuple[int, Any]]:
    pos = 0
    while pos < len(buf):
        code, start, end = section_at(buf, pos)
        value, stop = decode(buf, start)
        if stop != end:
            raise decode_error("size and content of a section disagree")
        yield code, value
        pos = end


def _encode_map_section(
    code: int, values: Annotations, old: bytes | None = None, seen: Any = None
) -> bytes:
    """A map section; a value that is the very object decoded from `old` keeps its bytes."""
    kept: dict[Any, tuple[Any, bytes]] = {}
    if old is not None and isinstance(seen, dict):
        kept = {key: (seen[key], raw) for key, raw in raw_entries(old).items()}
    is_symbolic = code != APPLICATION_PROPERTIES  # annotations have symbols as keys (3.2.10)
    parts = []
    for key, value in values.items():
        known = kept.get(key)
        if known is not None and known[0] is value:
            parts.append(known[1])
        else:
            if is_symbolic and type(key) is str:
                key = Symbol(key)
            parts.append(encode(key) + encode(value))
    body = b"".join(parts)
    return b"\x00\x53" + bytes((code,)) + encode_compound(0xC1, 0xD1, 2 * len(parts), body)


def raw_entries(section: bytes) -> dict[Any, bytes]:
    """The entries of a map section: each key, with the bytes of key and value together."""
    _, start, end = section_at(section, 0)
    return raw_map_entries(section, start, end)


def raw_map_entries(buf: bytes, start: int, end: int) -> dict[Any, bytes]:
    """The entries of the map at `start`: each key, with the bytes of key and value together."""
    try:
        kind = buf[start]
        if kind == 0xC1:
            count, pos = buf[start + 2], start + 3
        elif kind == 0xD1:
            count, pos = _u32(buf, start + 5)[0], start + 9
        else:
            raise decode_error("a message section is no map")
        entries = {}
        for _ in range(count // 2):
            key, after = decode(buf, pos)
            stop = skip(buf, after)
            entries[key] = buf[pos:stop]
            pos = stop
    except (*MALFORMED, TypeError) as exc:
        raise decode_error("a map section is cut short or malformed") from exc
    if pos != end:
        raise decode_error("size and content of a map disagree")
    return entries


# -- batches ---------------------------------------------------------------------------------


def split_batch(payload: bytes) -> list[bytes]:
    """The messages in a delivery of format `BATCH_FORMAT`, each encoded.

    Raises:
        ProtocolError: the body is no row of Data sections.
    """
    messages: list[bytes] = []
    append = messages.append
    pos = 0
    total = len(payload)
    try:
        while pos < total:
            if payload[pos : pos + 4] == b"\x00\x53\x75\xb0":
                start = pos + 8
                pos = start + _u32(payload, pos + 4)[0]
                append(payload[start:pos])
            elif payload[pos : pos + 4] == b"\x00\x53\x75\xa0":
                start = pos + 5
                pos = start + payload[pos + 4]
                append(payload[start:pos])
            else:
                code, start, end = section_at(payload, pos)
                if code == DATA:
                    value, _ = decode(payload, start)
                    if type(value) is not bytes:
                        raise decode_error("a data section is no binary")
                    append(value)
                elif code in (SEQUENCE, VALUE):
                    raise decode_error("a batch is made of data sections")
                pos = end
    except MALFORMED as exc:
        raise decode_error("the batch is cut short") from exc
    if pos != total:
        raise decode_error("the batch is cut short")
    return messages


def join_batch(messages: Iterable[bytes], head: bytes = b"") -> bytes:
    """The payload of a delivery of format `BATCH_FORMAT`; `head` are sections to go before."""
    parts = [head]
    append = parts.append
    for message in messages:
        append(b"\x00\x53\x75\xb0" + _pack_u32(len(message)))
        append(message)
    return b"".join(parts)


BATCH_OVERHEAD: Final = 8
"""Bytes that a batch adds to each message."""


# -- delivering ------------------------------------------------------------------------------

_pack_tail = struct.Struct(">BIB").pack


def header_head(header: Header | None) -> bytes:
    """A header up to its delivery count, for `render`."""
    if header is None:
        return b"\x00\x53\x70\xc0\x0a\x05\x40\x40\x40\x40"
    durable, priority, ttl, first = (
        header.durable, header.priority, header.ttl, header.first_acquirer,
    )  # fmt: skip
    body = b"".join((
        b"\x40" if durable is None else b"\x41" if durable else b"\x42",
        b"\x40" if priority is None else bytes((0x50, priority)),
        b"\x40" if ttl is None else b"\x70" + _pack_u32(ttl),
        b"\x40" if first is None else b"\x41" if first else b"\x42",
    ))  # fmt: skip
    return b"\x00\x53\x70\xc0" + bytes((len(body) + 6, 5)) + body


def encode_entries(annotations: Mapping[Any, Any]) -> tuple[bytes, int]:
    """Annotations as the inside of a map, for `render`: the bytes, and how many entries."""
    parts = []
    for key, value in annotations.items():
        parts.append(encode(Symbol(key) if type(key) is str else key))
        parts.append(encode(value))
    return b"".join(parts), len(parts) // 2


_LOCK_TOKEN_SECTION = b"\x00\x53\x71\xc1\x24\x02" + encode(Symbol("x-opt-lock-token")) + b"\x98"
_LOCKED_UNTIL = encode(Symbol("x-opt-locked-until")) + b"\x83"
_pack_i64 = struct.Struct(">q").pack


def render(
    head: bytes,
    delivery_count: int,
    entries: bytes,
    entry_count: int,
    bare: bytes,
    *,
    lock_token: bytes | None = None,
    locked_until: int | None = None,
) -> bytes:
    """A message as a broker delivers it.

    Args:
        head: the header up to its delivery count, from `header_head`.
        delivery_count: how often it was delivered before.
        entries: the message annotations, from `encode_entries`.
        entry_count: how many there are in `entries`.
        bare: everything from the properties on.
        lock_token: 16 bytes (in the order of `UUID.bytes`), for `x-opt-lock-token`.
        locked_until: milliseconds since 1970, for `x-opt-locked-until`.
    """
    parts = [head, b"\x70", _pack_u32(delivery_count)]
    if lock_token is not None:
        parts.append(_LOCK_TOKEN_SECTION)
        parts.append(lock_token)
    if locked_until is not None:
        entries = entries + _LOCKED_UNTIL + _pack_i64(locked_until)
        entry_count += 1
    if entry_count:
        size = len(entries)
        if size < 255 and entry_count < 128:
            parts.append(b"\x00\x53\x72\xc1" + bytes((size + 1, 2 * entry_count)))
        else:
            parts.append(b"\x00\x53\x72\xd1" + _pack_u32(size + 4) + _pack_u32(2 * entry_count))
        parts.append(entries)
    parts.append(bare)
    return b"".join(parts)


__all__ = [
    "BATCH_FORMAT",
    "BATCH_OVERHEAD",
    "Described",
    "Header",
    "Message",
    "Properties",
    "ProtocolError",
    "encode_entries",
    "header_head",
    "join_batch",
    "raw_entries",
    "render",
    "section_at",
    "split_batch",
]
