"""Links and the deliveries on them (part 2, section 2.6), one object each."""

from __future__ import annotations

from typing import Any

from pairbus.amqp.performatives import RCV_FIRST, SND_MIXED, Attach, Flow
from pairbus.amqp.session import EndState, Session, serial_diff
from pairbus.amqp.transfer_codec import TransferWriter

__all__ = ["EndState", "Link", "Outgoing", "PartialDelivery", "Session"]


_ACTIVE = EndState.ACTIVE  # looking up a member of an enum is slow in Python 3.11


class Outgoing:
    """A delivery that we sent and that is not settled yet."""

    __slots__ = ("context", "id", "link", "tag")

    def __init__(self, delivery_id: int, link: Link, tag: bytes, context: Any) -> None:
        self.id = delivery_id
        self.link = link
        self.tag = tag
        self.context = context

    def __repr__(self) -> str:
        return f"<Outgoing {self.id} on {self.link.name!r}>"


class Link:
    """One link, from our end: `is_sender` says whether we send.

    Users read it and may attach an object to `context`.
    """

    __slots__ = (
        "attach", "context", "credit", "delivery_count", "drain", "handle", "is_sender",
        "max_message_size", "name", "partial", "rcv_settle_mode", "remote_handle",
        "remote_max_message_size", "session", "snd_settle_mode", "source", "state", "target",
        "writer",
    )  # fmt: skip

    def __init__(self, session: Session, name: str, handle: int, *, is_sender: bool) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.is_sender = is_sender
        self.remote_handle: int | None = None
        self.state = EndState.NEW
        self.attach: Attach | None = None
        """The peer's attach."""
        self.source: Any = None
        self.target: Any = None
        self.snd_settle_mode = SND_MIXED
        self.rcv_settle_mode = RCV_FIRST
        self.max_message_size = 0
        """The largest message that we accept; 0: the limit of the connection."""
        self.remote_max_message_size = 0
        """The largest message that the peer accepts; 0: it sets no limit."""
        self.delivery_count = 0
        self.credit = 0
        """Sender: the number of messages it may send. Receiver: the number it still expects."""
        self.drain = False
        self.partial: PartialDelivery | None = None
        self.writer = TransferWriter(session.channel, handle)
        self.context: Any = None

    @property
    def is_active(self) -> bool:
        """Both ends are attached."""
        return self.state is _ACTIVE

    def update_credit(self, flow: Flow) -> None:
        """Apply the peer's flow to credit and drain (part 2, section 2.6.7)."""
        if self.is_sender:
            if flow.link_credit is not None:
                in_flight = 0
                if flow.delivery_count is not None:
                    in_flight = serial_diff(self.delivery_count, flow.delivery_count)
                self.credit = max(0, flow.link_credit - in_flight)
            self.drain = flow.drain
        elif flow.delivery_count is not None:
            # A sender returns credit after a drain by advancing its delivery-count.
            returned = serial_diff(flow.delivery_count, self.delivery_count)
            if 0 < returned <= self.credit:
                self.credit -= returned
                self.delivery_count = flow.delivery_count
            if self.credit == 0:
                self.drain = False

    def __repr__(self) -> str:
        kind = "sender" if self.is_sender else "receiver"
        return f"<Link {kind} {self.name!r} {self.state.value} credit={self.credit}>"


class PartialDelivery:
    """A delivery of which more frames are expected."""

    __slots__ = ("data", "delivery_id", "message_format", "mode", "settled", "size", "state",
                 "tag")  # fmt: skip

    def __init__(
        self,
        delivery_id: int,
        tag: bytes,
        message_format: int,
        settled: bool,
        mode: int | None,
        state: Any,
    ) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.settled = settled
        self.mode = mode
        self.state = state
        self.data = bytearray()
        self.size = 0
