"""What the peer does to connection, sessions and links."""

from __future__ import annotations

from pairbus.amqp.base import Phase, free, serial_diff
from pairbus.amqp.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    ProtocolError,
)
from pairbus.amqp.events import Attached, Begun, Closed, Detached, Ended, Event, Flowed, Opened
from pairbus.amqp.frames import MIN_MAX_FRAME_SIZE
from pairbus.amqp.handshake import Handshake
from pairbus.amqp.link import EndState, Link, Session
from pairbus.amqp.performatives import ROLE_RECEIVER, Attach, Begin, Close, Detach, End, Flow, Open


class Incoming(Handshake):
    """The peer's open, begin, attach, flow, detach, end and close; see `Connection`."""

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
            local = handle if handle not in session.links else free(session.links)
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
            ahead = serial_diff(session.next_outgoing_id, flow.next_incoming_id)
            session.remote_incoming_window = flow.incoming_window - ahead
        else:
            session.remote_incoming_window = flow.incoming_window
        self._flush_window(session)
        link = None
        if flow.handle is not None:
            link = session.by_handle.get(flow.handle)
            if link is None:
                self._check_was_attached(session, flow.handle)
                return
            self._update_credit(link, flow)
        events.append(Flowed(session, link, flow))
        if flow.echo and session.state is EndState.ACTIVE:
            self._send_flow(session, link)

    def _update_credit(self, link: Link, flow: Flow) -> None:
        if link.is_sender:
            if flow.link_credit is not None:
                seen = 0
                if flow.delivery_count is not None:
                    seen = serial_diff(link.delivery_count, flow.delivery_count)
                link.credit = max(0, flow.link_credit - seen)
            link.drain = flow.drain
        elif flow.delivery_count is not None:
            # A sender that gives credit back (drain) does so by moving its delivery-count.
            ahead = serial_diff(flow.delivery_count, link.delivery_count)
            if 0 < ahead <= link.credit:
                link.credit -= ahead
                link.delivery_count = flow.delivery_count
            if link.credit == 0:
                link.drain = False

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
