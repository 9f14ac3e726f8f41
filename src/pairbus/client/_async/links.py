"""The common part of the bulk client's links: attach, detach, wait.

The service detaches links for reasons that are no failure: nothing was sent for ten minutes, a
token expired, the namespace is throttled. Such a link is attached again by the next operation. An
operation that was under way when the link was detached fails, because its outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from pairbus.amqp.errors import DETACH_FORCED, NOT_ALLOWED, UNAUTHORIZED_ACCESS
from pairbus.amqp.events import Delivery, Disposed, Flowed
from pairbus.amqp.link import Link, Outgoing
from pairbus.amqp.performatives import Error
from pairbus.client.errors import (
    SERVER_BUSY,
    ConnectionLostError,
    LinkDetachedError,
    OperationTimeoutError,
)

if TYPE_CHECKING:
    from pairbus.client._async.connection import BulkConnection

_TRANSIENT = frozenset((DETACH_FORCED, UNAUTHORIZED_ACCESS, SERVER_BUSY))


class LinkUser:
    """The user of one link (or of a pair); the multiplexer calls the `on_…` methods."""

    def __init__(self, connection: BulkConnection, entity: str) -> None:
        self.connection = connection
        self.mux = connection.mux
        self.entity = entity
        self.link: Link | None = None
        self._detached: LinkDetachedError | None = None
        self._is_attached = False
        self._is_closed = False

    def __repr__(self) -> str:
        state = "detached" if self._detached else "attached" if self._is_attached else "new"
        return f"<{type(self).__name__} {self.entity} {state}>"

    @property
    def is_detached(self) -> bool:
        """The peer detached the link, or it was closed: open another."""
        return self._detached is not None

    async def open(self, timeout: float | None = None) -> Self:
        """Authorize and attach, and wait for the peer's answer.

        Raises:
            LinkDetachedError: the peer refused; the condition says why.
            AuthenticationError: the peer refused the token.
        """
        deadline = self.connection.deadline(timeout)
        await self.connection.connect(timeout)
        with self.mux.condition:
            await self.connection.tokens.ensure(self.entity, deadline)
            await self.attach(deadline)
        return self

    async def attach(self, deadline: float) -> None:
        """Attach, and wait for the peer's answer; the caller holds the condition."""
        self.begin_attach()
        if not await self.mux.wait_until(self._is_settled, deadline):
            self._close()
            raise OperationTimeoutError(f"attaching to {self.entity}")
        self.check()

    @property
    def is_transiently_detached(self) -> bool:
        """The peer detached the link after it was attached, for a transient reason."""
        return (
            self._detached is not None
            and self._detached.condition in _TRANSIENT
            and self._is_attached
            and not self._is_closed
        )

    async def revive(self, deadline: float) -> None:
        """Attach again if the link was detached for a transient reason; the condition is held."""
        self.mux.poll()  # the detach may have arrived while no caller was reading
        detached = self._detached
        if detached is None or not self.is_transiently_detached or self.mux.is_lost:
            return
        if detached.condition == UNAUTHORIZED_ACCESS:
            self.connection.tokens.forget(self.entity)
        await self.connection.tokens.ensure(self.entity, deadline)
        if self._detached is detached:  # no other caller has attached it meanwhile
            await self.attach(deadline)

    async def close(self) -> None:
        """Detach, without waiting; a second call does nothing."""
        with self.mux.condition:
            self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def check(self) -> None:
        """Raise if the link or its connection is gone."""
        self.mux.check()
        if self._detached is not None:
            found = self._detached
            raise LinkDetachedError(found.condition, found.description, found.info)

    def active_link(self) -> Link:
        """The link, attached."""
        self.check()
        if self.link is None:
            raise LinkDetachedError(NOT_ALLOWED, "the link is not open")
        return self.link

    def _close(self) -> None:
        self._is_closed = True
        if self._detached is None:
            self._detached = LinkDetachedError(DETACH_FORCED, "the link is closed")
            self._detach()

    def _is_settled(self) -> bool:
        return self._is_attached or self._detached is not None

    def begin_attach(self) -> None:
        """Attach without waiting; the caller holds the condition."""
        self._detached, self._is_attached = None, False
        self._attach()

    def _attach(self) -> None:
        raise NotImplementedError

    def _detach(self) -> None:
        if self.link is not None and self.mux.is_open:
            self.mux.engine.detach(self.link)
            try:
                self.mux.flush()
            except ConnectionLostError:
                pass  # the peer is gone

    # -- called by the multiplexer, with its condition held

    def on_attached(self, link: Link) -> None:
        """The peer's attach arrived; a null terminus means that a detach follows."""
        attach = link.attach
        if attach is not None and (attach.source is None or attach.target is None):
            return
        self._is_attached = True

    def on_detached(self, link: Link, error: Error | None) -> None:
        """The link is gone."""
        if self._detached is None and link is self.link:
            default = f"the link to {self.entity} was detached"
            self._detached = LinkDetachedError.of(error, DETACH_FORCED, default)

    def on_flow(self, event: Flowed) -> None:
        """Credit or drain changed."""

    def on_deliveries(self, events: Sequence[Delivery]) -> None:
        """Messages arrived together."""

    def on_outcome(self, sent: Outgoing, event: Disposed) -> None:
        """The peer gave the outcome of a message that was sent."""

    def on_settled(self, event: Disposed) -> None:
        """The peer settled messages that it had sent."""
