"""Reading and writing transfers (part 2, section 2.7.5) without the general codec.

A transfer is the one performative per message, so it is read and written in a single pass, without
a `Transfer` object. The results agree with the general codec, which tests compare.
"""

from __future__ import annotations

import struct
from itertools import product
from typing import Any

from pairbus.amqp.composite import Composite, decode_composite
from pairbus.amqp.disposition_codec import encode_state
from pairbus.amqp.encoder import encode_binary, encode_uint
from pairbus.amqp.frames import FRAME_HEADER

_u32 = struct.Struct(">I").unpack_from
_pack_u32 = struct.Struct(">I").pack
_pack_frame_header = FRAME_HEADER.pack

TransferFields = tuple[
    int, int | None, bytes | None, int | None, bool | None, bool, int | None, Any, bool, int
]
"""handle, delivery-id, delivery-tag, message-format, settled, more, rcv-settle-mode, state,
aborted, and the position of the payload."""


def read_transfer(buf: bytes, pos: int) -> TransferFields:
    """Read the transfer whose list starts at `pos`, after a descriptor in its short form.

    Raises:
        ProtocolError, IndexError, struct.error: the bytes are not a transfer.
    """
    list_at = pos
    if buf[pos] != 0xC0:
        return _read_unusual(buf, list_at)
    end = pos + 2 + buf[pos + 1]
    left = buf[pos + 2]
    if end > len(buf) or left < 6:
        return _read_unusual(buf, list_at)
    pos += 3
    delivery_id: int | None = None
    tag: bytes | None = None
    message_format: int | None = None

    code = buf[pos]
    if code == 0x52:
        handle = buf[pos + 1]
        pos += 2
    elif code == 0x43:
        handle = 0
        pos += 1
    else:
        return _read_unusual(buf, list_at)
    code = buf[pos]
    if code == 0x70:
        delivery_id = _u32(buf, pos + 1)[0]
        pos += 5
    elif code == 0x52:
        delivery_id = buf[pos + 1]
        pos += 2
    elif code == 0x43:
        delivery_id = 0
        pos += 1
    elif code == 0x40:
        pos += 1
    else:
        return _read_unusual(buf, list_at)
    code = buf[pos]
    if code == 0xA0:
        start = pos + 2
        pos = start + buf[pos + 1]
        tag = buf[start:pos]
    elif code == 0x40:
        pos += 1
    else:
        return _read_unusual(buf, list_at)
    code = buf[pos]
    if code == 0x43:
        message_format = 0
        pos += 1
    elif code == 0x70:
        message_format = _u32(buf, pos + 1)[0]
        pos += 5
    elif code == 0x40:
        pos += 1
    else:
        return _read_unusual(buf, list_at)
    tail = _USUAL_TAILS.get(buf[pos:end])
    if tail is None or tail[0] != left:
        return _read_unusual(buf, list_at)
    return handle, delivery_id, tag, message_format, tail[1], tail[2], None, None, False, end


def _read_unusual(buf: bytes, pos: int) -> TransferFields:
    """Read a transfer with the general decoder."""
    transfer, end = decode_composite(buf, pos - 3)
    return (
        transfer.handle, transfer.delivery_id, transfer.delivery_tag, transfer.message_format,
        transfer.settled, bool(transfer.more), transfer.rcv_settle_mode, transfer.state,
        bool(transfer.aborted), end,
    )  # fmt: skip


def _usual_tails() -> dict[bytes, tuple[int, bool | None, bool]]:
    """Return the encodings of the fields from `settled` on, if mode, state and flags are not set.

    The value is the number of the transfer's fields, `settled` and `more`.
    """
    # azure-servicebus writes booleans in their long form.
    flags = {b"\x40": None, b"\x41": True, b"\x42": False, b"\x56\x00": False, b"\x56\x01": True}
    unset = (b"\x40", b"\x42")
    rests = [b"\x40\x40" + b"".join(some) for n in range(4) for some in product(unset, repeat=n)]
    # `batchable` is only a hint, so true is as good as false.
    rests += [rest[:-1] + b"\x41" for rest in rests if len(rest) == 5]
    return {
        one + two + rest: (6 + len(rest), settled, bool(more))
        for (one, settled), (two, more) in product(flags.items(), repeat=2)
        for rest in (b"", b"\x40", *rests)
    }


_USUAL_TAILS = _usual_tails()


class TransferWriter:
    """Writes the transfer frames of one link."""

    __slots__ = ("_channel", "_handle", "_heads")

    def __init__(self, channel: int, handle: int) -> None:
        self._channel = channel
        self._handle = encode_uint(handle)
        self._heads: dict[int, tuple[int, Any, bytes, bytes, bytes]] = {}

    def head(self, delivery_id: int, tag: bytes, size: int) -> bytes:
        """Return the frame of an unsettled message without its payload of `size` bytes.

        The tag has at most 32 bytes (part 2, section 2.8.7).
        """
        known = self._heads.get(len(tag))
        if known is None:
            known = self._prepare(tag)
        length, pack, before, between, after = known
        head: bytes = pack(length + size, before, delivery_id, between, tag, after)
        return head

    def _prepare(self, tag: bytes) -> tuple[int, Any, bytes, bytes, bytes]:
        """Return the constant parts of all heads with a tag of this length."""
        whole = self.frame(0, tag, 0, False, b"")
        at = len(whole) - len(tag) - 15  # number and tag; then format, flags and five more fields
        before, between, after = whole[4 : at + 1], whole[at + 5 : at + 7], whole[-8:]
        pack = struct.Struct(f">I{len(before)}sI2s{len(tag)}s8s").pack
        found = self._heads[len(tag)] = (len(whole), pack, before, between, after)
        return found

    def frame(
        self,
        delivery_id: int,
        tag: bytes,
        message_format: int,
        settled: bool,
        payload: bytes,
        more: bool = False,
        state: Composite | None = None,
    ) -> bytes:
        """Return the first or only frame of a delivery."""
        # rcv-settle-mode, state, resume, aborted, batchable: all written, as null or false.
        rest = b"\x40\x40\x42\x42\x42" if state is None else (
            b"\x40" + encode_state(state) + b"\x42\x42\x42"
        )  # fmt: skip
        body = b"".join((
            self._handle, b"\x70", _pack_u32(delivery_id), encode_binary(tag),
            b"\x43" if message_format == 0 else b"\x70" + _pack_u32(message_format),
            b"\x41" if settled else b"\x42", b"\x41" if more else b"\x42", rest,
        ))  # fmt: skip
        return self._wrap(body, payload)

    def next_frame(self, payload: bytes, more: bool, settled: bool = False) -> bytes:
        """Return a further frame of a delivery; only the first has number, tag and format."""
        body = b"".join((
            self._handle, b"\x40\x40\x40", b"\x41" if settled else b"\x42",
            b"\x41" if more else b"\x42", b"\x40\x40\x42\x42\x42",
        ))  # fmt: skip
        return self._wrap(body, payload)

    def _wrap(self, body: bytes, payload: bytes) -> bytes:
        size = len(body)
        if size < 255:
            head = b"\x00\x53\x14\xc0" + bytes((size + 1, 11))
        else:
            head = b"\x00\x53\x14\xd0" + _pack_u32(size + 4) + b"\x00\x00\x00\x0b"
        return b"".join((
            _pack_frame_header(8 + len(head) + size + len(payload), 2, 0, self._channel),
            head, body, payload,
        ))  # fmt: skip
