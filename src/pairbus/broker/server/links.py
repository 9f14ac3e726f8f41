"""Links of a client: the base of all, those that carry answers, and those that take messages in.

A message that comes in is acknowledged when it is durable and not before; a refusal says on the
wire what the service would say. Each delivery gets a disposition frame of its own: the SDK stalls
when several are told in one.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec

from pairbus.amqp.composite import Composite
from pairbus.amqp.errors import INTERNAL_ERROR, AmqpError
from pairbus.amqp.events import Delivery
from pairbus.amqp.link import Link, Outgoing
from pairbus.amqp.performatives import ACCEPTED, Error, Rejected
from pairbus.broker.entities.errors import (
    ArgumentError,
    BrokerError,
    EntityDisabledError,
    MessageSizeExceededError,
    StoreError,
)
from pairbus.broker.entities.model import AccessRight
from pairbus.broker.faults.faults import Fault
from pairbus.broker.server.incoming import BATCH_FORMAT, read_batch, read_message
from pairbus.names import PING_CONTENT_TYPE

if TYPE_CHECKING:
    from pairbus.broker.server.connection import AmqpConnection

_log = logging.getLogger("pairbus.broker.amqp")

CREDIT = 1000  # what a sender may have on the way; topped up when half is used
MAX_PENDING_REPLIES = 1000


def rejected(error: BrokerError) -> Rejected:
    """Return the outcome that tells a refusal."""
    return Rejected(Error(error.condition, error.description))


P = ParamSpec("P")


def guarded(method: Callable[P, None]) -> Callable[P, None]:
    """Keep an error of one link from whoever called: the namespace serves the others too."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception:  # noqa: BLE001 (whatever it is, it is this connection's)
            _log.exception("a connection is closed after an error of one of its links")
            link = args[0]
            assert isinstance(link, LinkHandler)
            link.connection.close(INTERNAL_ERROR, "the broker has failed to serve this")

    return call


class LinkHandler:
    """One link, from the broker's end.

    Attributes:
        path: The entity or node that it is for, as the client wrote it.
    """

    def __init__(self, connection: AmqpConnection, link: Link, path: str) -> None:
        self.connection = connection
        self.link = link
        self.path = path
        self.broker = connection.broker
        self.namespace = connection.namespace
        self.engine = connection.engine

    def attach(self) -> None:
        """Answer the client's attach."""
        self.engine.attach_reply(self.link)

    def is_authorized(self) -> bool:
        """Whether the client's tokens still allow this link."""
        return True

    def on_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        """Take messages from the client that came together."""
        for delivery in deliveries:
            self.on_delivery(delivery)

    def on_delivery(self, delivery: Delivery) -> None:
        """Take a message from the client."""

    def on_flow(self) -> None:
        """Take note of the client's new credit."""

    def on_disposition(
        self, deliveries: list[Outgoing], state: Composite | None, settled: bool
    ) -> None:
        """Take note of what the client did with messages of ours."""

    def close(self) -> None:
        """The link is gone."""


class ReplyLink(LinkHandler):
    """Carries the answers of `$cbs` or of an entity's `$management` to the client."""

    def __init__(self, connection: AmqpConnection, link: Link, path: str) -> None:
        super().__init__(connection, link, path)
        self._waiting: deque[bytes] = deque()
        self._tags = itertools.count(1)

    def send(self, payload: bytes) -> None:
        """Send an answer, or keep it until there is credit."""
        if self.link.credit <= 0 or not self.link.is_active:
            if len(self._waiting) >= MAX_PENDING_REPLIES:
                self.connection.close(
                    "amqp:resource-limit-exceeded", "The client does not take its answers."
                )
                return
            self._waiting.append(payload)
            return
        tag = next(self._tags).to_bytes(4, "big")
        self.engine.transfer(self.link, payload, tag, settled=True)
        self.connection.flush_soon()
        self.connection.flush_if_full(len(payload))

    def on_flow(self) -> None:
        """Send what waited."""
        while self._waiting and self.link.credit > 0:
            self.send(self._waiting.popleft())


class RequestLink(LinkHandler):
    """Takes requests for a node; the answer goes out on the node's `ReplyLink`."""

    max_request = 64 * 1024

    def attach(self) -> None:
        """Answer the attach, and let requests come."""
        self.engine.attach_reply(self.link, max_message_size=self.max_request)
        self.engine.flow(self.link, CREDIT)

    def on_delivery(self, delivery: Delivery) -> None:
        """Accept the request, and see to it."""
        if self.link.credit * 2 < CREDIT:
            self.engine.flow(self.link, CREDIT)
        if delivery.oversize:
            error = MessageSizeExceededError("The request is too large.")
            self.engine.settle(self.link, delivery.delivery_id, state=rejected(error))
            return
        if not delivery.settled:
            self.engine.settle(self.link, delivery.delivery_id, state=ACCEPTED)
        self.handle(delivery.payload)

    def handle(self, payload: bytes) -> None:
        """See to one request."""
        raise NotImplementedError


class SendLink(LinkHandler):
    """A client's sender: messages for a queue or topic."""

    def __init__(self, connection: AmqpConnection, link: Link, path: str) -> None:
        super().__init__(connection, link, path)
        self.connection.tokens.require(AccessRight.SEND, path)
        entity = self.namespace.catalog.entity(path)
        if not entity.settings.can_send:
            raise EntityDisabledError(f"The entity '{path}' is disabled for sending.")
        self._entity = entity
        self._size = min(entity.settings.max_message_size, self.engine.max_message_size)

    def attach(self) -> None:
        """Answer the attach with the entity's size limit, and let messages come."""
        self.engine.attach_reply(self.link, max_message_size=self._size)
        self.engine.flow(self.link, CREDIT)

    def is_authorized(self) -> bool:
        """Whether the client may still send."""
        return self.connection.tokens.allows(AccessRight.SEND, self.path)

    def on_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        """Hand messages that came together to the namespace in one go where nothing is amiss."""
        if len(deliveries) == 1 or self.broker.faults.any or not self._send_together(deliveries):
            for delivery in deliveries:
                self.on_delivery(delivery)

    def _send_together(self, deliveries: Sequence[Delivery]) -> bool:
        """Send plain messages at once, each with its own acknowledgement; False if one is odd."""
        namespace = self.namespace
        try:
            messages = []
            for delivery in deliveries:
                if delivery.oversize or delivery.message_format or delivery.state is not None:
                    return False
                messages.append(read_message(delivery.payload))
                if messages[-1].content_type == PING_CONTENT_TYPE:
                    return False
            namespace.send(self.path, messages)
        except (BrokerError, AmqpError):
            return False  # nothing was taken: one by one, each gets the answer that it deserves
        namespace.operations.add(self._entity.path, "send", len(deliveries) - 1, 0, 0, 0)
        if self.link.credit * 2 < CREDIT:
            self.engine.flow(self.link, CREDIT)
        namespace.committer.after_commit(lambda error: self._all_committed(deliveries, error))
        return True

    @guarded
    def _all_committed(self, deliveries: Sequence[Delivery], error: Exception | None) -> None:
        for delivery in deliveries:
            self._committed(delivery, error, None)

    def on_delivery(self, delivery: Delivery) -> None:
        """Hand a message, or a batch of them, to the namespace."""
        if self.link.credit * 2 < CREDIT:
            self.engine.flow(self.link, CREDIT)
        fault = self.broker.faults.strike("send", self.path) if self.broker.faults.any else None
        if fault is not None and not self._goes_on(fault, delivery):
            return
        namespace = self.namespace
        try:
            if delivery.oversize:
                raise MessageSizeExceededError(
                    f"The message is larger than the limit of {self._size} bytes."
                )
            if delivery.state is not None:
                self.broker.unsupported("transactions")
                raise BrokerError(
                    "Transactions are not supported.", condition="amqp:not-implemented"
                )
            if delivery.message_format == BATCH_FORMAT:
                messages = read_batch(delivery.payload)
            else:
                messages = [read_message(delivery.payload)]
            namespace.send(self.path, messages)
        except BrokerError as error:
            self._answer(delivery, rejected(error), fault)
            return
        except AmqpError as error:
            bad = ArgumentError(f"The message cannot be read: {error.description}.")
            bad.condition = error.condition
            self._answer(delivery, rejected(bad), fault)
            return
        if fault is not None and fault.kind == "hang":
            return
        if not delivery.settled:
            namespace.committer.after_commit(lambda error: self._committed(delivery, error, fault))

    @guarded
    def _committed(self, delivery: Delivery, error: Exception | None, fault: Fault | None) -> None:
        outcome: Composite = ACCEPTED
        if error is not None:
            outcome = rejected(
                error if isinstance(error, BrokerError) else StoreError("The store has failed.")
            )
        self._answer(delivery, outcome, fault)

    def _answer(self, delivery: Delivery, outcome: Composite, fault: Fault | None = None) -> None:
        if fault is not None and fault.kind == "delay":
            asyncio.get_running_loop().call_later(fault.delay, self._answer, delivery, outcome)
            return
        if not delivery.settled and self.link.is_active:
            self.engine.settle(self.link, delivery.delivery_id, state=outcome)
            self.connection.flush_soon()

    def _goes_on(self, fault: Fault, delivery: Delivery) -> bool:
        """Do what a fault says; return whether the message is taken all the same."""
        error = BrokerError(fault.description, condition=fault.condition)
        if fault.kind in {"reject", "throttle"}:
            self._answer(delivery, rejected(error))
        elif fault.kind == "detach":
            self.connection.detach(self.link, error)
        elif fault.kind == "close":
            self.connection.close(fault.condition, fault.description)
        elif fault.kind == "hang":
            return fault.take
        else:
            return True
        return False
