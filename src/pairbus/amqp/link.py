"""Sessions, links and deliveries: what a connection knows of each, as plain data.

The connection changes them; its users read them, and may hang an object of their own on `context`.
"""

from __future__ import annotations

import enum
from typing import Any

from pairbus.amqp.fastpath import TransferWriter
from pairbus.amqp.performatives import RCV_FIRST, SND_MIXED, Attach, Begin


class EndState(enum.Enum):
    """How far one end of a session or link has come."""

    NEW = "new"  # nothing sent and nothing received
    LOCAL = "local"  # our begin or attach is out, the peer's is not here yet
    REMOTE = "remote"  # the peer's is here, ours is not sent yet
    ACTIVE = "active"  # both
    CLOSING = "closing"  # our end or detach is out, the peer's is not here yet
    CLOSED = "closed"


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


class Session:
    """One session: a pair of channels, with its windows, links and unsettled deliveries."""

    __slots__ = (
        "begin", "by_handle", "channel", "context", "handle_max", "highest_remote_handle",
        "incoming_left", "incoming_window", "links", "next_delivery_id", "next_incoming_id",
        "next_outgoing_id", "pending", "remote_channel", "remote_incoming_window", "state",
        "unsettled",
    )  # fmt: skip

    def __init__(self, channel: int, incoming_window: int, handle_max: int) -> None:
        self.channel = channel
        self.remote_channel: int | None = None
        self.state = EndState.NEW
        self.begin: Begin | None = None
        """What the peer said in its begin."""
        self.handle_max = handle_max
        self.incoming_window = incoming_window
        self.incoming_left = incoming_window
        self.next_incoming_id = 0
        self.next_outgoing_id = 0
        self.next_delivery_id = 0
        self.remote_incoming_window = 0
        self.pending: list[bytes] = []
        """Transfer frames that wait for the peer's window."""
        self.links: dict[int, Link] = {}
        """By our handle."""
        self.by_handle: dict[int, Link] = {}
        """By the peer's handle."""
        self.highest_remote_handle = -1
        self.unsettled: dict[int, Outgoing] = {}
        """Deliveries that we sent, by their number."""
        self.context: Any = None

    def __repr__(self) -> str:
        return f"<Session {self.channel} {self.state.value}>"


class Link:
    """One link, from our end: `is_sender` says whether we send."""

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
        """What the peer said in its attach."""
        self.source: Any = None
        self.target: Any = None
        self.snd_settle_mode = SND_MIXED
        self.rcv_settle_mode = RCV_FIRST
        self.max_message_size = 0
        """The largest message that we take; 0: as large as the connection takes."""
        self.remote_max_message_size = 0
        """The largest message that the peer takes; 0: it sets no limit."""
        self.delivery_count = 0
        self.credit = 0
        """A sender: how many more it may send. A receiver: how many it still asked for."""
        self.drain = False
        self.partial: Partial | None = None
        self.writer = TransferWriter(session.channel, handle)
        self.context: Any = None

    @property
    def is_active(self) -> bool:
        """Both ends are attached."""
        return self.state is EndState.ACTIVE

    @property
    def can_send(self) -> bool:
        """A sender: a transfer would go out now, within link credit and session window."""
        session = self.session
        return (
            self.credit > 0
            and self.state is EndState.ACTIVE
            and session.remote_incoming_window > 0
            and not session.pending
        )

    def __repr__(self) -> str:
        kind = "sender" if self.is_sender else "receiver"
        return f"<Link {kind} {self.name!r} {self.state.value} credit={self.credit}>"


class Partial:
    """A delivery of which more frames are to come."""

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
