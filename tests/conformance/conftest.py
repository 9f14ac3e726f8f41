"""One body of behaviour tests for three targets: the embedded broker, the official emulator, Azure.

    pytest tests/conformance                    # the embedded broker
    SERVICEBUS_CONNECTION_STRING=… pytest tests/conformance --target live -n 4
    pytest tests/conformance --target emulator  # on localhost, administration on port 5300

The connection string needs the claim Manage. Every entity has a name of this run, is deleted when
its test module ends, and deletes itself after five idle minutes should the run be killed.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus import broker
from pairbus.administration import admin_client

EMULATOR = (
    "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
)
PREFIX = "pairbus-conformance"
IDLE = timedelta(minutes=5)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/conformance/" in item.path.as_posix():
            item.add_marker(pytest.mark.sdk)
            item.add_marker(pytest.mark.slow)


@dataclass(frozen=True)
class Target:
    """Where the tests run, how long they wait for a message there, and for none."""

    name: str
    connection_string: str
    admin: ServiceBusAdministrationClient
    wait: float
    quiet: float


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    name = request.config.getoption("--target")
    given = os.environ.get("SERVICEBUS_CONNECTION_STRING", "")
    if name == "embedded":
        with broker.run() as ns, ns.admin_client() as admin:
            yield Target(name, ns.connection_string, admin, 20, 0.5)
            left = [queue.name for queue in admin.list_queues()]
            left += [topic.name for topic in admin.list_topics()]
            assert left == [], "the tests left entities behind"
    elif name == "emulator":
        text = given or EMULATOR
        http = os.environ.get("SERVICEBUS_ADMIN_CONNECTION_STRING") or text.replace(
            "localhost;", "localhost:5300;"
        )
        with admin_client(http) as admin:
            yield Target(name, text, admin, 10, 1)
    else:
        if not given:
            pytest.fail("--target live needs SERVICEBUS_CONNECTION_STRING in the environment")
        with ServiceBusAdministrationClient.from_connection_string(given) as admin:
            yield Target(name, given, admin, 20, 2)


class Bus:
    """Entities and SDK handlers of one test module; all are gone when it ends."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.admin = target.admin
        self.client = ServiceBusClient.from_connection_string(
            target.connection_string, retry_total=0 if target.name == "embedded" else 3
        )
        self._handlers: list[Any] = []
        self._senders: dict[str, ServiceBusSender] = {}
        self._queues: list[str] = []
        self._topics: list[str] = []

    def name(self) -> str:
        """A name that no other run uses."""
        return f"{PREFIX}-{uuid.uuid4().hex}"

    def queue(self, **properties: Any) -> str:
        """Create a queue."""
        name = self.name()
        self._queues.append(name)
        self.admin.create_queue(name, **({"auto_delete_on_idle": IDLE} | properties))
        return name

    def topic(self, *subscriptions: str, **properties: Any) -> str:
        """Create a topic with subscriptions."""
        name = self.name()
        self._topics.append(name)
        self.admin.create_topic(name, **({"auto_delete_on_idle": IDLE} | properties))
        for subscription in subscriptions:
            self.admin.create_subscription(name, subscription)
        return name

    def send(self, entity: str, *messages: Any) -> None:
        """Send messages, each by itself, with one sender for each entity."""
        if entity not in self._senders:
            self._senders[entity] = self.keep(self.client.get_queue_sender(entity))
        for message in messages:
            self._senders[entity].send_messages(message)

    def sender(self, entity: str) -> ServiceBusSender:
        """The sender that :meth:`send` uses."""
        self.send(entity)
        return self._senders[entity]

    def receiver(self, queue: str, **options: Any) -> ServiceBusReceiver:
        """A new receiver of a queue."""
        receiver: ServiceBusReceiver = self.keep(self.client.get_queue_receiver(queue, **options))
        return receiver

    def subscription(self, topic: str, name: str, **options: Any) -> ServiceBusReceiver:
        """A new receiver of a subscription."""
        receiver: ServiceBusReceiver = self.keep(
            self.client.get_subscription_receiver(topic, name, **options)
        )
        return receiver

    def take(self, receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
        """Receive exactly `count` messages."""
        found: list[ServiceBusReceivedMessage] = []
        while len(found) < count:
            more = receiver.receive_messages(
                max_message_count=count - len(found), max_wait_time=self.target.wait
            )
            assert more, f"{len(found)} messages came, {count} were expected"
            found += more
        return found

    def is_empty(self, receiver: ServiceBusReceiver) -> bool:
        """Whether there is nothing to receive."""
        return not receiver.receive_messages(max_wait_time=self.target.quiet)

    def keep(self, handler: Any) -> Any:
        """Open a handler, and close it at the end."""
        self._handlers.append(handler)
        return handler.__enter__()

    def close(self) -> None:
        """Close every handler and delete every entity, whatever happened before."""
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda handler: handler.close(), self._handlers))
            self.client.close()
            deletions: list[tuple[Any, str]] = [
                (self.admin.delete_queue, name) for name in self._queues
            ]
            deletions += [(self.admin.delete_topic, name) for name in self._topics]
            results = [pool.submit(delete, name) for delete, name in deletions]
        errors = [done.exception() for done in results]
        left = [e for e in errors if e is not None and not isinstance(e, ResourceNotFoundError)]
        assert left == [], "entities could not be deleted"


@pytest.fixture(scope="module")
def bus(target: Target) -> Iterator[Bus]:
    bus = Bus(target)
    try:
        yield bus
    finally:
        bus.close()
