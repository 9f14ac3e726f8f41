"""An AMQP 1.0 connection without I/O, for both roles.

Hand it the bytes that arrived (`receive_data`), get back what the peer did (events); call what you
want done (`attach`, `transfer`, ...), and write out what `data_to_send` gives. It reads no clock:
`tick(now)` does what time demands, and `next_deadline` says when to call it again.

    CLIENT                                   SERVER
    Connection(Role.CLIENT, ...)             Connection(Role.SERVER, ...)
    open(); begin(); attach_sender(...)      ... Opened -> open(), Begun -> begin(session)
                                             ... Attached -> attach_reply(link) or refuse(link, e)
    ... Attached, Flowed -> transfer(...)    flow(link, credit) ... Delivery -> settle(...)

The peer's detach, end and close are answered at once, as are its requests for an echo. Frames on
channels and handles that are gone are ignored: peers send them legitimately, having crossed ours.

A violation raises `ProtocolError`; the close frame that tells the peer is then in `data_to_send`,
and the connection is over. Session windows are kept towards the peer, and not enforced upon it:
azure-servicebus counts deliveries where the specification counts frames.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from pairbus.amqp import sasl as sasl_codes
from pairbus.amqp.composite import Composite, decode_composite
from pairbus.amqp.decoder import MALFORMED, skip_plain
from pairbus.amqp.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    UNAUTHORIZED_ACCESS,
    AmqpError,
    ProtocolError,
)
from pairbus.amqp.events import (
    Attached,
    Begun,
    Closed,
    Delivery,
    Detached,
    Disposed,
    Ended,
    Event,
    Flowed,
    Opened,
    SaslDone,
    SaslInitReceived,
)
from pairbus.amqp.fastpath import disposition_frame, encode_state, read_disposition, read_transfer
from pairbus.amqp.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    EMPTY_FRAME,
    FRAME_HEADER,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    frame,
    sasl_frame,
)
from pairbus.amqp.link import EndState, Link, Outgoing, Partial, Session
from pairbus.amqp.performatives import (
    RCV_FIRST,
    ROLE_RECEIVER,
    ROLE_SENDER,
    SND_MIXED,
    SND_SETTLED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Transfer,
)

_frame_header = FRAME_HEADER.unpack_from
_MASK = 0xFFFFFFFF
_TRANSFER_OVERHEAD = 64  # a bound for a transfer frame without its tag, state and payload


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


def _serial_diff(a: int, b: int) -> int:
    """a - b in RFC 1982 serial numbers: between -2**31 and 2**31 - 1."""
    return ((a - b + 0x80000000) & _MASK) - 0x80000000


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

    # -- bytes in, bytes out ---------------------------------------------------------------

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

    def receive_data(self, data: bytes) -> list[Event]:
        """Take bytes from the peer; give what they mean, in order.

        Raises:
            ProtocolError: the peer broke the protocol; `.events` has what came before. Write out
                `data_to_send` (it tells the peer) and drop the connection.
        """
        if self._failure is not None:
            raise self._failure
        self._is_heard = True
        self._buffered += len(data)
        if self._buffered < self._needed:
            # Nothing is joined before a frame is whole, so that small packets cost no more.
            self._chunks.append(data)
            return []
        if self._chunks:
            self._chunks.append(data)
            data = b"".join(self._chunks)
            self._chunks = []
        elif type(data) is not bytes:
            data = bytes(data)
        events: list[Event] = []
        try:
            pos = self._parse(data, events)
        except ProtocolError as exc:
            self._fail(exc, events)
            raise
        except MALFORMED as exc:
            failure = ProtocolError(DECODE_ERROR, "a performative is cut short or malformed")
            self._fail(failure, events)
            raise failure from exc
        if pos < len(data):
            self._chunks = [data[pos:] if pos else data]
        self._buffered = len(data) - pos
        return events

    def _parse(self, data: bytes, events: list[Event]) -> int:
        pos = 0
        total = len(data)
        while True:
            phase = self.phase
            if phase is Phase.CLOSED:
                self._needed = 1
                return total
            if total - pos < 8:
                self._needed = 8
                return pos
            if phase is Phase.HEADER or phase is Phase.AMQP_HEADER:
                self._on_header(data[pos : pos + 8])
                pos += 8
                continue
            size, doff, kind, channel = _frame_header(data, pos)
            if size < 8 or doff < 2 or doff * 4 > size:
                raise ProtocolError(FRAMING_ERROR, "malformed frame header")
            if size > self.max_frame_size:
                raise ProtocolError(FRAMING_ERROR, f"a frame of {size} bytes is too large")
            end = pos + size
            if end > total:
                self._needed = size
                return pos
            body = data[pos + 4 * doff : end]
            pos = end
            if phase is Phase.SASL:
                if kind != SASL_FRAME:
                    raise ProtocolError(FRAMING_ERROR, "expected a SASL frame")
                self._on_sasl(body, events)
            elif kind != AMQP_FRAME:
                raise ProtocolError(FRAMING_ERROR, f"unexpected frame type {kind}")
            elif body:
                if body[:3] == b"\x00\x53\x14":
                    self._on_transfer(channel, body, events)
                else:
                    self._on_frame(channel, body, events)

    def _fail(self, exc: ProtocolError, events: list[Event]) -> None:
        exc.events = tuple(events)
        self._failure = exc
        if self.phase is Phase.FRAMES and not self.is_close_sent:
            if not self.is_open_sent:
                self.open()
            self.close(Error.of(exc))
        self.phase = Phase.CLOSED

    def _emit(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
        elif not self.is_close_sent:
            self._out.append(data)

    def _send(self, channel: int, performative: Composite) -> None:
        self._emit(frame(channel, performative.encode()))

    # -- headers and SASL ------------------------------------------------------------------

    def _on_header(self, header: bytes) -> None:
        if header[:4] != b"AMQP" or header[5:] != b"\x01\x00\x00":
            self._out.append(SASL_HEADER if self._require_sasl else AMQP_HEADER)
            raise ProtocolError(FRAMING_ERROR, "no AMQP 1.0 protocol header")
        protocol = header[4]
        if self.role is Role.CLIENT:
            expected = 0 if self._is_sasl_done else 3
            if protocol != expected:
                raise ProtocolError(FRAMING_ERROR, f"the peer answered with protocol {protocol}")
            self.phase = Phase.FRAMES if self._is_sasl_done else Phase.SASL
        elif protocol == 3 and not self._is_sasl_done:
            self._out.append(SASL_HEADER)
            self._out.append(sasl_frame(SaslMechanisms(self._mechanisms).encode()))
            self.phase = Phase.SASL
        elif protocol == 0 and (self._is_sasl_done or not self._require_sasl):
            self._out.append(AMQP_HEADER)
            self.phase = Phase.FRAMES
        else:
            self._out.append(SASL_HEADER if self._require_sasl else AMQP_HEADER)
            raise ProtocolError(FRAMING_ERROR, f"protocol {protocol} is not on offer")

    def _on_sasl(self, body: bytes, events: list[Event]) -> None:
        performative, end = decode_composite(body)
        if end != len(body):
            raise ProtocolError(FRAMING_ERROR, "bytes after a SASL performative")
        if self.role is Role.SERVER:
            if isinstance(performative, SaslInit) and self._sasl_init is None:
                self._sasl_init = performative
                if performative.mechanism not in self._mechanisms:
                    self.sasl_outcome(sasl_codes.AUTH)
                    raise ProtocolError(UNAUTHORIZED_ACCESS, "the SASL mechanism is not on offer")
                if performative.mechanism == "ANONYMOUS":
                    self.sasl_outcome(sasl_codes.OK)
                    events.append(SaslDone("ANONYMOUS"))
                else:
                    events.append(SaslInitReceived(performative))
                return
            if isinstance(performative, SaslResponse):
                raise ProtocolError(NOT_ALLOWED, "no challenge was sent")
        elif isinstance(performative, SaslMechanisms) and self._sasl is not None:
            if self._sasl.name not in performative.sasl_server_mechanisms:
                raise ProtocolError(
                    UNAUTHORIZED_ACCESS, f"the peer does not offer SASL {self._sasl.name}"
                )
            init = SaslInit(self._sasl.name, self._sasl.initial_response, self.hostname)
            self._out.append(sasl_frame(init.encode()))
            return
        elif isinstance(performative, SaslOutcome) and self._sasl is not None:
            if performative.code != sasl_codes.OK:
                raise ProtocolError(
                    UNAUTHORIZED_ACCESS, f"SASL failed with code {performative.code}"
                )
            self._is_sasl_done = True
            self.phase = Phase.AMQP_HEADER
            self._out.append(AMQP_HEADER)
            self._out.extend(self._held or ())
            self._held = None
            events.append(SaslDone(self._sasl.name))
            return
        elif isinstance(performative, SaslChallenge):
            raise ProtocolError(NOT_ALLOWED, "this mechanism has no challenges")
        raise ProtocolError(NOT_ALLOWED, "unexpected frame in the SASL exchange")

    def sasl_outcome(self, code: int) -> None:
        """Server: answer `SaslInitReceived`; 0 lets the client in, anything else does not."""
        self._out.append(sasl_frame(SaslOutcome(code).encode()))
        if code == sasl_codes.OK:
            self._is_sasl_done = True
            self.phase = Phase.AMQP_HEADER
        else:
            self.phase = Phase.CLOSED

    # -- incoming performatives --------------------------------------------------------------

    def _on_frame(self, channel: int, body: bytes, events: list[Event]) -> None:
        if body[:3] == b"\x00\x53\x15":
            fields = read_disposition(body, 3)
            if fields is not None:
                self._on_disposition(channel, *fields, events)
                return
        performative, end = decode_composite(body)
        if isinstance(performative, Transfer):  # its descriptor in an unusual form
            self._on_transfer(channel, b"\x00\x53\x14" + _list_of(body), events)
            return
        if end != len(body):
            raise ProtocolError(FRAMING_ERROR, "bytes after a performative")
        handler = _HANDLERS.get(type(performative))
        if handler is None:
            raise ProtocolError(NOT_ALLOWED, "a frame with no performative")
        if self.remote_open is None and not isinstance(performative, Open | Close):
            raise ProtocolError(ILLEGAL_STATE, "the first frame is no open")
        getattr(self, handler)(channel, performative, events)

    def _on_open(self, channel: int, performative: Open, events: list[Event]) -> None:
        if self.remote_open is not None:
            raise ProtocolError(ILLEGAL_STATE, "a second open")
        self.remote_open = performative
        self.remote_max_frame_size = max(performative.max_frame_size, MIN_MAX_FRAME_SIZE)
        events.append(Opened(performative))

    def _on_begin(self, channel: int, begin: Begin, events: list[Event]) -> None:
        if channel > self.channel_max:
            raise ProtocolError(FRAMING_ERROR, f"channel {channel} is beyond channel-max")
        if channel in self._by_remote_channel:
            raise ProtocolError(ILLEGAL_STATE, f"channel {channel} has a session already")
        if begin.remote_channel is None:
            if len(self.sessions) > self.channel_max:
                raise ProtocolError(RESOURCE_LIMIT_EXCEEDED, "too many sessions")
            local = channel if channel not in self.sessions else self._free_channel()
            session = Session(local, self._incoming_window, self.handle_max)
            session.state = EndState.REMOTE
            self.sessions[local] = session
        else:
            known = self.sessions.get(begin.remote_channel)
            if known is None or known.state not in (EndState.LOCAL, EndState.CLOSING):
                raise ProtocolError(ILLEGAL_STATE, "begin answers nothing that we began")
            session = known
            if session.state is EndState.LOCAL:
                session.state = EndState.ACTIVE
        session.remote_channel = channel
        session.begin = begin
        session.next_incoming_id = begin.next_outgoing_id
        session.remote_incoming_window = begin.incoming_window
        self._by_remote_channel[channel] = session
        events.append(Begun(session, begin))
        self._flush_window(session)

    def _on_attach(self, channel: int, attach: Attach, events: list[Event]) -> None:
        session = self._by_remote_channel.get(channel)
        if session is None or session.state is EndState.CLOSING:
            return
        handle = attach.handle
        if handle > session.handle_max:
            raise ProtocolError(FRAMING_ERROR, f"handle {handle} is beyond handle-max")
        if handle in session.by_handle:
            raise ProtocolError(HANDLE_IN_USE, f"handle {handle} is in use")
        is_sender = attach.role == ROLE_RECEIVER  # our role is the other one
        for link in session.links.values():
            if (
                link.name == attach.name
                and link.is_sender == is_sender
                and link.remote_handle is None
                and link.state in (EndState.LOCAL, EndState.CLOSING)
            ):
                if link.state is EndState.LOCAL:
                    link.state = EndState.ACTIVE
                break
        else:
            if len(session.links) > session.handle_max:
                raise ProtocolError(RESOURCE_LIMIT_EXCEEDED, "too many links")
            local = handle if handle not in session.links else _free(session.links)
            link = Link(session, attach.name, local, is_sender=is_sender)
            link.state = EndState.REMOTE
            link.snd_settle_mode = attach.snd_settle_mode
            link.rcv_settle_mode = attach.rcv_settle_mode
            link.source = attach.source
            link.target = attach.target
            session.links[local] = link
        link.attach = attach
        link.remote_handle = handle
        link.remote_max_message_size = attach.max_message_size or 0
        if not is_sender:
            link.delivery_count = attach.initial_delivery_count or 0
        session.by_handle[handle] = link
        session.highest_remote_handle = max(session.highest_remote_handle, handle)
        events.append(Attached(link, attach))

    def _on_flow(self, channel: int, flow: Flow, events: list[Event]) -> None:
        session = self._by_remote_channel.get(channel)
        if session is None:
            return
        if self._strict_windows and flow.next_incoming_id is not None:
            ahead = _serial_diff(session.next_outgoing_id, flow.next_incoming_id)
            session.remote_incoming_window = flow.incoming_window - ahead
        else:
            session.remote_incoming_window = flow.incoming_window
        link = None
        if flow.handle is not None:
            link = session.by_handle.get(flow.handle)
            if link is None:
                self._check_was_attached(session, flow.handle)
                return
            self._update_credit(link, flow)
        self._flush_window(session)
        events.append(Flowed(session, link, flow))
        if flow.echo and session.state is EndState.ACTIVE:
            self._send_flow(session, link)

    def _update_credit(self, link: Link, flow: Flow) -> None:
        if link.is_sender:
            if flow.link_credit is not None:
                seen = 0
                if flow.delivery_count is not None:
                    seen = _serial_diff(link.delivery_count, flow.delivery_count)
                link.credit = max(0, flow.link_credit - seen)
            link.drain = flow.drain
        elif flow.delivery_count is not None:
            # A sender that gives credit back (drain) does so by moving its delivery-count.
            ahead = _serial_diff(flow.delivery_count, link.delivery_count)
            if 0 < ahead <= link.credit:
                link.credit -= ahead
                link.delivery_count = flow.delivery_count
            if link.credit == 0:
                link.drain = False

    def _on_transfer(self, channel: int, body: bytes, events: list[Event]) -> None:
        session = self._by_remote_channel.get(channel)
        if session is None:
            if self.remote_open is None:
                raise ProtocolError(ILLEGAL_STATE, "the first frame is no open")
            return
        (handle, delivery_id, tag, message_format, settled, more, mode, state, aborted,
         start) = read_transfer(body, 3)  # fmt: skip
        session.next_incoming_id = (session.next_incoming_id + 1) & _MASK
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
            link.delivery_count = (link.delivery_count + 1) & _MASK
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
        if role is ROLE_RECEIVER:
            unsettled = session.unsettled
            if first == last:
                known = unsettled.pop(first, None) if settled else unsettled.get(first)
                if known is None:
                    return  # settled already: dispositions may cross
                deliveries.append(known)
            else:
                count = ((last - first) & _MASK) + 1
                if count <= len(unsettled):
                    numbers: Iterable[int] = ((first + n) & _MASK for n in range(count))
                else:  # a wide range costs no more than what it can mean
                    numbers = [n for n in unsettled if ((n - first) & _MASK) < count]
                for number in numbers:
                    known = unsettled.pop(number, None) if settled else unsettled.get(number)
                    if known is not None:
                        deliveries.append(known)
        events.append(
            Disposed(session, role is ROLE_RECEIVER, first, last, settled, state, deliveries)
        )

    def _on_detach(self, channel: int, detach: Detach, events: list[Event]) -> None:
        session = self._by_remote_channel.get(channel)
        if session is None:
            return
        link = session.by_handle.pop(detach.handle, None)
        if link is None:
            self._check_was_attached(session, detach.handle)
            return
        if link.state is EndState.REMOTE:  # it never was answered; attach first, then detach
            self.attach_reply(link, source=None, target=None)
        if link.state is not EndState.CLOSING:
            self._send(session.channel, Detach(link.handle, closed=True))
        self._forget(link)
        events.append(Detached(link, detach.error, detach.closed))

    def _drop_partial(self, link: Link) -> None:
        if link.partial is not None:
            self._partial_bytes -= len(link.partial.data)
            link.partial = None

    def _forget(self, link: Link) -> None:
        link.state = EndState.CLOSED
        self._drop_partial(link)
        session = link.session
        session.links.pop(link.handle, None)
        if link.is_sender and session.unsettled:
            gone = [n for n, known in session.unsettled.items() if known.link is link]
            for number in gone:
                del session.unsettled[number]

    def _on_end(self, channel: int, end: End, events: list[Event]) -> None:
        session = self._by_remote_channel.pop(channel, None)
        if session is None:
            return
        if session.state is EndState.REMOTE:
            self.begin(session)
        if session.state is not EndState.CLOSING:
            self._send(session.channel, End())
        self._drop(session)
        events.append(Ended(session, end.error))

    def _drop(self, session: Session) -> None:
        session.state = EndState.CLOSED
        self._drop_links(session)
        self.sessions.pop(session.channel, None)

    def _drop_links(self, session: Session) -> None:
        for link in session.links.values():
            link.state = EndState.CLOSED
            self._drop_partial(link)
        session.links.clear()
        session.by_handle.clear()
        session.unsettled.clear()
        session.pending.clear()

    def _on_close(self, channel: int, close: Close, events: list[Event]) -> None:
        if not self.is_close_sent:
            if not self.is_open_sent:
                self.open()
            self.close()
        self.phase = Phase.CLOSED
        for session in list(self.sessions.values()):
            self._drop(session)
        self._by_remote_channel.clear()
        events.append(Closed(close.error))

    def _check_was_attached(self, session: Session, handle: int) -> None:
        """Frames for a link that is gone are ignored; for one that never was, a violation."""
        if handle > session.highest_remote_handle and session.state is not EndState.CLOSING:
            raise ProtocolError(UNATTACHED_HANDLE, f"handle {handle} was never attached")

    # -- what we do ------------------------------------------------------------------------------

    def open(self, **changes: Any) -> None:
        """Send our open; keyword arguments override fields of it."""
        fields: dict[str, Any] = {
            "container_id": self.container_id,
            "hostname": self.hostname,
            "max_frame_size": self.max_frame_size,
            "channel_max": self.channel_max,
            # The peer may be late by what the network takes; we tell it half of our patience
            # (part 2, section 2.4.5).
            "idle_time_out": (
                None if self.idle_time_out is None else int(self.idle_time_out * 1000) // 2
            ),
            "offered_capabilities": self.offered_capabilities,
            "desired_capabilities": self.desired_capabilities,
            "properties": self.properties,
        }
        fields.update(changes)
        self.is_open_sent = True
        self._send(0, Open(**fields))

    def begin(self, session: Session | None = None, **changes: Any) -> Session:
        """Begin a session; given the session of a `Begun` event, answer that."""
        if session is None:
            session = Session(self._free_channel(), self._incoming_window, self.handle_max)
            session.state = EndState.LOCAL
            self.sessions[session.channel] = session
        else:
            session.state = EndState.ACTIVE
        fields: dict[str, Any] = {
            "remote_channel": session.remote_channel,
            "next_outgoing_id": session.next_outgoing_id,
            "incoming_window": session.incoming_window,
            "outgoing_window": session.incoming_window,
            "handle_max": session.handle_max,
        }
        fields.update(changes)
        self._send(session.channel, Begin(**fields))
        return session

    def _free_channel(self) -> int:
        limit = self.remote_open.channel_max if self.remote_open is not None else self.channel_max
        channel = _free(self.sessions)
        if channel > limit:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "all channels are in use")
        return channel

    def attach_sender(
        self,
        session: Session,
        name: str,
        *,
        target: Any,
        source: Any = None,
        snd_settle_mode: int = SND_MIXED,
        rcv_settle_mode: int = RCV_FIRST,
        max_message_size: int | None = None,
        properties: Mapping[str, Any] | None = None,
        context: Any = None,
    ) -> Link:
        """Attach a link on which we send."""
        return self._attach(
            session, name, True, source, target, snd_settle_mode, rcv_settle_mode,
            max_message_size, properties, context,
        )  # fmt: skip

    def attach_receiver(
        self,
        session: Session,
        name: str,
        *,
        source: Any,
        target: Any = None,
        snd_settle_mode: int = SND_MIXED,
        rcv_settle_mode: int = RCV_FIRST,
        max_message_size: int | None = None,
        properties: Mapping[str, Any] | None = None,
        context: Any = None,
    ) -> Link:
        """Attach a link on which we receive."""
        return self._attach(
            session, name, False, source, target, snd_settle_mode, rcv_settle_mode,
            max_message_size, properties, context,
        )  # fmt: skip

    def _attach(
        self,
        session: Session,
        name: str,
        is_sender: bool,
        source: Any,
        target: Any,
        snd_settle_mode: int,
        rcv_settle_mode: int,
        max_message_size: int | None,
        properties: Mapping[str, Any] | None,
        context: Any,
    ) -> Link:
        handle = _free(session.links)
        limit = session.begin.handle_max if session.begin is not None else session.handle_max
        if handle > limit:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "all handles are in use")
        link = Link(session, name, handle, is_sender=is_sender)
        link.state = EndState.LOCAL
        link.source, link.target = source, target
        link.snd_settle_mode, link.rcv_settle_mode = snd_settle_mode, rcv_settle_mode
        link.max_message_size = max_message_size or 0
        link.context = context
        session.links[handle] = link
        self._send_attach(link, properties)
        return link

    def _send_attach(self, link: Link, properties: Mapping[str, Any] | None) -> None:
        attach = Attach(
            name=link.name,
            handle=link.handle,
            role=ROLE_SENDER if link.is_sender else ROLE_RECEIVER,
            snd_settle_mode=link.snd_settle_mode,
            rcv_settle_mode=link.rcv_settle_mode,
            source=link.source,
            target=link.target,
            initial_delivery_count=link.delivery_count if link.is_sender else None,
            max_message_size=link.max_message_size,
            properties=dict(properties) if properties else None,
        )
        self._send(link.session.channel, attach)

    def attach_reply(
        self,
        link: Link,
        *,
        source: Any = ...,
        target: Any = ...,
        max_message_size: int | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Answer the peer's attach; source and target are echoed unless given."""
        if source is not ...:
            link.source = source
        if target is not ...:
            link.target = target
        if max_message_size is not None:
            link.max_message_size = max_message_size
        link.state = EndState.ACTIVE
        self._send_attach(link, properties)

    def refuse(self, link: Link, error: Error) -> None:
        """Answer the peer's attach with a null terminus, and detach with the error.

        The terminus that is null is ours, the one that the peer wanted (part 2, section 2.6.3):
        the target where the peer wants to send, the source where it wants to receive.
        """
        if link.is_sender:
            self.attach_reply(link, source=None)
        else:
            self.attach_reply(link, target=None)
        self.detach(link, error)

    def flow(
        self,
        link: Link,
        credit: int,
        *,
        drain: bool = False,
        echo: bool = False,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Receiver: set the link's credit; with `drain`, "what is there now, and no waiting"."""
        link.credit = credit
        link.drain = drain
        self._send_flow(link.session, link, echo=echo, properties=properties)

    def drained(self, link: Link) -> None:
        """Sender: nothing is left to send under drain; give the rest of the credit back."""
        link.delivery_count = (link.delivery_count + link.credit) & _MASK
        link.credit = 0
        self._send_flow(link.session, link)
        link.drain = False

    def session_flow(self, session: Session, *, echo: bool = False) -> None:
        """Tell the peer the state of the session's windows."""
        self._send_flow(session, None, echo=echo)

    def _send_flow(
        self,
        session: Session,
        link: Link | None,
        *,
        echo: bool = False,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        flow = Flow(
            next_incoming_id=session.next_incoming_id if session.begin is not None else None,
            incoming_window=session.incoming_left,
            next_outgoing_id=session.next_outgoing_id,
            outgoing_window=session.incoming_window,
            echo=echo,
            properties=dict(properties) if properties else None,
        )
        if link is not None:
            flow.handle = link.handle
            flow.delivery_count = link.delivery_count
            flow.link_credit = link.credit
            flow.drain = link.drain
            flow.available = 0 if link.is_sender else None
        self._send(session.channel, flow)

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
    ) -> int:
        """Send a message on a link that has credit; gives the number of the delivery.

        An unsettled delivery is remembered, with `context`, until it is settled. A payload that is
        too large for one of the peer's frames goes in several.

        Raises:
            AmqpError: the link has no credit (`amqp:link:transfer-limit-exceeded`).
        """
        if link.credit <= 0:
            raise AmqpError(TRANSFER_LIMIT_EXCEEDED, f"no credit on link {link.name}")
        session = link.session
        delivery_id = session.next_delivery_id
        session.next_delivery_id = (delivery_id + 1) & _MASK
        link.credit -= 1
        link.delivery_count = (link.delivery_count + 1) & _MASK
        if not settled:
            session.unsettled[delivery_id] = Outgoing(delivery_id, link, tag, context)
        room = self.remote_max_frame_size - _TRANSFER_OVERHEAD - len(tag)
        if state is not None:
            room -= len(encode_state(state))
        if len(payload) <= room:
            data = link.writer.frame(
                delivery_id, tag, message_format, settled, payload, False, state
            )
            if session.remote_incoming_window > 0 and self._held is None:
                session.remote_incoming_window -= 1
                session.next_outgoing_id = (session.next_outgoing_id + 1) & _MASK
                if not self.is_close_sent:
                    self._out.append(data)
            else:
                session.pending.append(data)
            return delivery_id
        chunk = payload[:room]
        frames = [link.writer.frame(delivery_id, tag, message_format, settled, chunk, True, state)]
        for start in range(room, len(payload), room):
            more = start + room < len(payload)
            frames.append(link.writer.next_frame(payload[start : start + room], more, settled))
        session.pending.extend(frames)
        self._flush_window(session)
        return delivery_id

    def _flush_window(self, session: Session) -> None:
        pending = session.pending
        if not pending or session.remote_incoming_window <= 0:
            return
        count = min(len(pending), session.remote_incoming_window)
        for data in pending[:count]:
            self._emit(data)
        del pending[:count]
        session.remote_incoming_window -= count
        session.next_outgoing_id = (session.next_outgoing_id + count) & _MASK

    def settle(
        self,
        link: Link,
        first: int,
        last: int | None = None,
        *,
        state: Composite | None = None,
        settled: bool = True,
    ) -> None:
        """Tell the state of deliveries `first` to `last` of the link's session, as its end.

        A receiver tells the outcome (`settled=False`: and waits for the sender to settle); a
        sender settles what it sent.
        """
        if last is None:
            last = first
        session = link.session
        if link.is_sender:
            if settled:
                unsettled = session.unsettled
                if first == last:
                    unsettled.pop(first, None)
                else:
                    for n in range(((last - first) & _MASK) + 1):
                        unsettled.pop((first + n) & _MASK, None)
            role = ROLE_SENDER
        else:
            role = ROLE_RECEIVER
        self._emit(disposition_frame(session.channel, role, first, last, settled, state))

    def detach(self, link: Link, error: Error | None = None, *, closed: bool = True) -> None:
        """Detach the link; a second call does nothing."""
        if link.state in (EndState.CLOSING, EndState.CLOSED):
            return
        link.state = EndState.CLOSING
        self._drop_partial(link)
        self._send(link.session.channel, Detach(link.handle, closed=closed, error=error))

    def end(self, session: Session, error: Error | None = None) -> None:
        """End the session; a second call does nothing."""
        if session.state in (EndState.CLOSING, EndState.CLOSED):
            return
        session.state = EndState.CLOSING
        self._send(session.channel, End(error))
        self._drop_links(session)

    def close(self, error: Error | None = None) -> None:
        """Close the connection; a second call does nothing, and nothing is sent after it."""
        if self.is_close_sent:
            return
        self._send(0, Close(error))
        self.is_close_sent = True

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what time demands: a heartbeat when due; give up on a silent peer.

        Raises:
            ProtocolError: nothing came from the peer for `idle_time_out` seconds.
        """
        if self.phase is Phase.CLOSED:
            return
        if self._is_heard or self._last_heard is None:
            self._is_heard = False
            self._last_heard = now
        if self._has_sent or self._last_sent is None:
            self._has_sent = False
            self._last_sent = now
        if self.idle_time_out is not None and now - self._last_heard >= self.idle_time_out:
            failure = ProtocolError(
                RESOURCE_LIMIT_EXCEEDED, f"silent for {self.idle_time_out:g} seconds"
            )
            self._fail(failure, [])
            raise failure
        interval = self._heartbeat_interval()
        if interval is not None and now - self._last_sent >= interval and not self._out:
            self._emit(EMPTY_FRAME)
            self._last_sent = now

    def _heartbeat_interval(self) -> float | None:
        if self.remote_open is None or not self.remote_open.idle_time_out or self.is_close_sent:
            return None
        return self.remote_open.idle_time_out / 2000

    def next_deadline(self) -> float | None:
        """When to call `tick` again, or None while there is nothing to do.

        Valid after the first `tick`; activity since the last one only moves it later.
        """
        if self.phase is Phase.CLOSED:
            return None
        deadlines = []
        if self.idle_time_out is not None and self._last_heard is not None:
            deadlines.append(self._last_heard + self.idle_time_out)
        interval = self._heartbeat_interval()
        if interval is not None and self._last_sent is not None:
            deadlines.append(self._last_sent + interval)
        return min(deadlines, default=None)

    def __repr__(self) -> str:
        return f"<Connection {self.role.value} {self.phase.value} sessions={len(self.sessions)}>"


def _free(taken: Mapping[int, Any]) -> int:
    number = 0
    while number in taken:
        number += 1
    return number


def _list_of(body: bytes) -> bytes:
    """What follows the descriptor of a performative whose descriptor is not the short one."""
    return body[skip_plain(body, 1, body[1]) :]


_HANDLERS: dict[type, str] = {
    Open: "_on_open",
    Begin: "_on_begin",
    Attach: "_on_attach",
    Flow: "_on_flow",
    Disposition: "_on_disposition_frame",
    Detach: "_on_detach",
    End: "_on_end",
    Close: "_on_close",
}
