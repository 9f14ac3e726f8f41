"""What we do on a connection: open, begin, attach, grant, transfer, settle, and their ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pairbus.amqp.base import MASK, ConnectionBase, free
from pairbus.amqp.composite import Composite
from pairbus.amqp.errors import RESOURCE_LIMIT_EXCEEDED, TRANSFER_LIMIT_EXCEEDED, AmqpError
from pairbus.amqp.fastpath import disposition_frame, encode_state
from pairbus.amqp.link import EndState, Link, Outgoing, Session
from pairbus.amqp.performatives import (
    RCV_FIRST,
    ROLE_RECEIVER,
    ROLE_SENDER,
    SND_MIXED,
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Error,
    Flow,
    Open,
)

_TRANSFER_OVERHEAD = 64  # a bound for a transfer frame without its tag, state and payload


class Actions(ConnectionBase):
    """The outgoing half; see `Connection`."""

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
        channel = free(self.sessions)
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
        handle = free(session.links)
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
        link.delivery_count = (link.delivery_count + link.credit) & MASK
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
        session.next_delivery_id = (delivery_id + 1) & MASK
        link.credit -= 1
        link.delivery_count = (link.delivery_count + 1) & MASK
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
                session.next_outgoing_id = (session.next_outgoing_id + 1) & MASK
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

    def transfer_many(self, link: Link, messages: Sequence[tuple[bytes, bytes, bytes]]) -> int:
        """Send messages on a link that has credit for them, unsettled; gives their bytes.

        Each is its tag and its bytes in two parts, so that what a sender keeps need not be copied.

        Raises:
            AmqpError: the link has too little credit (`amqp:link:transfer-limit-exceeded`).
        """
        count = len(messages)
        if link.credit < count:
            raise AmqpError(TRANSFER_LIMIT_EXCEEDED, f"no credit on link {link.name}")
        session = link.session
        size = sum([len(front) + len(rest) for _, front, rest in messages])
        room = self.remote_max_frame_size - _TRANSFER_OVERHEAD
        plain = [len(tag) + len(front) + len(rest) <= room for tag, front, rest in messages]
        if (
            session.remote_incoming_window < count
            or self._held is not None
            or self.is_close_sent
            or not all(plain)
        ):
            for tag, front, rest in messages:
                self.transfer(link, front + rest, tag)
            return size
        first = session.next_delivery_id
        session.next_delivery_id = (first + count) & MASK
        link.credit -= count
        link.delivery_count = (link.delivery_count + count) & MASK
        session.remote_incoming_window -= count
        session.next_outgoing_id = (session.next_outgoing_id + count) & MASK
        unsettled, out, head = session.unsettled, self._out, link.writer.head
        for index, (tag, front, rest) in enumerate(messages):
            number = (first + index) & MASK
            unsettled[number] = Outgoing(number, link, tag, None)
            out += (head(number, tag, len(front) + len(rest)), front, rest)
        return size

    def _flush_window(self, session: Session) -> None:
        pending = session.pending
        if not pending or session.remote_incoming_window <= 0:
            return
        count = min(len(pending), session.remote_incoming_window)
        for data in pending[:count]:
            self._emit(data)
        del pending[:count]
        session.remote_incoming_window -= count
        session.next_outgoing_id = (session.next_outgoing_id + count) & MASK

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
                    for n in range(((last - first) & MASK) + 1):
                        unsettled.pop((first + n) & MASK, None)
            role = ROLE_SENDER
        else:
            role = ROLE_RECEIVER
        self._emit(disposition_frame(session.channel, role, first, last, settled, state))

    def settle_unknown(self, session: Session, first: int, last: int, state: Composite) -> None:
        """Sender: answer a disposition of deliveries that are not open any more."""
        self._emit(disposition_frame(session.channel, ROLE_SENDER, first, last, True, state))

    def forget(self, session: Session, delivery_ids: Iterable[int]) -> None:
        """Sender: these deliveries are over, and nobody need be told."""
        for number in delivery_ids:
            session.unsettled.pop(number, None)

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
