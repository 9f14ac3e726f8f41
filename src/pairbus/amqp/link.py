"""Links and the deliveries on them (part 2, section 2.6), one object each."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from pairbus.amqp.performatives import RCV_FIRST, SND_MIXED, Attach, Flow
from pairbus.amqp.session import EndState, Session, serial_diff
from pairbus.amqp.transfer_codec import TransferWriter

__all__ = ["EndState", "Link", "Outgoing", "PartialDelivery", "Session"]


_ACTIVE = EndState.ACTIVE  # looking up a member of an enum is slow in Python 3.11


@dataclass(slots=True, eq=False)
class Outgoing:
    """A delivery that we sent and that is not settled yet."""

    id: int
    link: Link
    tag: bytes
    context: Any

    def __repr__(self) -> str:
        return f"<Outgoing {self.id} on {self.link.name!r}>"


@dataclass(slots=True, eq=False)
class Link:
    """One link, from our end: `is_sender` says whether we send.

    Users read it and may attach an object to `context`.
    """

    session: Session
    name: str
    handle: int
    _: KW_ONLY
    is_sender: bool
    state: EndState
    source: Any = None
    target: Any = None
    snd_settle_mode: int = SND_MIXED
    rcv_settle_mode: int = RCV_FIRST
    max_message_size: int = 0
    """The largest message that we accept; 0: the limit of the connection."""
    context: Any = None
    remote_handle: int | None = None
    attach: Attach | None = None
    """The peer's attach."""
    remote_max_message_size: int = 0
    """The largest message that the peer accepts; 0: it sets no limit."""
    delivery_count: int = 0
    credit: int = 0
    """Sender: the number of messages it may send. Receiver: the number it still expects."""
    drain: bool = False
    partial: PartialDelivery | None = None
    writer: TransferWriter = field(init=False)

    def __post_init__(self) -> None:
        self.writer = TransferWriter(self.session.channel, self.handle)

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


@dataclass(slots=True, eq=False, repr=False)  # the data is that of a message
class PartialDelivery:
    """A delivery of which more frames are expected."""

    delivery_id: int
    tag: bytes
    message_format: int
    settled: bool
    mode: int | None
    state: Any
    data: bytearray = field(default_factory=bytearray)
    size: int = 0
