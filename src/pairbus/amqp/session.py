"""One session: its windows, its links and the deliveries that it sent (part 2, section 2.5)."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pairbus.amqp.errors import UNATTACHED_HANDLE, ProtocolError
from pairbus.amqp.performatives import Begin, Flow

if TYPE_CHECKING:
    from pairbus.amqp.link import Link, Outgoing

SERIAL_MASK = 0xFFFFFFFF
"""Delivery numbers and transfer numbers count modulo 2**32 (RFC 1982)."""


def serial_diff(a: int, b: int) -> int:
    """Return a - b in serial numbers: between -2**31 and 2**31 - 1."""
    return ((a - b + 0x80000000) & SERIAL_MASK) - 0x80000000


def free_number(taken: Mapping[int, Any]) -> int:
    """Return a number that is not a key of `taken` and not above their count."""
    # If this number is taken, a lower one is free. Numbers given out in turn need no search.
    number = len(taken)
    while number in taken:
        number -= 1
    return number


class EndState(enum.Enum):
    """How far one end of a session or link has come."""

    LOCAL = "local"  # our begin or attach is sent, the peer's has not arrived
    REMOTE = "remote"  # the peer's begin or attach has arrived, ours is not sent
    ACTIVE = "active"  # both
    CLOSING = "closing"  # our end or detach is sent, the peer's has not arrived
    CLOSED = "closed"


@dataclass(slots=True, eq=False)
class Session:
    """One session, from our end. Users read it and may attach an object to `context`."""

    channel: int
    incoming_window: int
    handle_max: int
    state: EndState
    remote_channel: int | None = None
    begin: Begin | None = None
    """The peer's begin."""
    incoming_left: int = field(init=False)
    next_incoming_id: int = 0
    next_outgoing_id: int = 0
    next_delivery_id: int = 0
    remote_incoming_window: int = 0
    pending: deque[tuple[Link, Iterator[bytes]]] = field(default_factory=deque)
    """Deliveries that wait for the peer's window: their links, and the frames still to send.

    Empty whenever the window has room."""
    links: dict[int, Link] = field(default_factory=dict)
    """By our handle."""
    by_handle: dict[int, Link] = field(default_factory=dict)
    """By the peer's handle."""
    highest_remote_handle: int = -1
    unsettled: dict[int, Outgoing] = field(default_factory=dict)
    """Deliveries that we sent and that are not settled, by their number."""
    context: Any = None

    def __post_init__(self) -> None:
        self.incoming_left = self.incoming_window

    def count_incoming(self, frames: int) -> bool:
        """Count transfer frames that arrived; return whether the peer needs a new window.

        A window is renewed when half of it is used, so that the peer need not wait for it.
        """
        self.next_incoming_id = (self.next_incoming_id + frames) & SERIAL_MASK
        self.incoming_left -= frames
        if self.incoming_left * 2 < self.incoming_window:
            self.incoming_left = self.incoming_window
            return self.state is EndState.ACTIVE
        return False

    def count_outgoing(self, frames: int) -> None:
        """Count transfer frames that were sent against the peer's window."""
        self.remote_incoming_window -= frames
        self.next_outgoing_id = (self.next_outgoing_id + frames) & SERIAL_MASK

    def take_sendable(self) -> list[bytes]:
        """Take the pending transfer frames that the peer's window has room for."""
        sendable: list[bytes] = []
        while self.pending and self.remote_incoming_window > len(sendable):
            frame = next(self.pending[0][1], None)
            if frame is None:
                self.pending.popleft()
            else:
                sendable.append(frame)
        self.count_outgoing(len(sendable))
        return sendable

    def drop_pending(self, link: Link) -> None:
        """Drop the deliveries of a link that is detached."""
        self.pending = deque(waiting for waiting in self.pending if waiting[0] is not link)

    def flow(self, link: Link | None = None) -> Flow:
        """Return the flow that reports the windows, and the credit of `link` if given."""
        flow = Flow(
            next_incoming_id=self.next_incoming_id if self.begin is not None else None,
            incoming_window=self.incoming_left,
            next_outgoing_id=self.next_outgoing_id,
            outgoing_window=self.incoming_window,
        )
        if link is not None:
            flow.handle = link.handle
            flow.delivery_count = link.delivery_count
            flow.link_credit = link.credit
            flow.drain = link.drain
            flow.available = 0 if link.is_sender else None
        return flow

    def check_was_attached(self, handle: int) -> None:
        """Accept a frame for a link that is gone (it crossed our detach).

        Raises:
            ProtocolError: no link was ever attached to the handle.
        """
        if handle > self.highest_remote_handle and self.state is not EndState.CLOSING:
            raise ProtocolError(UNATTACHED_HANDLE, f"handle {handle} was never attached")

    def __repr__(self) -> str:
        return f"<Session {self.channel} {self.state.value}>"
