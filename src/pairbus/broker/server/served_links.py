"""The links of one connection that the broker serves: attach, find, detach and close them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pairbus.amqp.link import EndState, Link, Session
from pairbus.amqp.performatives import Attach, Error, Source, Target
from pairbus.broker.entities.errors import BrokerError, UnauthorizedError
from pairbus.broker.faults.faults import NO_FAULT
from pairbus.broker.server.idle import IdleWatch
from pairbus.broker.server.link_targets import CBS, handler_for, path_of
from pairbus.broker.server.receiving_link import ReceivingLink
from pairbus.broker.server.request_link import ReplyLink

if TYPE_CHECKING:
    from pairbus.broker.server.connection import AmqpConnection

_log = logging.getLogger("pairbus.broker.amqp")


class ServedLinks:
    """The links of a connection, each with its handler in `Link.context`.

    Attributes:
        idle: Detaches those that are not used.
    """

    def __init__(self, connection: AmqpConnection) -> None:
        settings = connection.broker.settings
        self.idle = IdleWatch(
            connection, settings.idle_link_timeout, settings.idle_connection_timeout
        )
        self._connection = connection
        # The engine forgets the links of an ended session before it reports the end.
        self._links: dict[Link, None] = {}

    def on_attach(self, link: Link, attach: Attach) -> None:
        """Serve a link that the client wants to attach, or refuse it."""
        terminus = attach.source if link.is_sender else attach.target
        fault = NO_FAULT
        if isinstance(terminus, Source | Target):
            path = path_of(terminus.address)
            if path.lower() != CBS:  # faults of $cbs apply to its tokens instead
                fault = self._connection.broker.faults.match("attach", path)
        if fault.kind != "delay":
            if fault.kind != "hang":
                self.detach(link, fault.error())
        elif fault.delay:
            asyncio.get_running_loop().call_later(fault.delay, self._attach, link, attach)
        else:
            self._attach(link, attach)

    def _attach(self, link: Link, attach: Attach) -> None:
        if link.state is not EndState.REMOTE or self._connection.transport is None:
            return  # the client detached it, or disconnected, in the meantime
        try:
            link.context = handler_for(self._connection, link, attach)
        except BrokerError as error:
            _log.debug("a link was refused: %s", error.condition)
            self.detach(link, error)
            link.attach = None  # a refused link stays until the client detaches it
            return
        self._links[link] = None
        end = link.context.end
        if end.path != CBS:
            self.idle.add(end, self._connection.namespace.now())
        link.context.attach()
        link.attach = None  # not needed any more, and many times larger than its frame
        self._connection.flush_soon()

    def reply_link(self, session: Session, path: str, reply_to: Any) -> ReplyLink | None:
        """Return the link that carries the answers of a node.

        Most clients attach it on the session of the request. Some use another session, and name
        the link in the `reply-to` of the request.
        """
        here = [handler for handler in _reply_links(session.links.values()) if handler.path == path]
        for handler in here:
            if handler.answers_to(reply_to):
                return handler
        if here:
            return here[-1]
        for handler in _reply_links(self._links):
            if handler.path == path and handler.answers_to(reply_to):
                return handler
        return None

    def receiver_named(self, name: str) -> ReceivingLink | None:
        """Return the client's receiving link of this name."""
        return next((found for found in self.receivers() if found.link.name == name), None)

    def receivers(self) -> list[ReceivingLink]:
        """The client's receivers."""
        handlers = (link.context for link in self._links)
        return [handler for handler in handlers if isinstance(handler, ReceivingLink)]

    def detach(self, link: Link, error: BrokerError) -> None:
        """Detach a link with an error, and forget its handler."""
        self.forget(link)
        self._connection.engine.detach(link, Error(error.condition, error.description))
        self._connection.flush_soon()

    def detach_unauthorized(self) -> None:
        """Detach the links that the client's tokens do not allow any more."""
        for link in list(self._links):
            if link.context is not None and not link.context.is_authorized():
                self.detach(link, UnauthorizedError("ExpiredToken: The token is expired."))

    def close(self, session: Session | None = None) -> None:
        """Close the links of a session, or all of them."""
        for link in list(self._links):
            if session is None or link.session is session:
                self.forget(link)

    def forget(self, link: Link) -> None:
        """Remove a link and close its handler; the link is detached already, or will be."""
        self._links.pop(link, None)
        handler, link.context = link.context, None
        if handler is not None:
            self.idle.remove(handler.end, self._connection.namespace.now())
            handler.close()


def _reply_links(links: Iterable[Link]) -> Iterator[ReplyLink]:
    return (link.context for link in links if isinstance(link.context, ReplyLink))
