"""Links of the request/response nodes: `$cbs`, and `$management` of an entity."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from pairbus.amqp.composite import Composite
from pairbus.amqp.errors import AmqpError
from pairbus.amqp.events import Delivery
from pairbus.amqp.message import Message, Properties
from pairbus.amqp.performatives import ACCEPTED
from pairbus.amqp.types import Int, Symbol
from pairbus.broker.entities.errors import ArgumentError, BrokerError, MessageSizeExceededError
from pairbus.broker.server.link_end import CREDIT, LinkEnd, LinkHandler, rejected
from pairbus.broker.server.requests import Request, read_request

MAX_PENDING_REPLIES = 1000


class Reply:
    """The answer to one request.

    Attributes:
        delay: The seconds that it is held back.
    """

    def __init__(self, end: LinkEnd, request: Request, names: tuple[str, str]) -> None:
        self._end = end
        self._request = request
        self._names = names
        self.delay = 0.0

    def ok(self, status: int, description: str, body: Any = None) -> None:
        """Answer a request that succeeded."""
        self._send(status, description, {}, body)

    def failed(self, error: BrokerError) -> None:
        """Answer a request that failed, with the reason."""
        condition = {"errorCondition": Symbol(error.condition)}
        self._send(error.http_status, error.description, condition, None)

    def _send(self, status: int, description: str, more: dict[str, Any], body: Any) -> None:
        status_name, description_name = self._names
        encoded = Message.build(
            properties=Properties(correlation_id=self._request.message_id),
            application_properties={
                status_name: Int(status),
                description_name: description,
                **more,
            },
            value=body,
        ).encode()
        if self.delay:
            asyncio.get_running_loop().call_later(self.delay, self._send_now, encoded)
        else:
            self._send_now(encoded)

    def _send_now(self, encoded: bytes) -> None:
        end = self._end
        reply_to = self._request.reply_to
        link = end.connection.links.reply_link(end.link.session, end.path, reply_to)
        if link is not None:
            link.send(encoded)


class Node(Protocol):
    """Executes the requests of a client to one node."""

    max_request: int
    """The largest request, in bytes."""
    status_names: tuple[str, str]
    """The properties of an answer with the status and its description."""

    def is_authorized(self) -> bool:
        """Whether the client may still use this node."""

    def handle(self, request: Request, reply: Reply) -> None:
        """Execute one request and answer it."""


class RequestLink(LinkHandler):
    """Receives requests for a node; the answers are sent on the node's `ReplyLink`."""

    def __init__(self, end: LinkEnd, node: Node) -> None:
        self.end = end
        self._node = node

    def attach(self) -> None:
        """Answer the attach and grant credit for requests."""
        self.end.accept(max_message_size=self._node.max_request)
        self.end.engine.flow(self.end.link, CREDIT)

    def is_authorized(self) -> bool:
        """Whether the client may still use the node."""
        return self._node.is_authorized()

    def on_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        """Accept the requests and execute them."""
        end = self.end
        end.use()
        for delivery in deliveries:
            end.top_up_credit()
            try:
                request = _read(delivery)
            except BrokerError as error:
                self._settle(delivery, rejected(error))
            else:
                self._settle(delivery, ACCEPTED)
                self._node.handle(request, Reply(end, request, self._node.status_names))

    def _settle(self, delivery: Delivery, outcome: Composite) -> None:
        if not delivery.settled:
            self.end.settle(delivery.delivery_id, outcome)


def _read(delivery: Delivery) -> Request:
    if delivery.oversize:
        raise MessageSizeExceededError("The request is too large.")
    try:
        return read_request(delivery.payload)
    except AmqpError as problem:
        raise ArgumentError(f"The request cannot be read: {problem.description}.") from problem


class ReplyLink(LinkHandler):
    """Carries the answers of a node to the client, whatever rights its tokens grant."""

    def __init__(self, end: LinkEnd) -> None:
        self.end = end
        self._waiting: deque[bytes] = deque()
        self._tags = itertools.count(1)

    @property
    def path(self) -> str:
        """The node whose answers it carries."""
        return self.end.path

    def answers_to(self, reply_to: Any) -> bool:
        """Whether the client attached this link with the address that a request names."""
        address = getattr(self.end.link.target, "address", None)
        return bool(address is not None and address == reply_to)

    def attach(self) -> None:
        """Answer the client's attach."""
        self.end.accept()

    def send(self, payload: bytes) -> None:
        """Send an answer, or keep it until there is credit."""
        end = self.end
        end.use()
        if end.link.credit <= 0 or not end.link.is_active:
            if len(self._waiting) >= MAX_PENDING_REPLIES:
                end.connection.close(
                    "amqp:resource-limit-exceeded", "The client does not read its answers."
                )
                return
            self._waiting.append(payload)
            return
        end.engine.transfer(end.link, payload, next(self._tags).to_bytes(4, "big"), settled=True)
        end.connection.flush_soon(len(payload))

    def on_flow(self) -> None:
        """Send the answers that waited for credit."""
        while self._waiting and self.end.link.credit > 0:
            self.send(self._waiting.popleft())
