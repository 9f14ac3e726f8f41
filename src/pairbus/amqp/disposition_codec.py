"""Reading and writing dispositions (part 2, section 2.7.6) without the general codec.

A disposition settles every message that is not settled by its transfer. `read_disposition` knows
the encodings that clients use, and leaves all others to the general decoder.
"""

from __future__ import annotations

import struct
from typing import Any

from pairbus.amqp.composite import Composite
from pairbus.amqp.frames import frame
from pairbus.amqp.performatives import ACCEPTED, RELEASED, Disposition

_u32 = struct.Struct(">I").unpack_from
_pack_usual = struct.Struct(">IBBH4sHcBIBIc4sB").pack

_STATES: dict[bytes, Composite] = {
    b"\x00\x53\x24\x45": ACCEPTED,
    b"\x00\x53\x24\xc0\x01\x00": ACCEPTED,
    b"\x00\x53\x26\x45": RELEASED,
    b"\x00\x53\x26\xc0\x01\x00": RELEASED,
}
# The encodings of the last fields: how many fields there are then, `settled` and the state.
_USUAL_TAILS = {
    flag + state + batchable: (5 + len(batchable), settled, _STATES[state])
    for flag, settled in (
        (b"\x41", True), (b"\x42", False), (b"\x56\x01", True), (b"\x56\x00", False),
    )
    for state in _STATES
    for batchable in (b"", b"\x40", b"\x41", b"\x42")
}  # fmt: skip
_STATE_BYTES = {id(ACCEPTED): b"\x00\x53\x24\x45", id(RELEASED): b"\x00\x53\x26\x45"}

DispositionFields = tuple[bool, int, int, bool, Any]
"""role, first, last, settled, state."""


def read_disposition(buf: bytes, pos: int) -> DispositionFields | None:
    """Read the disposition whose list starts at `pos`; None if its encoding is an unusual one."""
    if buf[pos] != 0xC0:
        return None
    end = pos + 2 + buf[pos + 1]
    left = buf[pos + 2]
    if end != len(buf) or left < 5:
        return None
    pos += 3
    # azure-servicebus writes booleans in their long form, and leaves `last` out.
    code = buf[pos]
    pos += 1
    if code == 0x56 and buf[pos] < 2:
        role = buf[pos] == 1
        pos += 1
    elif code == 0x41 or code == 0x42:
        role = code == 0x41
    else:
        return None
    code = buf[pos]
    if code == 0x70:
        first = _u32(buf, pos + 1)[0]
        pos += 5
    elif code == 0x52:
        first = buf[pos + 1]
        pos += 2
    elif code == 0x43:
        first = 0
        pos += 1
    else:
        return None
    code = buf[pos]
    if code == 0x40:
        last = first
        pos += 1
    elif code == 0x70:
        last = _u32(buf, pos + 1)[0]
        pos += 5
    elif code == 0x52:
        last = buf[pos + 1]
        pos += 2
    elif code == 0x43:
        last = 0
        pos += 1
    else:
        return None
    tail = _USUAL_TAILS.get(buf[pos:end])
    if tail is None or tail[0] != left:
        return None
    return role, first, last, tail[1], tail[2]


def encode_state(state: Composite | None) -> bytes:
    """Return the encoding of a delivery state; null for None."""
    if state is None:
        return b"\x40"
    return _STATE_BYTES.get(id(state)) or state.encode()


_SETTLED = {True: b"\x41", False: b"\x42"}


def disposition_frame(
    channel: int, role: bool, first: int, last: int, settled: bool, state: Composite | None
) -> bytes:
    """Return a whole disposition frame."""
    usual = _STATE_BYTES.get(id(state))
    if usual is not None:
        return _pack_usual(
            31, 2, 0, channel, b"\x00\x53\x15\xc0", 0x1206, _SETTLED[role],
            0x70, first, 0x70, last, _SETTLED[settled], usual, 0x42,
        )  # fmt: skip
    return frame(channel, Disposition(role, first, last, settled, state).encode())
