"""One namespace per test module, and SDK objects that are opened once and closed together.

Opening a sender or receiver takes the SDK half a second and closing it as long, however fast the
broker is: so tests leave their handlers open, and the module closes all of them side by side.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus import __version__ as azure_servicebus_version

from pairbus.broker import RunningNamespace, run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "broker/sdk/" in item.path.as_posix():
            item.add_marker(pytest.mark.sdk)
            item.add_marker(pytest.mark.slow)


#: Since 7.15.0 the SDK waits for the outcome of a settlement, so that it can tell of a lost lock.
WAITS_FOR_OUTCOME = tuple(map(int, azure_servicebus_version.split(".")[:2])) >= (7, 15)


class Bus:
    """A namespace with an SDK client; what it opens is closed at the end of the module."""

    def __init__(self, ns: RunningNamespace) -> None:
        self.ns = ns
        self.waits_for_outcome = WAITS_FOR_OUTCOME
        self.client = ServiceBusClient.from_connection_string(ns.connection_string, retry_total=0)
        self._open: list[Any] = []
        self._senders: dict[str, ServiceBusSender] = {}

    def queue(self, **properties: Any) -> str:
        """Create a queue with a name of its own."""
        name = f"q-{uuid.uuid4().hex[:12]}"
        self.ns.create_queue(name, **properties)
        return name

    def topic(self, *subscriptions: str, **properties: Any) -> str:
        """Create a topic with a name of its own."""
        name = f"t-{uuid.uuid4().hex[:12]}"
        self.ns.create_topic(name, **properties)
        for subscription in subscriptions:
            self.ns.create_subscription(name, subscription)
        return name

    def sender(self, path: str) -> ServiceBusSender:
        """Return the module's sender for a queue or topic."""
        if path not in self._senders:
            self._senders[path] = self.keep(self.client.get_queue_sender(path))
        return self._senders[path]

    def topic_sender(self, topic: str) -> ServiceBusSender:
        """Return the module's sender for a topic."""
        if topic not in self._senders:
            self._senders[topic] = self.keep(self.client.get_topic_sender(topic))
        return self._senders[topic]

    def receiver(self, queue: str, **options: Any) -> ServiceBusReceiver:
        """Return a new receiver of a queue."""
        receiver: ServiceBusReceiver = self.keep(self.client.get_queue_receiver(queue, **options))
        return receiver

    def subscription(self, topic: str, name: str, **options: Any) -> ServiceBusReceiver:
        """Return a new receiver of a subscription."""
        receiver: ServiceBusReceiver = self.keep(
            self.client.get_subscription_receiver(topic, name, **options)
        )
        return receiver

    def keep(self, handler: Any) -> Any:
        """Open a handler, and close it at the end."""
        self._open.append(handler)
        return handler.__enter__()

    def take(
        self, receiver: ServiceBusReceiver, count: int = 1, wait: float = 15
    ) -> list[ServiceBusReceivedMessage]:
        """Receive exactly `count` messages."""
        found: list[ServiceBusReceivedMessage] = []
        while len(found) < count:
            more = receiver.receive_messages(
                max_message_count=count - len(found), max_wait_time=wait
            )
            if not more:
                break
            found += more
        assert len(found) == count, f"{len(found)} messages came, {count} were expected"
        return found

    def is_empty(self, receiver: ServiceBusReceiver, wait: float = 0.3) -> bool:
        """Whether there is nothing to receive."""
        return not receiver.receive_messages(max_message_count=1, max_wait_time=wait)

    def settled(self, receiver: ServiceBusReceiver) -> None:
        """Wait until the broker has seen every settlement: the older SDK does not."""
        receiver.peek_messages()

    def runtime(self, queue: str) -> Any:
        """Return a queue's counts."""
        return self.ns.do(lambda ns: ns.admin.runtime(queue))

    def close(self) -> None:
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda handler: handler.close(), self._open))
        self.client.close()


@pytest.fixture(scope="module")
def namespace() -> Iterator[RunningNamespace]:
    with run() as ns:
        yield ns


@pytest.fixture(scope="module")
def bus(namespace: RunningNamespace) -> Iterator[Bus]:
    bus = Bus(namespace)
    yield bus
    bus.close()
