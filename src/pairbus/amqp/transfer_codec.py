"""Reading and writing transfers (part 2, section 2.7.5) without the general codec.

A transfer is the one performative per message, so it is read and written in a single pass, without
a `Transfer` object. The results agree with the general codec, which tests compare.
"""

from __future__ import annotations

import struct
from typing import Any

from pairbus.amqp.composite import Composite, decode_composite
from pairbus.amqp.decoder import DECODERS
from pairbus.amqp.disposition_codec import encode_state
from pairbus.amqp.encoder import encode_binary, encode_uint
from pairbus.amqp.errors import INVALID_FIELD, ProtocolError, decode_error
from pairbus.amqp.frames import FRAME_HEADER

_u32 = struct.Struct(">I").unpack_from
_pack_u32 = struct.Struct(">I").pack
_pack_frame_header = FRAME_HEADER.pack

TransferFields = tuple[
    int, int | None, bytes | None, int | None, bool | None, bool, int | None, Any, bool, int
]
"""handle, delivery-id, delivery-tag, message-format, settled, more, rcv-settle-mode, state,
aborted, and the position of the payload."""


def _wrong_type(name: str) -> ProtocolError:
    return ProtocolError(INVALID_FIELD, f"transfer.{name} has a wrong type")


def _rare_flag(code: int, buf: bytes, pos: int, name: str) -> tuple[bool | None, int]:
    """Read a boolean or null in one of its rarer encodings."""
    if code == 0x40:
        return None, pos
    if code == 0x56 and buf[pos] < 2:
        return buf[pos] == 1, pos + 1
    raise _wrong_type(name)


def _uint(code: int, buf: bytes, pos: int, name: str) -> tuple[int | None, int]:
    """Read a uint or null in any of its encodings."""
    if code == 0x43:
        return 0, pos
    if code == 0x40:
        return None, pos
    if code == 0x70:
        return int(_u32(buf, pos)[0]), pos + 4
    if code == 0x52:
        return buf[pos], pos + 1
    raise _wrong_type(name)


def read_transfer(buf: bytes, pos: int) -> TransferFields:
    """Read the transfer whose list starts at `pos`, after its descriptor.

    Raises:
        ProtocolError, IndexError, struct.error: the bytes are not a transfer.
    """
    code = buf[pos]
    if code == 0xC0:
        end = pos + 2 + buf[pos + 1]
        left = buf[pos + 2]
        pos += 3
    elif code == 0xD0:
        end = pos + 5 + _u32(buf, pos + 1)[0]
        left = _u32(buf, pos + 5)[0]
        pos += 9
    else:
        raise decode_error("a transfer that is not a list")
    if end > len(buf):
        raise decode_error("a transfer longer than its frame")
    if not 0 < left < 12:
        raise decode_error(f"a transfer with {left} fields")
    delivery_id: int | None = None
    tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool | None = False
    mode: int | None = None
    state: Any = None
    aborted: bool | None = False

    code = buf[pos]
    if code == 0x52:
        handle = buf[pos + 1]
        pos += 2
    else:
        wide, pos = _uint(code, buf, pos + 1, "handle")
        if wide is None:
            raise ProtocolError(INVALID_FIELD, "transfer.handle is missing")
        handle = wide
    if left > 1:
        code = buf[pos]
        if code == 0x70:
            delivery_id = _u32(buf, pos + 1)[0]
            pos += 5
        else:
            delivery_id, pos = _uint(code, buf, pos + 1, "delivery-id")
    if left > 2:
        code = buf[pos]
        if code == 0xA0:
            start = pos + 2
            pos = start + buf[pos + 1]
            tag = buf[start:pos]
        elif code == 0x40:
            pos += 1
        else:
            tag, pos = DECODERS[code](buf, pos + 1, 0)
            if type(tag) is not bytes:
                raise _wrong_type("delivery-tag")
    if left > 3:
        code = buf[pos]
        if code == 0x43:
            message_format = 0
            pos += 1
        else:
            message_format, pos = _uint(code, buf, pos + 1, "message-format")
    if left > 4:
        code = buf[pos]
        pos += 1
        if code == 0x42:
            settled = False
        elif code == 0x41:
            settled = True
        elif code == 0x56 and buf[pos] == 0:  # as azure-servicebus writes it
            settled = False
            pos += 1
        else:
            settled, pos = _rare_flag(code, buf, pos, "settled")
    if left > 5:
        code = buf[pos]
        pos += 1
        if code == 0x41:
            more = True
        elif code == 0x56 and buf[pos] == 0:
            pos += 1
        elif code != 0x42:
            more, pos = _rare_flag(code, buf, pos, "more")
    if pos < end:
        # Nearly always all remaining fields are null or false: one comparison skips them.
        rest = buf[pos:end]
        if rest not in _PLAIN_RESTS or left < 6:
            if left > 6:
                code = buf[pos]
                if code == 0x40:
                    pos += 1
                elif code == 0x50:
                    mode = buf[pos + 1]
                    pos += 2
                else:
                    raise _wrong_type("rcv-settle-mode")
            if left > 7:
                if buf[pos] == 0x40:
                    pos += 1
                else:
                    state, pos = decode_composite(buf, pos)
            if left > 8:
                _, pos = _flag(buf, pos, "resume")
            if left > 9:
                aborted, pos = _flag(buf, pos, "aborted")
            if left > 10:
                _, pos = _flag(buf, pos, "batchable")
            if pos != end:
                raise decode_error("size and content of a transfer disagree")
        elif len(rest) != left - 6:
            raise decode_error("size and content of a transfer disagree")
    elif pos != end or left > 6:
        raise decode_error("size and content of a transfer disagree")
    return (
        handle, delivery_id, tag, message_format, settled, bool(more), mode, state, bool(aborted),
        end,
    )  # fmt: skip


def _flag(buf: bytes, pos: int, name: str) -> tuple[bool | None, int]:
    code = buf[pos]
    pos += 1
    if code == 0x41:
        return True, pos
    if code == 0x42:
        return False, pos
    return _rare_flag(code, buf, pos, name)


def _plain_rests() -> frozenset[bytes]:
    """Return the encodings of the fields after `more` in a transfer that uses none of them.

    These are a null mode, a null state, and flags that are null or false.
    """
    rests = {b"\x40", b"\x40\x40"}
    flags = [b""]
    for _ in range(3):
        flags = [flag + more for flag in flags for more in (b"\x40", b"\x42")]
        rests |= {b"\x40\x40" + flag for flag in flags}
    # `batchable` is only a hint, so true is as good as false.
    rests |= {rest[:-1] + b"\x41" for rest in rests if len(rest) == 5}
    return frozenset(rests)


_PLAIN_RESTS = _plain_rests()


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
