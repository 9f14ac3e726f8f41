"""Reads runs of similar transfers, which a receiver with much credit gets.

A peer encodes every transfer of a link in the same way: only delivery number, tag and payload
differ. The first transfer is read field by field and becomes a `TransferTemplate`. Each further
one that has the same bytes in the same places costs a single call of `struct`. A transfer that
differs is read field by field again.
"""

from __future__ import annotations

import struct

from pairbus.amqp.events import Delivery, Event
from pairbus.amqp.frames import FRAME_HEADER
from pairbus.amqp.link import Link


class TransferTemplate:
    """The constant bytes in the transfer frames of one link.

    It matches frames with a whole message, a delivery number of four bytes and a tag of the same
    length as in the frame that it was made from.
    """

    __slots__ = ("_after", "_before", "_between", "_settled", "_size", "_unpack", "link")

    def __init__(self, link: Link, body: bytes, tag: bytes, settled: bool, start: int) -> None:
        """Make a template from a transfer: the frame's body, and where its payload starts.

        Raises:
            ValueError: no template can be made from this encoding.
        """
        at = 6 + (1 if body[6] == 0x43 else 2 if body[6] == 0x52 else 5)  # after the handle
        width = len(tag)
        if body[3] != 0xC0 or body[at] != 0x70 or body[at + 5 : at + 7] != bytes((0xA0, width)):
            raise ValueError("an unusual encoding of a transfer")
        self.link = link
        self._settled = settled
        self._size = 8 + start
        self._before = FRAME_HEADER.pack(0, 2, 0, link.session.remote_channel)[4:] + body[: at + 1]
        self._between = body[at + 5 : at + 7]
        self._after = body[at + 7 + width : start]
        self._unpack = struct.Struct(
            f">I{len(self._before)}sI2s{width}s{len(self._after)}s"
        ).unpack_from

    def read(
        self, data: bytes, pos: int, events: list[Event], *, max_frame: int, max_message: int
    ) -> int:
        """Add a delivery for each matching frame from `pos` on; return where they end."""
        total = len(data)
        head = self._size
        unpack, link, settled = self._unpack, self.link, self._settled
        before, between, after = self._before, self._between, self._after
        max_size = min(max_frame, max_message + head)
        append = events.append
        while pos + head <= total:
            size, one, number, two, tag, three = unpack(data, pos)
            end = pos + size
            if (
                one != before
                or three != after
                or two != between
                or end > total
                or not head <= size <= max_size
            ):
                break
            append(Delivery(link, number, tag, 0, data[pos + head : end], settled))
            pos = end
        return pos
