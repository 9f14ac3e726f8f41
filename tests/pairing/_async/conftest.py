"""Two embedded namespaces over real sockets, and a pair of clients on them."""

import gc
from time import monotonic

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from pairbus import broker
from pairbus.aio import SendAvailabilityPairedNamespaceOptions, pair_namespace
from pairbus.amqp.message import Message
from pairbus.pairing.runtime import AEvent, asleep

BACKLOG = "contoso/x-servicebus-transfer"


class Seen:
    """An observer that keeps the events, and can be waited on."""

    def __init__(self):
        self.events = []
        self._waiting = []

    def __call__(self, event):
        self.events.append(event)
        for kind, happened in list(self._waiting):
            if isinstance(event, kind):
                happened.set()

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    async def wait(self, kind, count=1, seconds=60):
        """The `count`-th event of a kind, as soon as there is one."""
        while len(self.of(kind)) < count:
            happened = AEvent()
            self._waiting.append((kind, happened))
            if len(self.of(kind)) < count:
                assert await happened.wait(seconds), f"no {kind.__name__} within {seconds} s"
        return self.of(kind)[count - 1]


class World:
    """What a test needs: `world.primary` and `world.secondary` are namespaces it can make fail."""

    def __init__(self, primary, secondary):
        self.primary = primary
        self.secondary = secondary
        self.seen = Seen()
        self.clients = []
        self.admins = []
        self.kept = []

    def keep(self, sender):
        """Hold on to a sender until the end: the clients hold theirs weakly, as the SDK does."""
        self.kept.append(sender)
        return sender

    def primary_client(self, connection_string=None, **kwargs):
        text = connection_string or self.primary.connection_string
        return ServiceBusClient.from_connection_string(text, **{"retry_total": 0, **kwargs})

    def secondary_client(self, connection_string=None, **kwargs):
        text = connection_string or self.secondary.connection_string
        return ServiceBusClient.from_connection_string(text, **kwargs)

    def options(self, secondary=None, **changes):
        admin = changes.pop("secondary_admin", "made here")
        if admin == "made here":
            admin = self.secondary.aio_admin_client()
            self.admins.append(admin)
        return SendAvailabilityPairedNamespaceOptions(
            secondary=secondary or self.secondary_client(),
            secondary_admin=admin,
            **{
                "primary_namespace": "contoso",
                "backlog_queue_count": 2,
                "failover_interval": 0,
                "ping_primary_interval": 1,
                "send_timeout": 8,
                "require_secondary": True,
                "observers": [self.seen],
                **changes,
            },
        )

    async def pair(self, primary=None, secondary=None, **changes):
        client = await pair_namespace(
            primary or self.primary_client(), self.options(secondary, **changes)
        )
        self.clients.append(client)
        return client

    async def open_backlog_link(self, sender):
        """Open a sender's backlog link now, so that no short time-out covers its opening."""
        link = sender._backlog._link()  # noqa: SLF001 - otherwise only an outage opens it
        await link.open(deadline=monotonic() + 60)

    def messages(self, namespace, path):
        """The messages in a queue, as AMQP."""
        found, number = [], 0
        while some := namespace.do(lambda ns, first=number: ns.peek(path, first, 10_000)):
            found += [Message.parse(delivery.message.bare) for delivery in some]
            number = some[-1].message.sequence_number + 1
        return found

    def bodies(self, namespace, path):
        return [message.body for message in self.messages(namespace, path)]

    def backlog(self):
        """The messages in all backlog queues."""
        paths = self.secondary.do(lambda ns: [q.name for q in ns.admin.list_queues()])
        return [
            m
            for p in sorted(paths)
            if p.startswith(BACKLOG)
            for m in self.messages(self.secondary, p)
        ]

    async def close(self):
        for client in self.clients:
            await client.close()
        for admin in self.admins:
            await admin.close()
        await asleep(0.05)  # the SDK closes its transports without waiting for them


@pytest.fixture
async def world():
    with broker.run(namespace="contoso") as primary, broker.run(namespace="backup") as secondary:
        primary.create_queue("orders")
        made = World(primary, secondary)
        yield made
        await made.close()
    gc.collect()  # what the SDK left open is found here, and not in a later test


@pytest.fixture
def message():
    return lambda body="hello", **kwargs: ServiceBusMessage(body, **kwargs)
