"""Find and cut the sections of an encoded message without decoding them.

A message (AMQP 1.0, part 3, section 3.2) is a row of described sections, each with its length in
front. So a section, a field of a list and an entry of a map can be found by their lengths alone,
and copied byte for byte.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pairbus.amqp import sections as codes
from pairbus.amqp.codec import decode

# Codes of sections.
HEADER, PROPERTIES = codes.HEADER, codes.PROPERTIES
DELIVERY_ANNOTATIONS, ANNOTATIONS = codes.DELIVERY_ANNOTATIONS, codes.MESSAGE_ANNOTATIONS
APPLICATION = codes.APPLICATION_PROPERTIES
# Positions of fields in the header and in the properties.
TTL, MESSAGE_ID, EXPIRY, CREATED, GROUP_ID = 2, 0, 8, 9, 10
SCHEDULED: Final = b"x-opt-scheduled-enqueue-time"
SHORT_PROPERTIES: Final = b"\x00\x53\x73\xc0"  # the start of properties of less than 256 bytes
BODIES: Final = frozenset({b"\x00\x53\x75", b"\x00\x53\x76", b"\x00\x53\x77"})
NULL: Final = b"\x40"

_FIXED: Final = {4: 1, 5: 2, 6: 3, 7: 5, 8: 9, 9: 17}


def skip(buf: bytes, pos: int) -> int:
    """Return the position after the value that begins at `pos`."""
    code = buf[pos]
    if code == 0:
        # A descriptor and a value, each of which may be described in turn.
        left = 2
        while left:
            pos += 1
            if buf[pos] == 0:
                left += 1
            else:
                pos = skip(buf, pos) - 1
                left -= 1
        return pos + 1
    kind = code >> 4
    width = _FIXED.get(kind)
    if width is not None:
        return pos + width
    if kind in (0xA, 0xC, 0xE):
        return pos + 2 + buf[pos + 1]
    if kind in (0xB, 0xD, 0xF):
        return pos + 5 + int.from_bytes(buf[pos + 1 : pos + 5], "big")
    raise ValueError(f"no AMQP value begins with 0x{code:02x}")


def each_section(buf: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the code of each section before the body, and where its value begins and ends."""
    pos, length = 0, len(buf)
    while pos < length:
        if buf[pos] != 0:
            raise ValueError("a section is a described value")
        if buf[pos + 1] == 0x53:
            code, value = buf[pos + 2], pos + 3
        else:
            descriptor, value = decode(buf, pos + 1)
            code = codes.SECTION_NAMES.get(
                str(descriptor), descriptor if isinstance(descriptor, int) else 0
            )
        if not HEADER <= code <= APPLICATION:
            return
        pos = skip(buf, value)
        yield code, value, pos


def sections(buf: bytes) -> tuple[dict[int, tuple[int, int]], int]:
    """Return the places of the sections' values, by section code, and where the body begins."""
    found: dict[int, tuple[int, int]] = {}
    body = 0
    for code, value, body in each_section(buf):
        found[code] = (value, body)
    return found, body


def map_start(buf: bytes, pos: int) -> tuple[int, int]:
    """Return the position of the first key of a map, and the number of its keys and values."""
    if buf[pos] == 0xC1:
        return pos + 3, buf[pos + 2]
    if buf[pos] == 0xD1:
        return pos + 9, int.from_bytes(buf[pos + 5 : pos + 9], "big")
    raise ValueError("not a map")


def entries(buf: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield the text of each key of the map at `start`, and where key, value and next entry begin.

    The text of a key that is not a string or symbol is a part of its bytes.
    """
    pos, _ = map_start(buf, start)
    while pos < end:
        value = skip(buf, pos)
        after = skip(buf, value)
        is_short = buf[pos] in (0xA1, 0xA3)
        yield buf[pos + 2 : value] if is_short else buf[pos + 5 : value], pos, value, after
        pos = after


def make_map(section: int, pieces: list[bytes]) -> bytes:
    """Return a map section of encoded entries (key and value); empty if there are none."""
    return _compound(section, 0xC1, 2 * len(pieces), b"".join(pieces)) if pieces else b""


def append_entries(
    section: int, buf: bytes, place: tuple[int, int] | None, pieces: list[bytes]
) -> bytes:
    """Return a map section with more encoded entries; those that are there are copied.

    Args:
        section: The section's code.
        buf: The message.
        place: Where the section's value is; None if the message does not have it.
        pieces: The entries to add.
    """
    if place is None:
        return make_map(section, pieces)
    first, count = map_start(buf, place[0])
    body = b"".join((buf[first : place[1]], *pieces))
    return _compound(section, 0xC1, count + 2 * len(pieces), body)


def list_fields(buf: bytes, place: tuple[int, int] | None) -> list[bytes]:
    """Return the encoded fields of the list at `place`; none if there is no list."""
    fields: list[bytes] = []
    if place is None or buf[place[0]] == 0x45:  # an empty list
        return fields
    pos, end = place
    pos += 3 if buf[pos] == 0xC0 else 9
    while pos < end:
        after = skip(buf, pos)
        fields.append(buf[pos:after])
        pos = after
    return fields


def make_list(section: int, fields: list[bytes]) -> bytes:
    """Return a list section of encoded fields."""
    return _compound(section, 0xC0, len(fields), b"".join(fields))


def replace_fields(
    section: int, buf: bytes, place: tuple[int, int] | None, changes: Mapping[int, bytes]
) -> bytes:
    """Return a list section with some fields replaced by encoded values; others are copied.

    Args:
        section: The section's code.
        buf: The message.
        place: Where the section's value is; None if the message does not have it.
        changes: Encoded values by their index in the list.
    """
    fields = list_fields(buf, place)
    fields += [NULL] * (max(changes) + 1 - len(fields))
    for index, value in changes.items():
        fields[index] = value
    return make_list(section, fields)


def _compound(section: int, code: int, count: int, body: bytes) -> bytes:
    """A section that is a list (0xC0) or a map (0xC1), in its short or its long form."""
    if len(body) < 255 and count < 256:
        return b"\x00\x53%c%c%c%c" % (section, code, len(body) + 1, count) + body
    size = (len(body) + 4).to_bytes(4, "big")
    return b"\x00\x53%c%c" % (section, code + 0x10) + size + count.to_bytes(4, "big") + body
