"""Runs of transfers that are alike: what a receiver with much credit gets.

A peer writes every transfer of a link in the same way: only the number, the tag and the payload
differ. The first is read field by field; `Shape` keeps what was the same, and the next ones cost
one call of `struct` each. A transfer that looks different is read field by field again.
"""

from __future__ import annotations

import struct

from pairbus.amqp.events import Delivery, Event
from pairbus.amqp.link import Link

_HEAD = struct.Struct(">IBBH")


class Shape:
    """How the transfers of one link look: whole messages, with a number of four bytes."""

    __slots__ = ("_after", "_before", "_between", "_unpack", "link", "settled", "size")

    def __init__(
        self, link: Link, channel: int, body: bytes, tag: bytes, settled: bool, start: int
    ) -> None:
        """Learn from a transfer: the frame's body, and where its payload starts.

        Raises:
            ValueError: its form is an unusual one.
        """
        at = 6 + (1 if body[6] == 0x43 else 2 if body[6] == 0x52 else 5)  # after the handle
        width = len(tag)
        if body[3] != 0xC0 or body[at] != 0x70 or body[at + 5 : at + 7] != bytes((0xA0, width)):
            raise ValueError("an unusual transfer")
        self.link = link
        self.settled = settled
        self.size = 8 + start
        self._before = _HEAD.pack(0, 2, 0, channel)[4:] + body[: at + 1]
        self._between = body[at + 5 : at + 7]
        self._after = body[at + 7 + width : start]
        self._unpack = struct.Struct(
            f">I{len(self._before)}sI2s{width}s{len(self._after)}s"
        ).unpack_from

    def read(
        self, data: bytes, pos: int, events: list[Event], *, max_frame: int, max_message: int
    ) -> int:
        """Add the deliveries from `pos` on that look like this; return where they end."""
        total = len(data)
        least = self.size
        unpack, link, settled = self._unpack, self.link, self.settled
        before, between, after = self._before, self._between, self._after
        most = min(max_frame, max_message + least)
        append = events.append
        while pos + least <= total:
            size, one, number, two, tag, three = unpack(data, pos)
            end = pos + size
            if (
                one != before
                or three != after
                or two != between
                or end > total
                or not least <= size <= most
            ):
                break
            append(Delivery(link, number, tag, 0, data[pos + least : end], settled))
            pos = end
        return pos
