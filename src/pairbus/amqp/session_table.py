"""The sessions of a connection (part 2, section 2.5): begin and end, both ways."""

from __future__ import annotations

from pairbus.amqp.errors import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
    ProtocolError,
)
from pairbus.amqp.events import Begun, Ended, Event
from pairbus.amqp.output import OutputBuffer
from pairbus.amqp.performatives import Begin, End, Error, Open
from pairbus.amqp.reassembly import Reassembly
from pairbus.amqp.session import EndState, Session, free_number


class SessionTable:
    """Begins and ends sessions, and finds them by channel."""

    __slots__ = ("_channel_max", "_handle_max", "_incoming_window", "_output", "_reassembly",
                 "by_channel", "by_remote_channel", "remote_open")  # fmt: skip

    def __init__(
        self,
        output: OutputBuffer,
        reassembly: Reassembly,
        *,
        channel_max: int,
        handle_max: int,
        incoming_window: int,
    ) -> None:
        self._output = output
        self._reassembly = reassembly
        self._channel_max = channel_max
        self._handle_max = handle_max
        self._incoming_window = incoming_window
        self.by_channel: dict[int, Session] = {}
        """By our channel."""
        self.by_remote_channel: dict[int, Session] = {}
        """By the peer's channel."""
        self.remote_open: Open | None = None
        """The peer's open, which limits our channels."""

    def begin(self, session: Session | None = None) -> Session:
        """Begin a session, or answer the begin of the peer that a `Begun` event reported.

        Args:
            session: the session of the event; None begins a new one.

        Raises:
            AmqpError: all channels are in use (`amqp:resource-limit-exceeded`).
        """
        if session is None:
            channel = free_number(self.by_channel)
            if channel > self._local_channel_max:
                raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "all channels are in use")
            session = self._add(channel, EndState.LOCAL)
        else:
            session.state = EndState.ACTIVE
        begin = Begin(
            session.remote_channel,
            session.next_outgoing_id,
            incoming_window=session.incoming_window,
            outgoing_window=session.incoming_window,
            handle_max=session.handle_max,
        )
        self._output.send(session.channel, begin)
        return session

    def end(self, session: Session, error: Error | None = None) -> None:
        """End the session; a second call does nothing."""
        if session.state in (EndState.CLOSING, EndState.CLOSED):
            return
        session.state = EndState.CLOSING
        self._output.send(session.channel, End(error))
        self._clear(session)

    def on_begin(self, channel: int, begin: Begin, events: list[Event]) -> None:
        """Take the peer's begin: a new session, or the answer to ours."""
        if channel > self._channel_max:
            raise ProtocolError(FRAMING_ERROR, f"channel {channel} is beyond channel-max")
        if channel in self.by_remote_channel:
            raise ProtocolError(ILLEGAL_STATE, f"channel {channel} has a session already")
        if begin.remote_channel is None:
            local = channel if channel not in self.by_channel else free_number(self.by_channel)
            if len(self.by_channel) > self._channel_max or local > self._local_channel_max:
                raise ProtocolError(RESOURCE_LIMIT_EXCEEDED, "too many sessions")
            session = self._add(local, EndState.REMOTE)
        else:
            known = self.by_channel.get(begin.remote_channel)
            if known is None or known.state not in (EndState.LOCAL, EndState.CLOSING):
                raise ProtocolError(ILLEGAL_STATE, "the begin answers none of ours")
            session = known
            if session.state is EndState.LOCAL:
                session.state = EndState.ACTIVE
        session.remote_channel = channel
        session.begin = begin
        session.next_incoming_id = begin.next_outgoing_id
        session.remote_incoming_window = begin.incoming_window
        self.by_remote_channel[channel] = session
        events.append(Begun(session, begin))

    def on_end(self, session: Session, end: End, events: list[Event]) -> None:
        """Take the peer's end, and answer it if it is not itself an answer."""
        if session.remote_channel is not None:
            del self.by_remote_channel[session.remote_channel]
        if session.state is EndState.REMOTE:
            self.begin(session)
        if session.state is not EndState.CLOSING:
            self._output.send(session.channel, End())
        self._remove(session)
        events.append(Ended(session, end.error))

    def close_all(self) -> None:
        """Drop all sessions with their links: the peer closed the connection."""
        for session in list(self.by_channel.values()):
            self._remove(session)
        self.by_remote_channel.clear()

    @property
    def _local_channel_max(self) -> int:
        return self._channel_max if self.remote_open is None else self.remote_open.channel_max

    def _add(self, channel: int, state: EndState) -> Session:
        session = Session(channel, self._incoming_window, self._handle_max, state)
        self.by_channel[channel] = session
        return session

    def _remove(self, session: Session) -> None:
        session.state = EndState.CLOSED
        self._clear(session)
        self.by_channel.pop(session.channel, None)

    def _clear(self, session: Session) -> None:
        for link in session.links.values():
            link.state = EndState.CLOSED
            self._reassembly.discard(link)
        session.links.clear()
        session.by_handle.clear()
        session.unsettled.clear()
        session.pending.clear()
