"""The broker's end of a link: the part that all handlers of links share.

A handler serves one link: `SendingLink` accepts messages, `ReceivingLink` delivers them,
`RequestLink` and `ReplyLink` carry the requests and answers of a node. Each has a `LinkEnd`, with
references to the engine, the namespace and the connection.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from pairbus.amqp.composite import Composite
from pairbus.amqp.errors import INTERNAL_ERROR
from pairbus.amqp.events import Delivery
from pairbus.amqp.link import EndState, Link, Outgoing
from pairbus.amqp.performatives import Error, Rejected
from pairbus.broker.entities.errors import BrokerError
from pairbus.broker.entities.messages import NEVER
from pairbus.broker.entities.model import AccessRight

if TYPE_CHECKING:
    from pairbus.broker.server.connection import AmqpConnection

_log = logging.getLogger("pairbus.broker.amqp")

_ACTIVE = EndState.ACTIVE  # looking up a member of an enum is slow in Python 3.11
CREDIT = 1000  # messages that a client may have in flight
LOW_CREDIT = CREDIT // 2  # topped up when less is left


class LinkEnd:
    """One link of a client, as its handler sees it.

    Attributes:
        path: The entity or node that the link is for, as the client wrote it.
        used_at: When a message or a grant of credit last used the link, in milliseconds; NEVER for
            a link that is not watched.
    """

    __slots__ = (
        "broker", "committer", "connection", "engine", "faults", "link", "namespace", "path",
        "throttle", "tokens", "used_at",
    )  # fmt: skip

    def __init__(self, connection: AmqpConnection, link: Link, path: str) -> None:
        self.connection = connection
        self.link = link
        self.path = path
        self.broker = connection.broker
        self.faults = connection.broker.faults
        self.namespace = connection.namespace
        self.committer = connection.namespace.committer
        self.engine = connection.engine
        self.tokens = connection.tokens
        self.throttle = connection.broker.throttle
        self.used_at = NEVER

    def use(self) -> None:
        """Set `used_at` to now. A caller that has read the clock already sets it itself."""
        self.used_at = self.namespace.now()

    def accept(self, **changes: Any) -> None:
        """Answer the client's attach."""
        self.engine.attach_reply(self.link, **changes)

    def top_up_credit(self) -> None:
        """Top up the client's credit to send."""
        if self.link.credit < LOW_CREDIT:
            self.engine.flow(self.link, CREDIT)

    def settle(self, number: int, state: Composite, *, last: int | None = None) -> None:
        """Send the outcome of a delivery, or of a range of them."""
        if self.link.state is _ACTIVE:
            self.engine.settle(self.link, number, last, state=state)
            self.connection.flush_soon()

    def detach(self, error: BrokerError) -> None:
        """Detach the link with an error; a link that is not answered yet is refused by it."""
        self.connection.links.detach(self.link, error)


class LinkHandler:
    """Serves one link of a client. Events that a handler does not need are ignored."""

    end: LinkEnd
    right: AccessRight | None = None
    """The right that a client needs for the link."""

    def attach(self) -> None:
        """Answer the client's attach."""
        raise NotImplementedError

    def is_authorized(self) -> bool:
        """Whether the client's tokens still allow this link."""
        return self.right is None or self.end.tokens.allows(self.right, self.end.path)

    def on_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        """Take messages from the client that arrived together."""

    def on_flow(self) -> None:
        """Apply the client's new credit."""

    def on_disposition(
        self, deliveries: list[Outgoing], state: Composite | None, settled: bool
    ) -> None:
        """Apply the client's outcome to messages that were delivered to it."""

    def close(self) -> None:
        """The link is detached."""


def rejected(error: BrokerError) -> Rejected:
    """Return the outcome that carries an error."""
    return Rejected(Error(error.condition, error.description))


class _HasEnd(Protocol):
    end: LinkEnd


H = TypeVar("H", bound=_HasEnd)
P = ParamSpec("P")


def guarded(method: Callable[Concatenate[H, P], None]) -> Callable[Concatenate[H, P], None]:
    """Let an error in a handler close only its connection: the caller serves other clients too."""

    @functools.wraps(method)
    def call(handler: H, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(handler, *args, **kwargs)
        except Exception:  # noqa: BLE001 (any error ends this connection only)
            _log.exception("a connection is closed after an error of one of its links")
            handler.end.connection.close(
                INTERNAL_ERROR, "the broker failed to serve the connection"
            )

    return call
