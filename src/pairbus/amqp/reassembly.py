"""Deliveries that arrive in several frames."""

from __future__ import annotations

from pairbus.amqp.errors import RESOURCE_LIMIT_EXCEEDED, ProtocolError
from pairbus.amqp.events import Delivery
from pairbus.amqp.link import Link, PartialDelivery


class Reassembly:
    """Joins the frames of a delivery, within a limit for all links of the connection together."""

    __slots__ = ("_max_bytes", "_size")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size = 0

    def add(self, partial: PartialDelivery, data: bytes, limit: int) -> None:
        """Add the payload of a frame; a delivery larger than `limit` is counted but not kept.

        Raises:
            ProtocolError: the incomplete deliveries of the connection are too large together.
        """
        partial.size += len(data)
        if partial.size > limit:
            self._size -= len(partial.data)
            partial.data.clear()
            return
        partial.data += data
        self._size += len(data)
        if self._size > self._max_bytes:
            raise ProtocolError(RESOURCE_LIMIT_EXCEEDED, "too many bytes in incomplete deliveries")

    def finish(self, link: Link, partial: PartialDelivery, limit: int) -> Delivery:
        """Return the delivery whose last frame was added."""
        self.discard(link)
        return Delivery(link, partial.delivery_id, partial.tag, partial.message_format,
                        bytes(partial.data), partial.settled, partial.mode, partial.state,
                        partial.size > limit)  # fmt: skip

    def discard(self, link: Link) -> None:
        """Forget the link's incomplete delivery, if there is one."""
        if link.partial is not None:
            self._size -= len(link.partial.data)
            link.partial = None
