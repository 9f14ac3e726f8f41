"""The peer's actions, as reported by `Connection.receive_data`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pairbus.amqp.link import Link, Outgoing, Session
from pairbus.amqp.performatives import Attach, Begin, Error, Flow, Open
from pairbus.amqp.sasl import SaslInit


@dataclass(slots=True)
class SaslInitReceived:
    """Server: the client chose a mechanism; answer with `Connection.sasl_outcome`.

    The connection itself answers ANONYMOUS, if it was offered.
    """

    init: SaslInit


@dataclass(slots=True)
class SaslDone:
    """The SASL exchange succeeded."""

    mechanism: str


@dataclass(slots=True)
class Opened:
    """The peer's open arrived; a server answers with `Connection.open`."""

    open: Open


@dataclass(slots=True)
class Begun:
    """The peer's begin arrived; unless it answers ours, answer with `Connection.begin`."""

    session: Session
    begin: Begin


@dataclass(slots=True)
class Attached:
    """The peer's attach arrived.

    If the peer attached first (`link.state` is REMOTE), answer with `Connection.attach_reply`, or
    refuse it with `Connection.detach`. A peer that refuses our attach answers with a null terminus,
    and `Detached` follows.
    """

    link: Link
    attach: Attach


@dataclass(slots=True, eq=False)
class Delivery:
    """A whole message arrived on a receiving link."""

    link: Link
    delivery_id: int
    tag: bytes
    message_format: int
    payload: bytes
    settled: bool
    rcv_settle_mode: int | None = None
    state: Any = None
    oversize: bool = False
    """The message was larger than the link accepts: its payload was dropped on arrival."""

    def __repr__(self) -> str:
        return f"<Delivery {self.delivery_id} of {len(self.payload)} bytes on {self.link.name!r}>"


@dataclass(slots=True, eq=False)
class Disposed:
    """The peer reported the state of deliveries `first` to `last`.

    With `by_receiver` the peer is their receiver, and `deliveries` are those of ours that it
    reports on. Otherwise it is their sender, and settles or changes deliveries that it sent to us.
    `unknown` are runs of delivery numbers (first and last of each) that the peer expects us to
    settle although they are not open any more.
    """

    session: Session
    by_receiver: bool
    first: int
    last: int
    settled: bool
    state: Any
    deliveries: list[Outgoing]
    unknown: list[tuple[int, int]]

    def __repr__(self) -> str:
        return f"<Disposed {self.first}-{self.last} settled={self.settled} {self.state!r}>"


@dataclass(slots=True)
class Flowed:
    """The peer's flow arrived; `link` has the new credit and drain, or is None (session only)."""

    session: Session
    link: Link | None
    flow: Flow


@dataclass(slots=True)
class Detached:
    """The peer detached the link; the connection has answered if necessary."""

    link: Link
    error: Error | None
    closed: bool


@dataclass(slots=True)
class Ended:
    """The peer ended the session with all its links."""

    session: Session
    error: Error | None


@dataclass(slots=True)
class Closed:
    """The peer closed the connection."""

    error: Error | None


Event = (
    SaslInitReceived | SaslDone | Opened | Begun | Attached | Delivery | Disposed | Flowed
    | Detached | Ended | Closed
)  # fmt: skip
