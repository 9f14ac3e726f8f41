"""Measures sending, failing over and draining between two embedded namespaces in memory."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

QUEUE = "bench"


def measure(count: int, body: bytes) -> Iterator[dict[str, Any]]:
    """Run the benchmarks; yield one figure after another."""
    from azure.servicebus import ServiceBusMessage

    with pair_of_brokers() as (primary, secondary, client, direct):
        with direct.get_queue_sender(QUEUE) as sender:
            plain = per_second(count, lambda: sender.send_messages(ServiceBusMessage(body)))
        yield {"name": "direct", "value": plain, "unit": "messages/s"}
        with client.get_queue_sender(QUEUE) as sender:
            paired = per_second(count, lambda: sender.send_messages(ServiceBusMessage(body)))
            yield {"name": "paired", "value": paired, "unit": "messages/s"}
            added = (1 / paired - 1 / plain) * 1e6
            yield {"name": "paired, added per message", "value": added, "unit": "µs"}
            primary.kill()
            begun = time.perf_counter()
            sender.send_messages(ServiceBusMessage(body))
            took = (time.perf_counter() - begun) * 1000
            yield {"name": "failover", "value": took, "unit": "ms"}
            redirected = per_second(count, lambda: sender.send_messages(ServiceBusMessage(body)))
            yield {"name": "backlog", "value": redirected, "unit": "messages/s"}
        primary.start()
        yield {"name": "drain", "value": drain(primary, secondary), "unit": "messages/s"}


@contextmanager
def pair_of_brokers() -> Iterator[tuple[Any, Any, Any, Any]]:
    """Two namespaces, a paired client, and a plain one."""
    from pairbus import SendAvailabilityPairedNamespaceOptions, broker, pair_namespace

    with (
        broker.run("contoso", tier="premium") as primary,
        broker.run("contoso-dr", tier="premium") as secondary,
        primary.client(retry_total=0) as direct,
        secondary.admin_client() as admin,
    ):
        primary.create_queue(QUEUE)
        options = SendAvailabilityPairedNamespaceOptions(
            secondary=secondary.client(retry_total=0),
            secondary_admin=admin,
            primary_namespace="contoso",
            backlog_queue_count=1,
            failover_interval=0,
            ping_primary_interval=1800,
        )
        with pair_namespace(primary.client(retry_total=0), options) as client:
            yield primary, secondary, client, direct


def per_second(count: int, send: Callable[[], None]) -> float:
    """How often a second `send` can be called, after it was called once."""
    send()
    begun = time.perf_counter()
    for _ in range(count):
        send()
    return count / (time.perf_counter() - begun)


def drain(primary: Any, secondary: Any) -> float:
    """Move the backlog to its destination: receive, send, complete, page by page."""
    from pairbus.client import BulkConnection
    from pairbus.names import backlog_path

    moved = 0
    begun = time.perf_counter()
    with (
        BulkConnection(secondary.connection_string) as source,
        BulkConnection(primary.connection_string) as target,
    ):
        receiver = source.receiver(backlog_path("contoso", 0))
        sender = target.sender(QUEUE)
        while page := receiver.receive_now(500, 8 << 20):
            sender.send_batch([message.payload for message in page])
            receiver.complete(page)
            moved += len(page)
    return moved / max(1e-9, time.perf_counter() - begun)
