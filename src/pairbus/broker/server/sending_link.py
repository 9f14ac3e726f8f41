"""A client's sender: messages for a queue or topic.

A message is acknowledged when it is durable and not before. Each delivery gets a disposition frame
of its own: the SDK stalls when one frame settles several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from pairbus.amqp.composite import Composite
from pairbus.amqp.errors import AmqpError
from pairbus.amqp.events import Delivery
from pairbus.amqp.performatives import ACCEPTED
from pairbus.broker.entities.errors import (
    ArgumentError,
    BrokerError,
    EntityDisabledError,
    MessageSizeExceededError,
    StoreError,
)
from pairbus.broker.entities.model import AccessRight
from pairbus.broker.faults.faults import REFUSALS, Fault
from pairbus.broker.server.incoming import BATCH_FORMAT, read_batch, read_message
from pairbus.broker.server.link_end import (
    CREDIT,
    LOW_CREDIT,
    LinkEnd,
    LinkHandler,
    guarded,
    rejected,
)
from pairbus.names import PING_CONTENT_TYPE


class SendingLink(LinkHandler):
    """Accepts the messages of one client's sender."""

    right = AccessRight.SEND

    def __init__(self, end: LinkEnd) -> None:
        end.tokens.require(self.right, end.path)
        entity = end.namespace.catalog.entity(end.path)
        if not entity.settings.can_send:
            raise EntityDisabledError(f"The entity '{end.path}' is disabled for sending.")
        self.end = end
        end.used_at = end.namespace.now()
        self._namespace = end.namespace
        self._entity = entity
        self._size = min(entity.settings.max_message_size, end.engine.max_message_size)

    def attach(self) -> None:
        """Answer the attach with the entity's size limit, and grant credit."""
        self.end.accept(max_message_size=self._size)
        self.end.engine.flow(self.end.link, CREDIT)

    def on_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        """Pass messages that arrived together to the namespace in one call, if all are plain."""
        if len(deliveries) == 1 or self.end.faults.any or not self._send_together(deliveries):
            for delivery in deliveries:
                self._on_delivery(delivery)

    def _send_together(self, deliveries: Sequence[Delivery]) -> bool:
        """Send plain messages in one call; False, and nothing sent, if one of them is not plain."""
        namespace = self._namespace
        throttle, cost = self.end.throttle, self._entity.send_credits
        if not throttle.would_serve(len(deliveries), cost):
            return False  # each is an operation of its own
        try:
            messages = []
            for delivery in deliveries:
                if delivery.oversize or delivery.message_format or delivery.state is not None:
                    return False
                messages.append(read_message(delivery.payload))
                if messages[-1].content_type == PING_CONTENT_TYPE:
                    return False
            namespace.send(self.end.path, messages)
        except (BrokerError, AmqpError):
            return False  # nothing was accepted: send them one by one, each with its own answer
        self.end.used_at = namespace.latest
        namespace.operations.add(self._entity.path, "send", len(deliveries) - 1, 0, 0, 0)
        throttle.charge(cost * len(deliveries))
        self.end.top_up_credit()
        self.end.committer.after_commit(partial(self._committed, deliveries, 0.0))
        return True

    def _on_delivery(self, delivery: Delivery) -> None:
        """Pass a message, or a batch of them, to the namespace."""
        end = self.end
        if end.link.credit < LOW_CREDIT:
            end.top_up_credit()
        fault = end.faults.match("send", end.path)
        if fault.kind != "delay" and not self._apply_fault(fault, delivery):
            end.use()
            return
        delay = fault.answer_delay
        throttle = end.throttle
        try:
            if throttle.is_on:
                throttle.check(end.path, "send")
            if delivery.oversize:
                raise MessageSizeExceededError(
                    f"The message is larger than the limit of {self._size} bytes."
                )
            if delivery.state is not None:
                raise end.broker.unsupported("transactions", "Transactions are not supported.")
            if delivery.message_format == BATCH_FORMAT:
                messages = read_batch(delivery.payload)
            else:
                messages = [read_message(delivery.payload)]
            self._namespace.send(end.path, messages)
            end.used_at = self._namespace.latest
            if throttle.is_on:
                throttle.charge(self._entity.send_credits * len(messages))
        except BrokerError as error:
            end.use()
            self._answer(delivery, rejected(error), delay)
            return
        except AmqpError as error:
            end.use()
            bad = ArgumentError(f"The message cannot be read: {error.description}.")
            bad.condition = error.condition
            self._answer(delivery, rejected(bad), delay)
            return
        if fault.kind != "hang" and not delivery.settled:
            end.committer.after_commit(partial(self._committed, (delivery,), delay))

    @guarded
    def _committed(
        self, deliveries: Sequence[Delivery], delay: float, error: Exception | None
    ) -> None:
        outcome: Composite = ACCEPTED
        if error is not None:
            outcome = rejected(
                error if isinstance(error, BrokerError) else StoreError("The store has failed.")
            )
        for delivery in deliveries:
            self._answer(delivery, outcome, delay)

    def _answer(self, delivery: Delivery, outcome: Composite, delay: float = 0.0) -> None:
        if delay:
            asyncio.get_running_loop().call_later(delay, self._answer, delivery, outcome)
        elif not delivery.settled:
            self.end.settle(delivery.delivery_id, outcome)

    def _apply_fault(self, fault: Fault, delivery: Delivery) -> bool:
        """Apply a fault; return whether the message is accepted nevertheless."""
        if fault.kind == "hang":
            return fault.take
        if fault.kind in REFUSALS:
            self._answer(delivery, rejected(fault.error()))
        elif fault.kind == "detach":
            self.end.detach(fault.error())
        else:
            self.end.connection.close(fault.condition, fault.description)
        return False
