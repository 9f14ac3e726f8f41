"""An AMQP 1.0 connection without I/O, for both roles.

Pass the bytes that arrived to `receive_data` and get the peer's actions as events; call an
operation (`attach_sender`, `transfer`, ...) and write the bytes that `data_to_send` returns. The
connection reads no clock: `tick(now)` does everything that depends on time, and `next_deadline`
says when to call it again.

    CLIENT                                   SERVER
    Connection(Role.CLIENT, ...)             Connection(Role.SERVER, ...)
    open(); begin(); attach_sender(...)      ... Opened -> open(), Begun -> begin(session)
                                             ... Attached -> attach_reply(link) or detach(link, e)
    ... Attached, Flowed -> transfer(...)    flow(link, credit) ... Delivery -> settle(...)

The peer's detach, end and close are answered immediately, as are its requests for an echo. Frames
on channels and handles that are gone are ignored: they crossed our own end or detach.

A violation raises `ProtocolError`. The close frame with its condition is then in `data_to_send`,
and the connection is over. We keep to the peer's session windows, but do not enforce ours:
azure-servicebus counts deliveries where the specification counts frames.

A connection consists of parts with one job each:

    InputBuffer         joins received chunks to frames
    ClientHandshake,
    ServerHandshake     protocol headers and SASL
    SessionTable        begin and end
    LinkTable           attach, flow and detach
    IncomingTransfers   transfer frames to deliveries, with Reassembly for those in many frames
    OutgoingTransfers   messages to transfer frames
    Dispositions        settlement in both directions
    IdleTimer           heartbeats and silence
    OutputBuffer        the bytes that all others write
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pairbus.amqp.composite import decode_composite
from pairbus.amqp.decoder import MALFORMED, skip_plain
from pairbus.amqp.disposition_codec import read_disposition
from pairbus.amqp.dispositions import Dispositions
from pairbus.amqp.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    ProtocolError,
)
from pairbus.amqp.events import Closed, Event, Opened
from pairbus.amqp.frames import (
    AMQP_FRAME,
    EMPTY_FRAME,
    FRAME_HEADER,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
)
from pairbus.amqp.handshake import ClientHandshake, Phase, Role, ServerHandshake
from pairbus.amqp.idle import IdleTimer
from pairbus.amqp.incoming_transfers import IncomingTransfers
from pairbus.amqp.input import InputBuffer
from pairbus.amqp.link_table import LinkTable
from pairbus.amqp.outgoing_transfers import OutgoingTransfers
from pairbus.amqp.output import OutputBuffer
from pairbus.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Transfer,
)
from pairbus.amqp.reassembly import Reassembly
from pairbus.amqp.sasl import ANONYMOUS, Mechanism
from pairbus.amqp.session import Session
from pairbus.amqp.session_table import SessionTable

__all__ = ["Connection", "Phase", "Role"]

_frame_header = FRAME_HEADER.unpack_from
_TRANSFER = b"\x00\x53\x14"
_DISPOSITION = b"\x00\x53\x15"
# Looking up a member of an enum is slow in Python 3.11, and `_parse` needs several per frame.
_HEADER, _SASL, _AMQP_HEADER = Phase.HEADER, Phase.SASL, Phase.AMQP_HEADER
_OPEN, _CLOSED = Phase.OPEN, Phase.CLOSED


class Connection:
    """One AMQP connection, sans I/O. Not thread-safe: one owner at a time."""

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
        incoming_window: int = 1 << 16,
        max_message_size: int = 100 << 20,
        sasl: Mechanism | None = ANONYMOUS,
        sasl_mechanisms: Iterable[str] = ("ANONYMOUS",),
        require_sasl: bool = True,
    ) -> None:
        """Set up a connection.

        Args:
            role: client or server.
            container_id: our name, in our open.
            hostname: client: the host that we want to talk to.
            max_frame_size: the largest frame that we accept.
            channel_max: the highest channel that the peer may use, which limits its sessions.
            handle_max: the highest handle of a session, which limits its links.
            idle_time_out: seconds of silence after which the peer counts as gone.
            properties: of our open.
            incoming_window: transfer frames that a session accepts before we grant more.
            max_message_size: the largest message that any link accepts.
            sasl: client: the mechanism to use; None leaves SASL out.
            sasl_mechanisms: server: the mechanisms to offer.
            require_sasl: server: refuse clients that leave SASL out.
        """
        self.role = role
        self.max_frame_size = max_frame_size
        self.max_message_size = max_message_size
        self.idle_time_out = idle_time_out
        self.remote_open: Open | None = None
        """The peer's open."""
        self.phase = Phase.HEADER
        self.is_open_sent = False
        self._open = Open(
            container_id,
            hostname,
            channel_max=channel_max,
            # Half of our timeout, because the network delays heartbeats (part 2, section 2.4.5).
            idle_time_out=None if idle_time_out is None else int(idle_time_out * 1000) // 2,
            properties=dict(properties) if properties else None,
        )
        self._failure: ProtocolError | None = None
        self._input = InputBuffer()
        self._output = output = OutputBuffer()
        self._idle = IdleTimer(idle_time_out)
        self._handshake: ClientHandshake | ServerHandshake = (
            ClientHandshake(output, hostname=hostname, mechanism=sasl)
            if role is Role.CLIENT
            else ServerHandshake(output, mechanisms=sasl_mechanisms, require_sasl=require_sasl)
        )
        reassembly = Reassembly(max_message_size)
        self._sessions = sessions = SessionTable(
            output,
            reassembly,
            channel_max=channel_max,
            handle_max=handle_max,
            incoming_window=incoming_window,
        )
        links = LinkTable(output, reassembly)
        self._incoming = IncomingTransfers(output, reassembly, max_message_size)
        self._outgoing = outgoing = OutgoingTransfers(output)
        self._dispositions = dispositions = Dispositions(output)

        # The operations of the parts are operations of the connection. They are bound here, once,
        # rather than wrapped in methods: a wrapper with the same keywords would cost a transfer
        # or a settlement a tenth of its time.
        self.sessions = sessions.by_channel
        """By our channel."""
        self.begin = sessions.begin
        self.end = sessions.end
        self.attach_sender = links.attach_sender
        self.attach_receiver = links.attach_receiver
        self.attach_reply = links.attach_reply
        self.detach = links.detach
        self.flow = links.flow
        self.drained = links.drained
        self.transfer = outgoing.transfer
        self.transfer_many = outgoing.transfer_many
        self.settle = dispositions.settle
        self.settle_unknown = dispositions.settle_unknown
        self.forget = dispositions.forget

        self._handlers: dict[type, Callable[[int, Any, list[Event]], None]] = {
            Open: self._on_open,
            Begin: sessions.on_begin,
            Close: self._on_close,
        }
        self._session_handlers: dict[type, Callable[[Session, Any, list[Event]], None]] = {
            Attach: links.on_attach,
            Flow: links.on_flow,
            Disposition: dispositions.on_disposition,
            Detach: links.on_detach,
            End: sessions.on_end,
        }

    # -- bytes ---------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Return the bytes to write to the peer now; empty if there are none."""
        data = self._output.take()
        if data:
            self._idle.has_sent = True
        return data

    @property
    def has_data_to_send(self) -> bool:
        """`data_to_send` would return something."""
        return bool(self._output)

    def receive_data(self, data: bytes) -> list[Event]:
        """Process bytes from the peer; return the resulting events, in order.

        Raises:
            ProtocolError: the peer broke the protocol; `.events` are the events before. Write
                `data_to_send`, which reports the error to the peer, and drop the connection.
        """
        if self._failure is not None:
            raise self._failure
        self._idle.has_received = True
        # An empty buffer is bypassed: most packets are whole frames.
        whole = data if type(data) is bytes and not self._input.size else self._input.add(data)
        if whole is None:
            return []
        events: list[Event] = []
        try:
            pos, needed = self._parse(whole, events)
        except ProtocolError as exc:
            self._fail(exc, events)
            raise
        except MALFORMED as exc:
            failure = ProtocolError(DECODE_ERROR, "a performative is cut short or malformed")
            self._fail(failure, events)
            raise failure from exc
        if pos < len(whole):
            self._input.keep(whole[pos:], needed)
        return events

    def _parse(self, data: bytes, events: list[Event]) -> tuple[int, int]:
        """Take all complete frames; return where the next starts and how long it is."""
        pos = 0
        total = len(data)
        incoming = self._incoming
        by_channel = self._sessions.by_remote_channel
        if self.phase is Phase.SASL_DECISION:
            return 0, 0
        while True:
            phase = self.phase
            if phase is _CLOSED:
                return total, 0
            if total - pos < 8:
                return pos, 8
            if phase is _HEADER or phase is _AMQP_HEADER:
                self.phase = self._handshake.on_header(data[pos : pos + 8])
                pos += 8
                continue
            if incoming.template is not None:
                pos = incoming.read_run(incoming.template, data, pos, events, self.max_frame_size)
                if total - pos < 8:
                    return pos, 8
            size, doff, kind, channel = _frame_header(data, pos)
            if size < 8 or doff < 2 or doff * 4 > size:
                raise ProtocolError(FRAMING_ERROR, "malformed frame header")
            if size > self.max_frame_size:
                raise ProtocolError(FRAMING_ERROR, f"a frame of {size} bytes is too large")
            end = pos + size
            if end > total:
                return pos, size
            body = data[pos + 4 * doff : end]
            pos = end
            if phase is _SASL:
                if kind != SASL_FRAME:
                    raise ProtocolError(FRAMING_ERROR, "expected a SASL frame")
                self.phase = self._handshake.on_sasl_frame(body, events)
                if self.phase is Phase.SASL_DECISION:
                    return pos, 0  # a client may send its AMQP header before it has the outcome
            elif kind != AMQP_FRAME:
                raise ProtocolError(FRAMING_ERROR, f"unexpected frame type {kind}")
            elif body:
                if body[:3] == _TRANSFER and phase is not _OPEN:
                    session = by_channel.get(channel)
                    if session is not None:
                        incoming.on_transfer(session, body, events)
                else:
                    self._on_frame(channel, body, events)

    def _on_frame(self, channel: int, body: bytes, events: list[Event]) -> None:
        is_first = self.phase is _OPEN
        session = self._sessions.by_remote_channel.get(channel)
        if body[:3] == _DISPOSITION and not is_first:
            fields = read_disposition(body, 3)
            if fields is not None:  # one of the usual encodings
                if session is not None:
                    self._dispositions.apply(session, *fields, events)
                return
        performative, end = decode_composite(body)
        if is_first and not isinstance(performative, Open | Close):
            raise ProtocolError(ILLEGAL_STATE, "the first frame is not an open")
        if isinstance(performative, Transfer):  # its descriptor has one of the longer forms
            after_descriptor = body[skip_plain(body, 1, body[1]) :]
            if session is not None:
                self._incoming.on_transfer(session, _TRANSFER + after_descriptor, events)
            return
        if end != len(body):
            raise ProtocolError(FRAMING_ERROR, "bytes after a performative")
        if (of_session := self._session_handlers.get(type(performative))) is not None:
            if session is not None:
                of_session(session, performative, events)
        elif (handler := self._handlers.get(type(performative))) is not None:
            handler(channel, performative, events)
        else:
            raise ProtocolError(NOT_ALLOWED, "a frame without a performative")

    # -- open and close ------------------------------------------------------------------------

    def open(self, **changes: Any) -> None:
        """Send our open; keyword arguments override its fields."""
        self.is_open_sent = True
        fields = {"max_frame_size": self.max_frame_size, **changes}
        self._output.send(0, dataclasses.replace(self._open, **fields))

    def close(self, error: Error | None = None) -> None:
        """Close the connection; a second call does nothing, and nothing is sent after it."""
        if self._output.is_closed:
            return
        self._output.send(0, Close(error))
        self._output.close()
        self._idle.stop_heartbeats()

    @property
    def is_closed(self) -> bool:
        """Nothing more will be read: the peer closed, or broke the protocol."""
        return self.phase is Phase.CLOSED

    def sasl_outcome(self, code: int) -> None:
        """Server: answer `SaslInitReceived`; 0 admits the client, any other code does not.

        Bytes that arrived together with the client's choice are processed by the next call of
        `receive_data`, which may be called with no bytes.
        """
        if not isinstance(self._handshake, ServerHandshake):
            raise ValueError("only a server decides the outcome of SASL")
        self.phase = self._handshake.sasl_outcome(code)

    def _on_open(self, channel: int, performative: Open, events: list[Event]) -> None:
        if self.phase is not _OPEN:
            raise ProtocolError(ILLEGAL_STATE, "a second open")
        self.remote_open = self._sessions.remote_open = performative
        self._outgoing.max_frame_size = max(performative.max_frame_size, MIN_MAX_FRAME_SIZE)
        self._idle.request_heartbeats(performative.idle_time_out)
        self.phase = Phase.FRAMES
        events.append(Opened(performative))

    def _on_close(self, channel: int, close: Close, events: list[Event]) -> None:
        self._send_last_close(None)
        self.phase = Phase.CLOSED
        self._sessions.close_all()
        events.append(Closed(close.error))

    def _fail(self, exc: ProtocolError, events: list[Event]) -> None:
        exc.events = tuple(events)
        self._failure = exc
        if self.phase in (Phase.OPEN, Phase.FRAMES):
            self._send_last_close(Error.of(exc))
        self.phase = Phase.CLOSED

    def _send_last_close(self, error: Error | None) -> None:
        if not self.is_open_sent:
            self.open()  # a close must follow an open (part 2, section 2.4.3)
        self.close(error)

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Send a heartbeat if one is due, and give up on a silent peer.

        Raises:
            ProtocolError: nothing came from the peer for `idle_time_out` seconds.
        """
        if self.phase is Phase.CLOSED:
            return
        self._idle.update(now)
        if self._idle.is_peer_silent(now):
            failure = ProtocolError(
                RESOURCE_LIMIT_EXCEEDED, f"silent for {self.idle_time_out:g} seconds"
            )
            self._fail(failure, [])
            raise failure
        if not self._output and self._idle.is_heartbeat_due(now):
            self._output.write(EMPTY_FRAME)

    def next_deadline(self) -> float | None:
        """Return when to call `tick` again, or None while there is nothing to do.

        Valid after the first `tick`; activity since the last one only makes it later.
        """
        return None if self.phase is Phase.CLOSED else self._idle.next_deadline()

    def __repr__(self) -> str:
        return f"<Connection {self.role.value} {self.phase.value} sessions={len(self.sessions)}>"
