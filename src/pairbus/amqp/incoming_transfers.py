"""The peer's transfers: from frames to deliveries (part 2, section 2.6.12)."""

from __future__ import annotations

from pairbus.amqp.errors import ILLEGAL_STATE, NOT_ALLOWED, ProtocolError
from pairbus.amqp.events import Delivery, Event
from pairbus.amqp.link import EndState, Link, PartialDelivery, Session
from pairbus.amqp.output import OutputBuffer
from pairbus.amqp.performatives import SND_SETTLED
from pairbus.amqp.reassembly import Reassembly
from pairbus.amqp.session import SERIAL_MASK
from pairbus.amqp.transfer_codec import read_transfer
from pairbus.amqp.transfer_runs import TransferTemplate

# Looking up a member of an enum is slow in Python 3.11, and every transfer needs one.
_ACTIVE, _CLOSING = EndState.ACTIVE, EndState.CLOSING

_MAX_SHORT_NUMBER = 0xFF  # delivery numbers up to this one have shorter encodings
_MAX_USELESS_TEMPLATES = 100
"""After so many templates in a row that matched nothing, no further ones are made."""


class IncomingTransfers:
    """Turns transfer frames into `Delivery` events, and keeps session windows open."""

    __slots__ = ("_last_link", "_output", "_reassembly", "_useless_templates",
                 "max_message_size", "template")  # fmt: skip

    def __init__(self, output: OutputBuffer, reassembly: Reassembly, max_message_size: int) -> None:
        self._output = output
        self._reassembly = reassembly
        self.max_message_size = max_message_size
        self.template: TransferTemplate | None = None
        """The template for the next frame, while one link sends one message after the other."""
        self._last_link: Link | None = None
        self._useless_templates = 0

    def on_transfer(self, session: Session, body: bytes, events: list[Event]) -> None:
        """Take a transfer, whose descriptor has the short form."""
        (handle, delivery_id, tag, message_format, settled, more, mode, state, aborted,
         start) = read_transfer(body, 3)  # fmt: skip
        if session.count_incoming(1):
            self._output.send(session.channel, session.flow())
        link = session.by_handle.get(handle)
        if link is None:
            session.check_was_attached(handle)
            return
        if link.is_sender:
            raise ProtocolError(NOT_ALLOWED, "a transfer towards a sender")
        if link.state is _CLOSING:
            return  # sent before the peer got our detach
        partial = link.partial
        limit = link.max_message_size or self.max_message_size
        if partial is None:
            if delivery_id is None or tag is None:
                raise ProtocolError(ILLEGAL_STATE, "a delivery without a number or tag")
            if aborted:
                return
            link.delivery_count = (link.delivery_count + 1) & SERIAL_MASK
            if link.credit:
                link.credit -= 1
            if settled is None:
                settled = link.snd_settle_mode == SND_SETTLED
            if not more:
                payload = body[start:]
                oversize = len(payload) > limit
                events.append(
                    Delivery(link, delivery_id, tag, message_format or 0,
                             b"" if oversize else payload, settled, mode, state, oversize)
                )  # fmt: skip
                if link is not self._last_link:
                    self._last_link, self.template = link, None
                elif (
                    delivery_id > _MAX_SHORT_NUMBER
                    and self._useless_templates < _MAX_USELESS_TEMPLATES
                    and not message_format
                    and state is None
                    and mode is None
                ):
                    self._learn(link, body, tag, settled, start)
                return
            partial = link.partial = PartialDelivery(
                delivery_id, tag, message_format or 0, settled, mode, state
            )
        else:
            if delivery_id is not None and delivery_id != partial.delivery_id:
                raise ProtocolError(ILLEGAL_STATE, "two deliveries interleave on one link")
            if aborted:
                self._reassembly.discard(link)
                return
            if settled:
                partial.settled = True
            if state is not None:
                partial.state = state
        self._reassembly.add(partial, body[start:], limit)
        if not more:
            events.append(self._reassembly.finish(link, partial, limit))

    def read_run(
        self,
        template: TransferTemplate,
        data: bytes,
        pos: int,
        events: list[Event],
        max_frame_size: int,
    ) -> int:
        """Take the transfers from `pos` on that match the template; return where they end."""
        link = template.link
        if link.state is not _ACTIVE or link.partial is not None:
            self.template = None
            return pos
        known = len(events)
        limit = link.max_message_size or self.max_message_size
        pos = template.read(data, pos, events, max_frame=max_frame_size, max_message=limit)
        count = len(events) - known
        if count:
            self._useless_templates = 0
            session = link.session
            if session.count_incoming(count):
                self._output.send(session.channel, session.flow())
            link.delivery_count = (link.delivery_count + count) & SERIAL_MASK
            link.credit = max(0, link.credit - count)
        return pos

    def _learn(self, link: Link, body: bytes, tag: bytes, settled: bool, start: int) -> None:
        """Make a template: this link sends one message after the other."""
        self._useless_templates += 1
        try:
            self.template = TransferTemplate(link, body, tag, settled, start)
        except (ValueError, IndexError):
            self.template = None
