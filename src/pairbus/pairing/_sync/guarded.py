# generated from src/pairbus/pairing/_async/guarded.py by tools/gen_unasync.py; edit that one
"""Wraps the SDK's receivers and the secondary client; they work while the pair is usable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from azure.servicebus import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from pairbus.pairing.sdk.senders import is_shut_down
from pairbus.pairing.sdk.surface import Guarded

if TYPE_CHECKING:
    from pairbus.pairing._sync.lifecycle import Lifecycle


class _GuardedLink(Guarded):
    """A sender or receiver of the SDK that raises the reason once its client is unusable."""

    def __enter__(self) -> Self:
        self._check()
        self._wrapped.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it. Twice is fine."""
        self._wrapped.close()


class GuardedReceiver(_GuardedLink, ServiceBusReceiver):  # type: ignore[misc]  # in the SDK's bases
    """The SDK's receiver; after its client was closed or faulted it raises the reason."""

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        self._check()
        try:
            return self._wrapped.__next__()
        except ValueError as error:
            if is_shut_down(error):
                self._check()
            raise


class GuardedSender(_GuardedLink, ServiceBusSender):  # type: ignore[misc]  # in the SDK's bases
    """The SDK's sender; after its client was closed or faulted it raises the reason."""


class SecondaryClient(Guarded, ServiceBusClient):
    """The secondary client of a pair: the SDK's client, which is open, closed or faulted."""

    _lifecycle: Any = None

    def __init__(self, lifecycle: Lifecycle) -> None:
        super().__init__(lifecycle.secondary, lifecycle.secondary_side.check)
        object.__setattr__(self, "_lifecycle", lifecycle)

    def __repr__(self) -> str:
        host = self._wrapped.fully_qualified_namespace
        return f"<SecondaryClient {host} {self._lifecycle.secondary_side.state}>"

    def __enter__(self) -> SecondaryClient:
        self._check()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def get_queue_sender(self, queue_name: str, **kwargs: Any) -> ServiceBusSender:
        """A sender of the secondary namespace, as the SDK returns it."""
        self._check()
        return GuardedSender(self._wrapped.get_queue_sender(queue_name, **kwargs), self._check)

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> ServiceBusSender:
        """A sender of the secondary namespace, as the SDK returns it."""
        self._check()
        return GuardedSender(self._wrapped.get_topic_sender(topic_name, **kwargs), self._check)

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ServiceBusReceiver:
        """A receiver of the secondary namespace, as the SDK returns it."""
        self._check()
        return GuardedReceiver(self._wrapped.get_queue_receiver(queue_name, **kwargs), self._check)

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **kwargs: Any
    ) -> ServiceBusReceiver:
        """A receiver of the secondary namespace, as the SDK returns it."""
        self._check()
        receiver = self._wrapped.get_subscription_receiver(topic_name, subscription_name, **kwargs)
        return GuardedReceiver(receiver, self._check)

    def close(self) -> None:
        """Close only the secondary client: the pair then has no backlog; may be repeated."""
        self._lifecycle.close_secondary()
