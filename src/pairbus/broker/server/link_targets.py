"""What a client's link is for: from its address to the handler that serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pairbus.amqp.errors import NOT_IMPLEMENTED
from pairbus.amqp.link import Link
from pairbus.amqp.performatives import Attach, Source, Target
from pairbus.broker.entities.errors import (
    NotAllowedError,
    NotImplementedByBrokerError,
    QuotaExceededError,
)
from pairbus.broker.server.cbs import CbsLink
from pairbus.broker.server.links import LinkHandler, ReplyLink, SendLink
from pairbus.broker.server.management import ManagementLink
from pairbus.broker.server.receiving_link import ReceiveLink

if TYPE_CHECKING:
    from pairbus.broker.server.connection import AmqpConnection

CBS = "$cbs"
MANAGEMENT = "/$management"


def handler_for(connection: AmqpConnection, link: Link, attach: Attach) -> LinkHandler:
    """The handler of a link that a client wants to attach; BrokerError says why there is none."""
    limits = connection.broker.settings.limits
    terminus = attach.source if link.is_sender else attach.target
    if not isinstance(terminus, Source | Target):
        if terminus is None:
            raise NotAllowedError("The link names no address.")
        connection.broker.unsupported("transactions")
        raise NotImplementedByBrokerError(
            "Transactions are not supported.", condition=NOT_IMPLEMENTED
        )
    if sum(len(s.links) for s in connection.engine.sessions.values()) > limits.links:
        raise QuotaExceededError(f"A connection may have {limits.links} links.")
    path = path_of(terminus.address)
    if path.lower() == CBS:
        return (
            ReplyLink(connection, link, CBS) if link.is_sender else CbsLink(connection, link, CBS)
        )
    if path.lower().endswith(MANAGEMENT):
        entity = path[: -len(MANAGEMENT)]
        if link.is_sender:
            return ReplyLink(connection, link, path.lower())
        return ManagementLink(connection, link, path.lower(), entity)
    if link.is_sender:
        return ReceiveLink(connection, link, path)
    return SendLink(connection, link, path)


def path_of(address: Any) -> str:
    """Return the entity path of an address: relative, or a URL with any scheme and host."""
    text = str(address or "")
    if "://" in text:
        text = urlsplit(text).path
    return text.strip("/")
