# generated from src/pairbus/pairing/_async/client.py by tools/gen_unasync.py; edit that one
"""The paired client: the surface of `ServiceBusClient`, with senders that use the backlog."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from azure.core.paging import ItemPaged
from azure.servicebus import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from pairbus.pairing._sync.guarded import GuardedReceiver, SecondaryClient
from pairbus.pairing._sync.lifecycle import Lifecycle
from pairbus.pairing._sync.sender import PairedSender
from pairbus.pairing.core import health as core
from pairbus.pairing.forking import on_fork
from pairbus.pairing.sdk.surface import covers
from pairbus.status import PairStatus


@covers(ServiceBusClient)
class PairedClient(ServiceBusClient):
    """A `ServiceBusClient` whose senders survive an outage. Made by `pair_namespace`."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        # The SDK's own __init__ is not called: everything but senders is the primary's.
        self._lifecycle = lifecycle
        self._primary = lifecycle.primary
        self._secondary = SecondaryClient(lifecycle)
        self.fully_qualified_namespace = lifecycle.primary.fully_qualified_namespace
        on_fork(lifecycle)

    def __repr__(self) -> str:
        pair, state = self._lifecycle.pair, self._lifecycle.paired_side.state
        return f"<PairedClient {pair.primary_host} with {pair.secondary_host} {state}>"

    # -- the SDK's surface

    def __enter__(self) -> PairedClient:
        self._lifecycle.check()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def get_queue_sender(
        self,
        queue_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        **kwargs: Any,
    ) -> PairedSender:
        """A sender to a queue that survives an outage. Takes the SDK's keyword arguments."""
        make = partial(self._primary.get_queue_sender, queue_name, socket_timeout=socket_timeout)
        return self._sender(partial(make, **kwargs), queue_name, client_identifier)

    def get_topic_sender(
        self,
        topic_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        **kwargs: Any,
    ) -> PairedSender:
        """A sender to a topic that survives an outage. Takes the SDK's keyword arguments."""
        make = partial(self._primary.get_topic_sender, topic_name, socket_timeout=socket_timeout)
        return self._sender(partial(make, **kwargs), topic_name, client_identifier)

    def _sender(
        self, make: Callable[..., ServiceBusSender], name: str, client_identifier: str | None
    ) -> PairedSender:
        lifecycle = self._lifecycle
        lifecycle.check()
        identifier = client_identifier or f"SBSender-{uuid.uuid4()}"
        make = partial(make, client_identifier=identifier)
        make()  # wrong arguments are refused here, as the SDK does
        sender = PairedSender(lifecycle, make, name, identifier)
        lifecycle.senders.add(sender)
        return sender

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ServiceBusReceiver:
        """A receiver of the primary, as the SDK returns it."""
        self._lifecycle.check()
        receiver = self._primary.get_queue_receiver(queue_name, **kwargs)
        return GuardedReceiver(receiver, self._lifecycle.check)

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **kwargs: Any
    ) -> ServiceBusReceiver:
        """A receiver of the primary, as the SDK returns it."""
        self._lifecycle.check()
        receiver = self._primary.get_subscription_receiver(topic_name, subscription_name, **kwargs)
        return GuardedReceiver(receiver, self._lifecycle.check)

    def list_queue_sessions(
        self,
        queue_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> ItemPaged[str]:
        """The session ids of a queue of the primary, as the SDK returns them."""
        self._lifecycle.check()
        found: ItemPaged[str] = self._primary.list_queue_sessions(
            queue_name, state_updated_after=state_updated_after, timeout=timeout
        )
        return found

    def list_subscription_sessions(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> ItemPaged[str]:
        """The session ids of a subscription of the primary, as the SDK returns them."""
        self._lifecycle.check()
        found: ItemPaged[str] = self._primary.list_subscription_sessions(
            topic_name, subscription_name, state_updated_after=state_updated_after, timeout=timeout
        )
        return found

    @classmethod
    def from_connection_string(cls, conn_str: str, **kwargs: Any) -> PairedClient:
        """Not available: a paired client is made by `pair_namespace`.

        Raises:
            TypeError: always.
        """
        raise TypeError("A PairedClient is made by pair_namespace(primary, options).")

    def close(self) -> None:
        """Close both clients, their senders and receivers, and the syphon; may be repeated."""
        self._lifecycle.close()

    # -- operators

    @property
    def secondary(self) -> SecondaryClient:
        """The secondary client of the pair."""
        return self._secondary

    def status(self) -> PairStatus:
        """Return the state of each entity, with the reason, and of each backlog queue."""
        return self._lifecycle.status()

    def force_failover(self, entity: str) -> None:
        """Send everything for `entity` to the backlog, until `release`."""
        self._lifecycle.check()
        self._lifecycle.pair.entity(entity).apply(core.BacklogForced())

    def force_primary(self, entity: str) -> None:
        """Send everything for `entity` to the primary, even if sends fail, until `release`."""
        self._lifecycle.check()
        self._lifecycle.pair.entity(entity).apply(core.PrimaryForced())

    def release(self, entity: str) -> None:
        """Let pairbus choose the route of `entity` again, beginning with a ping."""
        self._lifecycle.check()
        self._lifecycle.pair.entity(entity).apply(core.Released())

    def end_draining(self, entity: str) -> None:
        """Send to the primary although the backlog of `entity` is not delivered yet.

        For an operator who does not want to wait for a fence that is not answered. The order of
        the messages is not kept then.
        """
        self._lifecycle.check()
        self._lifecycle.pair.entity(entity).end_drain("an operator ended the drain")

    def fault(self, reason: str) -> None:
        """Fault the paired client: every use of it raises `ClientFaultedError` with `reason`."""
        self._lifecycle.fault(reason)
