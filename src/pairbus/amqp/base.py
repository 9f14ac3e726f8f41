"""What every part of a connection stands on: its settings, its state, its output, its clock."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pairbus.amqp import sasl as sasl_codes
from pairbus.amqp.composite import Composite
from pairbus.amqp.errors import ProtocolError
from pairbus.amqp.frames import AMQP_HEADER, MIN_MAX_FRAME_SIZE, SASL_HEADER, frame
from pairbus.amqp.link import EndState, Link, Session
from pairbus.amqp.performatives import Open, SaslInit

if TYPE_CHECKING:
    from pairbus.amqp.alike import Shape

MASK = 0xFFFFFFFF


def serial_diff(a: int, b: int) -> int:
    """a - b in RFC 1982 serial numbers: between -2**31 and 2**31 - 1."""
    return ((a - b + 0x80000000) & MASK) - 0x80000000


def free(taken: Mapping[int, Any]) -> int:
    """The lowest number that is not taken."""
    number = 0
    while number in taken:
        number += 1
    return number


class Role(enum.Enum):
    """Which end of the connection this is."""

    CLIENT = "client"
    SERVER = "server"


class Phase(enum.Enum):
    """What the connection reads next."""

    HEADER = "header"  # the peer's first protocol header
    SASL = "sasl"  # SASL frames
    AMQP_HEADER = "amqp-header"  # the protocol header after SASL
    FRAMES = "frames"  # AMQP frames
    CLOSED = "closed"  # nothing: the peer closed, or broke the protocol


class ConnectionBase:
    """Settings and state of one connection; see `Connection`."""

    def __init__(
        self,
        role: Role,
        *,
        container_id: str = "pairbus",
        hostname: str | None = None,
        max_frame_size: int = 1 << 20,
        channel_max: int = 255,
        handle_max: int = 1023,
        idle_time_out: float | None = None,
        properties: Mapping[str, Any] | None = None,
        offered_capabilities: list[str] | None = None,
        desired_capabilities: list[str] | None = None,
        incoming_window: int = 1 << 16,
        max_message_size: int = 100 << 20,
        sasl: sasl_codes.Mechanism | None = sasl_codes.ANONYMOUS,
        sasl_mechanisms: Iterable[str] = ("ANONYMOUS",),
        require_sasl: bool = True,
        strict_windows: bool = False,
    ) -> None:
        """Set up a connection.

        Args:
            role: client or server.
            container_id: who we are, in our open.
            hostname: client: the host we want to talk to.
            max_frame_size: the largest frame that we take.
            channel_max: the highest channel that the peer may use, and so its number of sessions.
            handle_max: the highest handle of a session, and so its number of links.
            idle_time_out: seconds of silence from the peer after which it counts as gone.
            properties: of our open.
            offered_capabilities: of our open.
            desired_capabilities: of our open.
            incoming_window: frames that a session takes before we grant more, by ourselves.
            max_message_size: the largest message that any link takes.
            sasl: client: the mechanism to use; None to do without SASL.
            sasl_mechanisms: server: what to offer.
            require_sasl: server: refuse clients that skip SASL.
            strict_windows: believe the peer's count of frames as the specification does.
        """
        self.role = role
        self.container_id = container_id
        self.hostname = hostname
        self.max_frame_size = max_frame_size
        self.channel_max = channel_max
        self.handle_max = handle_max
        self.idle_time_out = idle_time_out
        self.properties = dict(properties) if properties else None
        self.offered_capabilities = offered_capabilities
        self.desired_capabilities = desired_capabilities
        self.max_message_size = max_message_size
        self.remote_open: Open | None = None
        """What the peer said in its open."""
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self.phase = Phase.HEADER
        self.sessions: dict[int, Session] = {}
        """By our channel."""
        self.is_open_sent = False
        self.is_close_sent = False
        self._incoming_window = incoming_window
        self._sasl = sasl
        self._mechanisms = list(sasl_mechanisms)
        self._require_sasl = require_sasl
        self._strict_windows = strict_windows
        self._by_remote_channel: dict[int, Session] = {}
        self._sasl_init: SaslInit | None = None
        self._is_sasl_done = False
        self._out: list[bytes] = []
        self._held: list[bytes] | None = None  # what waits for the end of SASL
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._needed = 8
        self._partial_bytes = 0
        self._last_link: Link | None = None  # the one that got the last whole transfer
        self._shape: Shape | None = None  # of its transfers
        self._unlike = 0
        self._failure: ProtocolError | None = None
        self._is_heard = False
        self._last_heard: float | None = None
        self._last_sent: float | None = None
        self._has_sent = False
        if role is Role.CLIENT:
            if sasl is None:
                self._out.append(AMQP_HEADER)
                self._is_sasl_done = True
            else:
                self._out.append(SASL_HEADER)
                self._held = []

    @property
    def is_closed(self) -> bool:
        """Nothing more will be read: the peer closed, or broke the protocol."""
        return self.phase is Phase.CLOSED

    def data_to_send(self) -> bytes:
        """What is to be written to the peer now; empty if nothing."""
        out = self._out
        if not out:
            return b""
        self._has_sent = True
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    @property
    def has_data_to_send(self) -> bool:
        """`data_to_send` would give something."""
        return bool(self._out)

    def _emit(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
        elif not self.is_close_sent:
            self._out.append(data)

    def _send(self, channel: int, performative: Composite) -> None:
        self._emit(frame(channel, performative.encode()))

    def _drop_partial(self, link: Link) -> None:
        if link.partial is not None:
            self._partial_bytes -= len(link.partial.data)
            link.partial = None

    def _drop_links(self, session: Session) -> None:
        for link in session.links.values():
            link.state = EndState.CLOSED
            self._drop_partial(link)
        session.links.clear()
        session.by_handle.clear()
        session.unsettled.clear()
        session.pending.clear()

    def __repr__(self) -> str:
        return f"<Connection {self.role.value} {self.phase.value} sessions={len(self.sessions)}>"
