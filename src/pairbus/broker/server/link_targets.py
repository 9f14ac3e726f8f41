"""Chooses the handler of a client's link by its address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pairbus.amqp.link import Link
from pairbus.amqp.performatives import Attach, Source, Target
from pairbus.broker.entities.errors import NotAllowedError, QuotaExceededError
from pairbus.broker.server.cbs import CbsNode
from pairbus.broker.server.link_end import LinkEnd, LinkHandler
from pairbus.broker.server.management import ManagementNode
from pairbus.broker.server.receiving_link import ReceivingLink
from pairbus.broker.server.request_link import ReplyLink, RequestLink
from pairbus.broker.server.sending_link import SendingLink

if TYPE_CHECKING:
    from pairbus.broker.server.connection import AmqpConnection

CBS = "$cbs"
MANAGEMENT = "/$management"


def handler_for(connection: AmqpConnection, link: Link, attach: Attach) -> LinkHandler:
    """The handler of a link that a client wants to attach; BrokerError if it is refused."""
    limits = connection.broker.settings.limits
    terminus = attach.source if link.is_sender else attach.target
    if not isinstance(terminus, Source | Target):
        if terminus is None:
            raise NotAllowedError("The link names no address.")
        raise connection.broker.unsupported("transactions", "Transactions are not supported.")
    if sum(len(s.links) for s in connection.engine.sessions.values()) > limits.links:
        raise QuotaExceededError(f"A connection may have {limits.links} links.")
    path = path_of(terminus.address)
    if path.lower() == CBS:
        end = LinkEnd(connection, link, CBS)
        return ReplyLink(end) if link.is_sender else RequestLink(end, CbsNode(end))
    if path.lower().endswith(MANAGEMENT):
        end = LinkEnd(connection, link, path.lower())
        end.used_at = end.namespace.now()
        if link.is_sender:
            return ReplyLink(end)
        return RequestLink(end, ManagementNode(end, path[: -len(MANAGEMENT)]))
    end = LinkEnd(connection, link, path)
    return ReceivingLink(end) if link.is_sender else SendingLink(end)


def path_of(address: Any) -> str:
    """Return the entity path of an address: relative, or a URL with any scheme and host."""
    text = str(address or "")
    if "://" in text:
        text = urlsplit(text).path
    return text.strip("/")
