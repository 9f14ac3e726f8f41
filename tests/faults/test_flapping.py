"""A primary that comes and goes loses nothing that was accepted."""

import random
import threading

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus import SendAvailabilityPairedNamespaceOptions, broker, pair_namespace
from pairbus.amqp.message import Message
from pairbus.testing import FaultProxy

pytestmark = [
    pytest.mark.sdk,
    pytest.mark.slow,
    # The SDK leaves the socket of a connection that was reset to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def stored(namespace, path):
    found = namespace.do(lambda ns: ns.peek(path, 0, 100_000))
    return [Message.parse(one.message.bare).properties.message_id for one in found]


@pytest.mark.parametrize("failover_interval", [0, 0.3])
def test_flapping_primary_loses_nothing_that_was_accepted(failover_interval):
    chance = random.Random(3)
    with (
        broker.run(namespace="contoso") as primary,
        broker.run(namespace="backup") as secondary,
        FaultProxy(primary.connection_string) as proxy,
        secondary.admin_client() as admin,
    ):
        primary.create_queue("orders")
        client = pair_namespace(
            ServiceBusClient.from_connection_string(proxy.connection_string, retry_total=1),
            SendAvailabilityPairedNamespaceOptions(
                secondary=ServiceBusClient.from_connection_string(secondary.connection_string),
                secondary_admin=admin,
                primary_namespace="contoso",
                backlog_queue_count=2,
                failover_interval=failover_interval,
                ping_primary_interval=1,
                send_timeout=1.5,
            ),
        )
        accepted, refused, lock = set(), set(), threading.Lock()
        stop = threading.Event()

        def produce(name):
            with client.get_queue_sender("orders") as sender:
                number = 0
                while not stop.wait(0.005):
                    number += 1
                    ids = [f"{name}-{number}"]
                    what = ServiceBusMessage("x", message_id=ids[0])
                    if number % 3 == 0:
                        ids = [f"{name}-{number}-{part}" for part in range(3)]
                        what = [ServiceBusMessage("x", message_id=one) for one in ids]
                    try:
                        sender.send_messages(what)
                    except ServiceBusError:
                        with lock:
                            refused.update(ids)
                    else:
                        with lock:
                            accepted.update(ids)

        threads = [threading.Thread(target=produce, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for mode in ("refuse", "pass", "deaf", "pass", "reset", "stall", "pass", "cut", "pass"):
            proxy.mode = mode
            stop.wait(chance.uniform(0.4, 1.2))
        proxy.mode = "pass"
        stop.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        client.close()

        at_home = stored(primary, "orders")
        waiting = [
            one for n in range(2) for one in stored(secondary, f"contoso/x-servicebus-transfer/{n}")
        ]
        found = set(at_home) | set(waiting)
        assert accepted
        assert waiting, "the outages were seen"
        assert accepted <= found, "something that was accepted is nowhere"
        assert found <= accepted | refused
        if failover_interval == 0:
            assert not refused
