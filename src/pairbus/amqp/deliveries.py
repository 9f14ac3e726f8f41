"""What the peer sends on links: transfers, and dispositions of ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pairbus.amqp.alike import Shape
from pairbus.amqp.base import MASK, serial_diff
from pairbus.amqp.errors import ILLEGAL_STATE, NOT_ALLOWED, RESOURCE_LIMIT_EXCEEDED, ProtocolError
from pairbus.amqp.events import Delivery, Disposed, Event
from pairbus.amqp.fastpath import read_transfer
from pairbus.amqp.incoming import Incoming
from pairbus.amqp.link import EndState, Link, Outgoing, Partial, Session
from pairbus.amqp.performatives import ROLE_RECEIVER, SND_SETTLED, Disposition

_MOST_UNLIKE = 100  # shapes in a row that served nobody: this peer writes each in its own way


class Deliveries(Incoming):
    """The peer's transfers and dispositions; see `Connection`."""

    def _on_transfer(self, channel: int, body: bytes, events: list[Event]) -> None:
        session = self._by_remote_channel.get(channel)
        if session is None:
            if self.remote_open is None:
                raise ProtocolError(ILLEGAL_STATE, "the first frame is no open")
            return
        (handle, delivery_id, tag, message_format, settled, more, mode, state, aborted,
         start) = read_transfer(body, 3)  # fmt: skip
        session.next_incoming_id = (session.next_incoming_id + 1) & MASK
        session.incoming_left -= 1
        if session.incoming_left * 2 < session.incoming_window:
            session.incoming_left = session.incoming_window
            if session.state is EndState.ACTIVE:
                self._send_flow(session, None)
        link = session.by_handle.get(handle)
        if link is None:
            self._check_was_attached(session, handle)
            return
        if link.is_sender:
            raise ProtocolError(NOT_ALLOWED, "a transfer towards a sender")
        partial = link.partial
        if partial is None:
            if delivery_id is None or tag is None:
                raise ProtocolError(ILLEGAL_STATE, "a delivery without a number or tag")
            if aborted:
                return
            link.delivery_count = (link.delivery_count + 1) & MASK
            if link.credit:
                link.credit -= 1
            if settled is None:
                settled = link.snd_settle_mode == SND_SETTLED
            limit = link.max_message_size or self.max_message_size
            if not more:
                payload = body[start:]
                oversize = len(payload) > limit
                if link.state is not EndState.CLOSING:
                    events.append(
                        Delivery(link, delivery_id, tag, message_format or 0,
                                 b"" if oversize else payload, settled, mode, state, oversize)
                    )  # fmt: skip
                    plain = not message_format and state is None and mode is None
                    self._learn(link, channel, body, tag, settled, start if plain else 0)
                return
            partial = link.partial = Partial(
                delivery_id, tag, message_format or 0, settled, mode, state
            )
        else:
            if delivery_id is not None and delivery_id != partial.delivery_id:
                raise ProtocolError(ILLEGAL_STATE, "two deliveries interleave on one link")
            if aborted:
                self._drop_partial(link)
                return
            if settled:
                partial.settled = True
            if state is not None:
                partial.state = state
            limit = link.max_message_size or self.max_message_size
        partial.size += len(body) - start
        if partial.size > limit:
            self._partial_bytes -= len(partial.data)
            partial.data.clear()
        else:
            partial.data += body[start:]
            self._partial_bytes += len(body) - start
            if self._partial_bytes > self.max_message_size:
                raise ProtocolError(
                    RESOURCE_LIMIT_EXCEEDED, "too much in deliveries that are not complete"
                )
        if not more:
            self._drop_partial(link)
            if link.state is not EndState.CLOSING:
                events.append(
                    Delivery(link, partial.delivery_id, partial.tag, partial.message_format,
                             bytes(partial.data), partial.settled, partial.mode,
                             partial.state, partial.size > limit)
                )  # fmt: skip

    def _learn(
        self, link: Link, channel: int, body: bytes, tag: bytes, settled: bool, start: int
    ) -> None:
        """Note how this link's transfers look, if it sends one after the other."""
        if link is not self._last_link:
            self._last_link, self._shape = link, None
        elif start and self._unlike < _MOST_UNLIKE:
            self._unlike += 1
            try:
                self._shape = Shape(link, channel, body, tag, settled, start)
            except (ValueError, IndexError):
                self._shape = None

    def _on_alike(self, shape: Shape, data: bytes, pos: int, events: list[Event]) -> int:
        """Take transfers that look like the last one; return where they end."""
        link = shape.link
        session = link.session
        if link.state is not EndState.ACTIVE or link.partial is not None:
            self._shape = None
            return pos
        known = len(events)
        limit = link.max_message_size or self.max_message_size
        pos = shape.read(data, pos, events, max_frame=self.max_frame_size, max_message=limit)
        count = len(events) - known
        if count:
            self._unlike = 0
            session.next_incoming_id = (session.next_incoming_id + count) & MASK
            session.incoming_left -= count
            if session.incoming_left * 2 < session.incoming_window:
                session.incoming_left = session.incoming_window
                if session.state is EndState.ACTIVE:
                    self._send_flow(session, None)
            link.delivery_count = (link.delivery_count + count) & MASK
            link.credit = max(0, link.credit - count)
        return pos

    def _on_disposition_frame(
        self, channel: int, performative: Disposition, events: list[Event]
    ) -> None:
        first = performative.first
        last = first if performative.last is None else performative.last
        self._on_disposition(
            channel, performative.role, first, last, performative.settled, performative.state,
            events,
        )  # fmt: skip

    def _on_disposition(
        self,
        channel: int,
        role: bool,
        first: int,
        last: int,
        settled: bool,
        state: Any,
        events: list[Event],
    ) -> None:
        session = self._by_remote_channel.get(channel)
        if session is None:
            if self.remote_open is None:
                raise ProtocolError(ILLEGAL_STATE, "the first frame is no open")
            return
        deliveries: list[Outgoing] = []
        unknown: list[tuple[int, int]] = []
        if role is ROLE_RECEIVER:
            unsettled = session.unsettled
            if first == last:
                known = unsettled.pop(first, None) if settled else unsettled.get(first)
                if known is not None:
                    events.append(Disposed(session, True, first, last, settled, state, [known], []))
                    return
                if settled:
                    return  # settled already: dispositions may cross
            else:
                count = ((last - first) & MASK) + 1
                if count <= len(unsettled):
                    numbers: Iterable[int] = ((first + n) & MASK for n in range(count))
                else:  # a wide range costs no more than what it can mean
                    numbers = [n for n in unsettled if ((n - first) & MASK) < count]
                for number in numbers:
                    known = unsettled.pop(number, None) if settled else unsettled.get(number)
                    if known is not None:
                        deliveries.append(known)
            if not settled:
                unknown = _unknown(session, first, last, deliveries)
        events.append(
            Disposed(
                session, role is ROLE_RECEIVER, first, last, settled, state, deliveries, unknown
            )
        )


def _unknown(
    session: Session, first: int, last: int, known: list[Outgoing]
) -> list[tuple[int, int]]:
    """Runs of numbers from `first` to `last` that we gave out, and that are settled already."""
    end = min(serial_diff(last, first), serial_diff(session.next_delivery_id, first) - 1)
    runs: list[tuple[int, int]] = []
    position = 0
    for delivery in known:
        offset = (delivery.id - first) & MASK
        if offset > position:
            runs.append(((first + position) & MASK, (first + offset - 1) & MASK))
        position = offset + 1
    if position <= end:
        runs.append(((first + position) & MASK, (first + end) & MASK))
    return runs
