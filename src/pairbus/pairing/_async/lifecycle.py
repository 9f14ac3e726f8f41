"""The states of the two clients of a pair, and the wrapper of the secondary that has one."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from pairbus.exceptions import ClientClosedError, ClientFaultedError
from pairbus.pairing.runtime import aabandonable
from pairbus.pairing.sdk import internals as _sdk

logger = logging.getLogger("pairbus.client")


class Side:
    """Whether one of the two clients is open; the SDK's clients have no such state."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = "open"
        self.reason: str | None = None

    def check(self) -> None:
        """Raise why it cannot be used, if it cannot."""
        if self.state == "open":
            return
        if self.state == "faulted":
            raise ClientFaultedError(self.reason or "")
        raise ClientClosedError(f"The {self.name} client is closed: {self.reason}")


class SecondaryClient(ServiceBusClient):
    """The secondary client of a pair: a thin wrapper that knows whether it is open."""

    def __init__(self, client: ServiceBusClient, side: Side, closed: Callable[[], None]) -> None:
        # The SDK's own __init__ is not called: everything is the wrapped client's.
        self._wrapped = client
        self._side = side
        self._closed = closed
        self._given: weakref.WeakSet[Any] = weakref.WeakSet()

    def __getattr__(self, name: str) -> Any:
        if name in ("_wrapped", "_side", "_closed", "_given"):
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def __repr__(self) -> str:
        return f"<SecondaryClient {self._wrapped.fully_qualified_namespace} {self._side.state}>"

    async def __aenter__(self) -> SecondaryClient:
        self._side.check()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.close()

    def _give(self, handler: Any) -> Any:
        self._given.add(handler)
        return handler

    def get_queue_sender(self, queue_name: str, **kwargs: Any) -> ServiceBusSender:
        """A sender of the secondary namespace, as the SDK gives it."""
        self._side.check()
        sender: ServiceBusSender = self._give(self._wrapped.get_queue_sender(queue_name, **kwargs))
        return sender

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> ServiceBusSender:
        """A sender of the secondary namespace, as the SDK gives it."""
        self._side.check()
        sender: ServiceBusSender = self._give(self._wrapped.get_topic_sender(topic_name, **kwargs))
        return sender

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ServiceBusReceiver:
        """A receiver of the secondary namespace, as the SDK gives it."""
        self._side.check()
        receiver: ServiceBusReceiver = self._give(
            self._wrapped.get_queue_receiver(queue_name, **kwargs)
        )
        return receiver

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **kwargs: Any
    ) -> ServiceBusReceiver:
        """A receiver of the secondary namespace, as the SDK gives it."""
        self._side.check()
        receiver: ServiceBusReceiver = self._give(
            self._wrapped.get_subscription_receiver(topic_name, subscription_name, **kwargs)
        )
        return receiver

    async def close(self) -> None:
        """Close the secondary client alone; the pair has no backlog then. Twice is fine."""
        if self._side.state == "open":
            self._side.state, self._side.reason = "closed", "close() was called"
            await close_sdk(self._wrapped)
            self._closed()

    def _fault(self, reason: str) -> None:
        self._side.state, self._side.reason = "faulted", reason
        for handler in list(self._given):
            _sdk.poison(handler, ClientFaultedError(reason))


async def close_sdk(client: ServiceBusClient) -> None:
    """Close an SDK client; one whose peer is deaf is left behind."""
    for _ in range(5):
        try:
            await aabandonable(10.0, client.close, what="closing a client")
        except RuntimeError as error:
            # The SDK stops half-way when a sender is made or closed meanwhile: go on with the rest.
            logger.debug("closing a client: %r", error)
        except Exception as error:  # noqa: BLE001  # closed for us, whatever it says
            logger.warning("closing a client: %r", error)
            return
        else:
            return
