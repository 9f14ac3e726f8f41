"""Request and response over a pair of links: `$cbs` and `<entity>/$management`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pairbus.amqp.errors import INTERNAL_ERROR, AmqpError
from pairbus.amqp.events import Delivery, Disposed, Flowed
from pairbus.amqp.link import Link, Outgoing
from pairbus.amqp.message import Message, Properties
from pairbus.amqp.performatives import (
    ACCEPTED,
    SND_MIXED,
    Error,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
)
from pairbus.client._async.links import LinkUser
from pairbus.client.errors import ClientError, RejectedError

if TYPE_CHECKING:
    from pairbus.client._async.connection import BulkConnection

_CREDIT = 1000


class Pending:
    """A request that has not been answered yet."""

    __slots__ = ("error", "message")

    def __init__(self) -> None:
        self.message: Message | None = None
        self.error: ClientError | None = None

    @property
    def is_done(self) -> bool:
        """The answer has arrived, or an error instead of it."""
        return self.message is not None or self.error is not None

    def status(self) -> tuple[int, str | None, str | None]:
        """Status code, condition and description of the answer: peers spell them in two ways."""
        found = (self.message and self.message.application_properties) or {}
        status = found.get("statusCode", found.get("status-code"))
        if not isinstance(status, int):
            status = 500
        condition = found.get("errorCondition", found.get("error-condition"))
        text = found.get("statusDescription", found.get("status-description"))
        return status, condition and str(condition), text if isinstance(text, str) else None


class RequestLinks(LinkUser):
    """The pair of links to one node; several requests may be in flight."""

    def __init__(self, connection: BulkConnection, entity: str, node: str) -> None:
        super().__init__(connection, entity)
        self.node = node
        self.reply_to = f"{connection.container_id}-{self.mux.runtime.uuid4()}"
        self._receiver: Link | None = None
        self._attached_count = 0
        self._waiting: dict[str, Pending] = {}
        self._queued: list[tuple[bytes, str]] = []

    def _attach(self) -> None:
        engine, session = self.mux.engine, self.connection.session
        name = self.connection.new_name("request", self.node)
        self._receiver = engine.attach_receiver(
            session, name + "-in", source=Source(self.node), target=Target(self.reply_to),
            snd_settle_mode=SND_MIXED, context=self,
        )  # fmt: skip
        self.link = engine.attach_sender(
            session, name + "-out", source=Source(self.reply_to), target=Target(self.node),
            context=self,
        )  # fmt: skip
        engine.flow(self._receiver, _CREDIT)

    def _detach(self) -> None:
        if self._receiver is not None and self.mux.is_open:
            self.mux.engine.detach(self._receiver)
        super()._detach()

    def on_attached(self, link: Link) -> None:
        """Both links have to be attached."""
        attach = link.attach
        if attach is not None and attach.source is not None and attach.target is not None:
            self._attached_count += 1
            self._is_attached = self._attached_count == 2

    def on_detached(self, link: Link, error: Error | None) -> None:
        """One link is useless without the other: every request in flight fails."""
        super().on_detached(self.link or link, error)
        for pending in self._waiting.values():
            pending.error = self._detached
        self._waiting.clear()

    def post(self, application_properties: dict[str, Any], body: Any) -> Pending:
        """Send a request; the caller holds the condition, and waits for `Pending.is_done`."""
        request_id = str(self.mux.runtime.uuid4())
        message = Message.build(
            properties=Properties(message_id=request_id, reply_to=self.reply_to),
            application_properties=application_properties,
            value=body,
        )
        pending = Pending()
        self._waiting[request_id] = pending
        self._queued.append((message.encode(), request_id))
        self._send_queued()
        return pending

    def forget(self, pending: Pending) -> None:
        """Drop a request whose answer is no longer awaited."""
        for key in [key for key, found in self._waiting.items() if found is pending]:
            del self._waiting[key]

    def _send_queued(self) -> None:
        link = self.link
        while self._queued and link is not None and link.credit > 0:
            payload, request_id = self._queued.pop(0)
            if request_id in self._waiting:
                tag = request_id.encode()[:32]
                self.mux.engine.transfer(link, payload, tag, context=request_id)

    def on_flow(self, event: Flowed) -> None:
        """Send the queued messages that the new credit allows."""
        self._send_queued()

    def on_outcome(self, sent: Outgoing, event: Disposed) -> None:
        """The node accepted the request, or refused it."""
        state = event.state
        if isinstance(state, Rejected | Released | Modified):
            pending = self._waiting.pop(sent.context, None)
            if pending is not None:
                error = state.error if isinstance(state, Rejected) else None
                pending.error = RejectedError.of(
                    error, INTERNAL_ERROR, f"{self.node} refused the request"
                )
        if not event.settled:
            self.mux.engine.settle(sent.link, sent.id, state=event.state)

    def on_deliveries(self, events: Sequence[Delivery]) -> None:
        """Give each answer to its request."""
        engine = self.mux.engine
        for event in events:
            if not event.settled:
                engine.settle(event.link, event.delivery_id, state=ACCEPTED)
            if event.link.credit < _CREDIT // 2:
                engine.flow(event.link, _CREDIT)
            try:
                message = Message.parse(event.payload)
                properties = message.properties
            except AmqpError:
                continue  # without a correlation id it matches no request
            if properties is not None:
                pending = self._waiting.pop(str(properties.correlation_id), None)
                if pending is not None:
                    pending.message = message
