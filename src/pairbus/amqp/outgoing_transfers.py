"""Sending messages (part 2, section 2.6.12): from payloads to transfer frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pairbus.amqp.composite import Composite
from pairbus.amqp.disposition_codec import encode_state
from pairbus.amqp.errors import TRANSFER_LIMIT_EXCEEDED, AmqpError
from pairbus.amqp.frames import MIN_MAX_FRAME_SIZE
from pairbus.amqp.link import Link, Outgoing
from pairbus.amqp.output import OutputBuffer
from pairbus.amqp.session import SERIAL_MASK

_TRANSFER_OVERHEAD = 64  # a bound for a transfer frame without its tag, state and payload


class OutgoingTransfers:
    """Sends messages within link credit, session window and the peer's frame size."""

    __slots__ = ("_output", "max_frame_size")

    def __init__(self, output: OutputBuffer) -> None:
        self._output = output
        self.max_frame_size = MIN_MAX_FRAME_SIZE
        """The largest frame that the peer accepts."""

    def transfer(
        self,
        link: Link,
        payload: bytes,
        tag: bytes,
        *,
        settled: bool = False,
        message_format: int = 0,
        context: Any = None,
        state: Composite | None = None,
    ) -> None:
        """Send a message on a link that has credit, as soon as the session's window allows it.

        An unsettled delivery is remembered, with `context`, until it is settled. A payload that is
        too large for one of the peer's frames is sent in several. A delivery gets its number when
        its first frame is sent: one that is dropped before leaves no gap in the numbers.

        Raises:
            AmqpError: the link has no credit (`amqp:link:transfer-limit-exceeded`).
        """
        if link.credit <= 0:
            raise AmqpError(TRANSFER_LIMIT_EXCEEDED, f"no credit on link {link.name}")
        link.credit -= 1
        link.delivery_count = (link.delivery_count + 1) & SERIAL_MASK
        session = link.session
        room = self.max_frame_size - _TRANSFER_OVERHEAD - len(tag)
        if state is not None:
            room -= len(encode_state(state))
        if session.remote_incoming_window > 0 and len(payload) <= room:
            # `_frames` and `Session.take_sendable`, inlined: this runs for every single message.
            delivery_id = session.next_delivery_id
            session.next_delivery_id = (delivery_id + 1) & SERIAL_MASK
            if not settled:
                session.unsettled[delivery_id] = Outgoing(delivery_id, link, tag, context)
            session.remote_incoming_window -= 1
            session.next_outgoing_id = (session.next_outgoing_id + 1) & SERIAL_MASK
            self._output.write(
                link.writer.frame(delivery_id, tag, message_format, settled, payload, False, state)
            )
            return
        session.pending.append(
            (link, _frames(link, payload, room, tag, settled, message_format, context, state))
        )
        self._output.write_all(session.take_sendable())

    def transfer_many(self, link: Link, messages: Sequence[tuple[bytes, bytes, bytes]]) -> int:
        """Send messages on a link that has credit for them, unsettled; return their total size.

        Each message is its tag and its bytes in two parts, so that the sender need not join them.

        Raises:
            AmqpError: the link has too little credit (`amqp:link:transfer-limit-exceeded`).
        """
        count = len(messages)
        if link.credit < count:
            raise AmqpError(TRANSFER_LIMIT_EXCEEDED, f"too little credit on link {link.name}")
        session = link.session
        size = sum([len(front) + len(rest) for _, front, rest in messages])
        room = self.max_frame_size - _TRANSFER_OVERHEAD
        fits = [len(tag) + len(front) + len(rest) <= room for tag, front, rest in messages]
        if session.remote_incoming_window < count or not all(fits):
            for tag, front, rest in messages:
                self.transfer(link, front + rest, tag)
            return size
        # The same as `transfer`, with the parts that do not depend on the message done once.
        first = session.next_delivery_id
        session.next_delivery_id = (first + count) & SERIAL_MASK
        link.credit -= count
        link.delivery_count = (link.delivery_count + count) & SERIAL_MASK
        session.count_outgoing(count)
        unsettled, head = session.unsettled, link.writer.head
        frames: list[bytes] = []
        for index, (tag, front, rest) in enumerate(messages):
            number = (first + index) & SERIAL_MASK
            unsettled[number] = Outgoing(number, link, tag, None)
            frames += (head(number, tag, len(front) + len(rest)), front, rest)
        self._output.write_all(frames)
        return size


def _frames(
    link: Link,
    payload: bytes,
    room: int,
    tag: bytes,
    settled: bool,
    message_format: int,
    context: Any,
    state: Composite | None,
) -> Iterator[bytes]:
    """Yield the frames of a delivery, each when it is sent; the first one takes the number."""
    session, writer, size = link.session, link.writer, len(payload)
    number = session.next_delivery_id
    session.next_delivery_id = (number + 1) & SERIAL_MASK
    if not settled:
        session.unsettled[number] = Outgoing(number, link, tag, context)
    yield writer.frame(number, tag, message_format, settled, payload[:room], size > room, state)
    for start in range(room, size, room):
        yield writer.next_frame(payload[start : start + room], start + room < size, settled)
