"""The links of a connection (part 2, section 2.6): attach, credit and detach, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from pairbus.amqp.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
    ProtocolError,
)
from pairbus.amqp.events import Attached, Detached, Event, Flowed
from pairbus.amqp.link import EndState, Link, Session
from pairbus.amqp.output import OutputBuffer
from pairbus.amqp.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Attach,
    Detach,
    Error,
    Flow,
)
from pairbus.amqp.reassembly import Reassembly
from pairbus.amqp.session import SERIAL_MASK, free_number


class AttachOptions(TypedDict, total=False):
    """The optional fields of our attach, and the link's `context`."""

    snd_settle_mode: int
    rcv_settle_mode: int
    max_message_size: int
    properties: Mapping[str, Any] | None
    context: Any


class LinkTable:
    """Attaches and detaches links, and grants and takes their credit."""

    __slots__ = ("_output", "_reassembly")

    def __init__(self, output: OutputBuffer, reassembly: Reassembly) -> None:
        self._output = output
        self._reassembly = reassembly

    # -- our attach ----------------------------------------------------------------------------

    def attach_sender(
        self,
        session: Session,
        name: str,
        *,
        target: Any,
        source: Any = None,
        **options: Unpack[AttachOptions],
    ) -> Link:
        """Attach a link on which we send.

        Raises:
            AmqpError: all handles are in use (`amqp:resource-limit-exceeded`).
        """
        return self._attach(session, name, True, source, target, **options)

    def attach_receiver(
        self,
        session: Session,
        name: str,
        *,
        source: Any,
        target: Any = None,
        **options: Unpack[AttachOptions],
    ) -> Link:
        """Attach a link on which we receive.

        Raises:
            AmqpError: all handles are in use (`amqp:resource-limit-exceeded`).
        """
        return self._attach(session, name, False, source, target, **options)

    def _attach(
        self,
        session: Session,
        name: str,
        is_sender: bool,
        source: Any,
        target: Any,
        *,
        properties: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Link:
        handle = free_number(session.links)
        limit = session.begin.handle_max if session.begin is not None else session.handle_max
        if handle > limit:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "all handles are in use")
        link = Link(
            session,
            name,
            handle,
            is_sender=is_sender,
            state=EndState.LOCAL,
            source=source,
            target=target,
            **options,
        )
        session.links[handle] = link
        self._send_attach(link, properties)
        return link

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

    def detach(self, link: Link, error: Error | None = None) -> None:
        """Detach the link; a second call does nothing.

        A link whose attach is not answered yet is refused: answered with a null terminus first.
        """
        if link.state in (EndState.CLOSING, EndState.CLOSED):
            return
        if link.state is EndState.REMOTE:
            self._answer_with_null(link)
        link.state = EndState.CLOSING
        self._reassembly.discard(link)
        link.session.drop_pending(link)
        self._output.send(link.session.channel, Detach(link.handle, closed=True, error=error))

    def _answer_with_null(self, link: Link) -> None:
        """Answer the peer's attach, which a detach follows.

        The null terminus is ours, the one that the peer wants to use (part 2, section 2.6.3): the
        target if the peer wants to send, the source if it wants to receive.
        """
        if link.is_sender:
            self.attach_reply(link, source=None)
        else:
            self.attach_reply(link, target=None)

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
        self._output.send(link.session.channel, attach)

    # -- credit --------------------------------------------------------------------------------

    def flow(self, link: Link, credit: int, *, drain: bool = False) -> None:
        """Receiver: set the link's credit.

        With `drain` the peer sends the messages that it has, and then returns the rest of the
        credit instead of waiting for more.
        """
        link.credit = credit
        link.drain = drain
        self._output.send(link.session.channel, link.session.flow(link))

    def drained(self, link: Link) -> None:
        """Sender: return the rest of the credit, because there are no more messages to send."""
        link.delivery_count = (link.delivery_count + link.credit) & SERIAL_MASK
        link.credit = 0
        self._output.send(link.session.channel, link.session.flow(link))
        link.drain = False

    def on_flow(self, session: Session, flow: Flow, events: list[Event]) -> None:
        """Take the peer's windows and credit, and send the transfers that waited for them.

        The window is taken as it stands, without subtracting the frames that are on their way:
        azure-servicebus counts deliveries where the specification counts frames.
        """
        session.remote_incoming_window = flow.incoming_window
        self._output.write_all(session.take_sendable())
        link = None
        if flow.handle is not None:
            link = session.by_handle.get(flow.handle)
            if link is None:
                session.check_was_attached(flow.handle)
                return
            link.update_credit(flow)
        events.append(Flowed(session, link, flow))
        if flow.echo and session.state is EndState.ACTIVE:
            self._output.send(session.channel, session.flow(link))

    # -- the peer's attach and detach ------------------------------------------------------------

    def on_attach(self, session: Session, attach: Attach, events: list[Event]) -> None:
        """Take the peer's attach: a new link, or the answer to ours."""
        if session.state is EndState.CLOSING:
            return
        handle = attach.handle
        if handle > session.handle_max:
            raise ProtocolError(FRAMING_ERROR, f"handle {handle} is beyond handle-max")
        if handle in session.by_handle:
            raise ProtocolError(HANDLE_IN_USE, f"handle {handle} is in use")
        link = _answered_link(session, attach) or _add_link(session, attach)
        link.attach = attach
        link.remote_handle = handle
        link.remote_max_message_size = attach.max_message_size or 0
        if not link.is_sender:
            link.delivery_count = attach.initial_delivery_count or 0
        session.by_handle[handle] = link
        session.highest_remote_handle = max(session.highest_remote_handle, handle)
        events.append(Attached(link, attach))

    def on_detach(self, session: Session, detach: Detach, events: list[Event]) -> None:
        """Take the peer's detach, and answer it if it is not itself an answer."""
        link = session.by_handle.pop(detach.handle, None)
        if link is None:
            session.check_was_attached(detach.handle)
            return
        if link.state is EndState.REMOTE:
            self._answer_with_null(link)
        if link.state is not EndState.CLOSING:
            self._output.send(session.channel, Detach(link.handle, closed=True))
        link.state = EndState.CLOSED
        self._reassembly.discard(link)
        session.drop_pending(link)
        session.links.pop(link.handle, None)
        if link.is_sender:
            gone = [number for number, sent in session.unsettled.items() if sent.link is link]
            for number in gone:
                del session.unsettled[number]
        events.append(Detached(link, detach.error, detach.closed))


def _answered_link(session: Session, attach: Attach) -> Link | None:
    """Return our link that the peer's attach answers; None if the peer attaches first."""
    is_sender = attach.role == ROLE_RECEIVER  # our role is the opposite one
    for link in session.links.values():
        if (
            link.name == attach.name
            and link.is_sender == is_sender
            and link.remote_handle is None
            and link.state in (EndState.LOCAL, EndState.CLOSING)
        ):
            if link.state is EndState.LOCAL:
                link.state = EndState.ACTIVE
            return link
    return None


def _add_link(session: Session, attach: Attach) -> Link:
    """Add the link that the peer attaches."""
    if len(session.links) > session.handle_max:
        raise ProtocolError(RESOURCE_LIMIT_EXCEEDED, "too many links")
    handle = attach.handle if attach.handle not in session.links else free_number(session.links)
    link = Link(
        session,
        attach.name,
        handle,
        is_sender=attach.role == ROLE_RECEIVER,
        state=EndState.REMOTE,
        source=attach.source,
        target=attach.target,
        snd_settle_mode=attach.snd_settle_mode,
        rcv_settle_mode=attach.rcv_settle_mode,
    )
    session.links[handle] = link
    return link
