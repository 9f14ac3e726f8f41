"""Messages as sections (part 3, section 3.2), decoded one by one and only on demand.

A message is kept as the bytes of its sections, and reading a section decodes only that one.
`replace` encodes only the given sections, and in a map section only the new values: a value that
was taken from the message keeps its original bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pairbus.amqp.batches import BATCH_FORMAT, BATCH_OVERHEAD, join_batch, split_batch
from pairbus.amqp.composite import Composite
from pairbus.amqp.decoder import decode
from pairbus.amqp.encoder import encode, encode_binary, encode_compound
from pairbus.amqp.errors import decode_error
from pairbus.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Header,
    Properties,
    raw_entries,
    section_at,
)
from pairbus.amqp.types import Symbol

__all__ = [
    "APPLICATION_PROPERTIES", "BATCH_FORMAT", "BATCH_OVERHEAD", "DATA", "DELIVERY_ANNOTATIONS",
    "FOOTER", "HEADER", "MESSAGE_ANNOTATIONS", "PROPERTIES", "SEQUENCE", "VALUE", "Header",
    "Message", "Properties", "join_batch", "raw_entries", "section_at", "split_batch",
]  # fmt: skip


# The usual first bytes of a bare message: properties, application properties or body.
_BARE_STARTS = frozenset(b"\x00\x53" + bytes((code,)) for code in range(PROPERTIES, FOOTER + 1))


class _Keep:
    """Marks a section that `replace` leaves as it is."""


_KEEP: Final = _Keep()
Annotations = Mapping[Any, Any]


class Message:
    """A message as its sections; immutable: `replace` returns a changed copy."""

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
        """Split a message as far as needed to find where its bare message starts.

        Raises:
            ProtocolError: the bytes are not message sections (`amqp:decode-error`).
        """
        raw: dict[int, bytes] = {}
        pos = 0
        total = len(payload)
        last = 0
        while pos < total:
            head = payload[pos : pos + 3]
            if head in _BARE_STARTS:
                break
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
        """Return a new message with a body of `data` (by default empty), `sequence` or `value`."""
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
                if code == DELIVERY_ANNOTATIONS and code not in self._raw:
                    # azure-servicebus writes delivery annotations last, and the service accepts
                    # that. They are moved to their place in the specification (3.2).
                    if body_start >= 0 and last != FOOTER:
                        rest[DATA] = buf[body_start:pos]
                    self._raw[code] = buf[pos:end]
                    self._bare = None
                    pos = end
                    continue
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
        value: Any = None
        if (
            code == PROPERTIES
            and self._rest is None
            and self._bare is not None
            and self._bare[:3] == b"\x00\x53\x73"
        ):
            value, _ = decode(self._bare, 3)  # the usual case, without looking at the rest
            value = Properties.from_list(value)
        else:
            raw = self._section(code)
            if raw is not None:
                value, _ = decode(raw, 3 if raw[1] == 0x53 else section_at(raw, 0)[1])
                if code == HEADER:
                    value = Header.from_list(value)
                elif code == PROPERTIES:
                    value = Properties.from_list(value)
                elif not isinstance(value, dict):
                    raise decode_error("a message section is not a map")
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
                raise decode_error("a data section is not a binary")
            return values[0] if len(values) == 1 else b"".join(values)
        return values if kind == SEQUENCE else values[0]

    def raw_section(self, code: int) -> bytes | None:
        """Return a section with its descriptor, encoded; all body sections are under DATA."""
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
        """Return a message with some sections changed; None removes a section."""
        rest = self._rest
        bare = self._bare
        if not (isinstance(properties, _Keep) and isinstance(application_properties, _Keep)):
            rest = dict(self._sections())
            bare = None
        raw = dict(self._raw)
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
        """Return the whole message as bytes."""
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
    """Encode a map section; a value that is the same object as in `seen` keeps its old bytes."""
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
