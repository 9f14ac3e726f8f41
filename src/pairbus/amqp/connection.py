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

from pairbus.amqp.base import Phase, Role
from pairbus.amqp.composite import decode_composite
from pairbus.amqp.decoder import MALFORMED, skip_plain
from pairbus.amqp.deliveries import Deliveries
from pairbus.amqp.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    ProtocolError,
)
from pairbus.amqp.events import Event
from pairbus.amqp.fastpath import read_disposition
from pairbus.amqp.frames import AMQP_FRAME, EMPTY_FRAME, FRAME_HEADER, SASL_FRAME
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

__all__ = ["Connection", "Phase", "Role"]

_frame_header = FRAME_HEADER.unpack_from
_MAX_CHUNKS = 1000  # pieces of one frame that are kept apart


class Connection(Deliveries):
    """One AMQP connection, sans I/O. Not thread-safe: one owner at a time."""

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
            if len(self._chunks) > _MAX_CHUNKS:
                self._chunks = [b"".join(self._chunks)]
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
            if self._shape is not None and phase is Phase.FRAMES:
                pos = self._on_alike(self._shape, data, pos, events)
                if total - pos < 8:
                    self._needed = 8
                    return pos
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
        # A third: what was sent just after one tick is only noticed at the next.
        return self.remote_open.idle_time_out / 3000

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
