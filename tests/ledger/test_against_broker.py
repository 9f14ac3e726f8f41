"""The ledger against the brokers' own counters: what is recorded is what was done."""

import datetime as dt
import threading
from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityPairedNamespaceOptions, broker, events, pair_namespace

pytestmark = [pytest.mark.sdk, pytest.mark.slow]

KB = 1024
# recorded stage and operation -> the broker's kind of operation
KINDS = {
    ("send_primary", "send"): "send",
    ("send_primary", "schedule"): "schedule",
    ("send_primary", "cancel"): "cancel",
    ("send_backlog", "send"): "send",
    ("ping", "send"): "ping",
}


def recorded(place):
    """What the ledger says was done: by namespace, entity and kind, messages and operations."""
    tables = [pq.read_table(file) for file in place.glob("operations/*.parquet")]
    sums = defaultdict(lambda: [0, 0])
    for row in pa.concat_tables(tables).to_pylist():
        kind = KINDS.get((row["stage"], row["operation"]))
        if kind is not None:
            key = (row["namespace"], row["entity"], kind)
            sums[key][0] += row["messages"]
            sums[key][1] += row["billable"]
    return {key: tuple(value) for key, value in sums.items()}


def counted(namespace, name):
    """What the broker says was done to it, of what a paired client does."""
    return {
        (name, entity, kind): (counts["messages"], counts["billable"])
        for entity, kinds in namespace.operations.items()
        for kind, counts in kinds.items()
        if kind in KINDS.values() and counts["billable"]
    }


class Restorations:
    """Waits until some entities are available again."""

    def __init__(self, count):
        self._left = count
        self.done = threading.Event()

    def __call__(self, event):
        if isinstance(event, events.Restored):
            self._left -= 1
            if self._left == 0:
                self.done.set()


def test_recorded_operations_agree_with_the_brokers_one_by_one(tmp_path):
    place = tmp_path / "ledger"
    home = Restorations(2)
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        for name in ("orders", "invoices"):
            primary.create_queue(name)
        primary.create_topic("events")
        for name in ("a", "b", "c"):
            primary.create_subscription("events", name)
        sdk = ServiceBusClient.from_connection_string(primary.connection_string, retry_total=0)
        other = ServiceBusClient.from_connection_string(secondary.connection_string)
        admin = secondary.admin_client()
        options = SendAvailabilityPairedNamespaceOptions(
            secondary=other, secondary_admin=admin, primary_namespace="contoso",
            backlog_queue_count=2, failover_interval=0, ping_primary_interval=1,
            ledger=str(place), observers=[home],
        )  # fmt: skip
        with pair_namespace(sdk, options) as client:
            senders = {n: client.get_queue_sender(n) for n in ("orders", "invoices")}
            senders["events"] = client.get_topic_sender("events")
            # healthy: single messages of 1 KB and 200 KB, a list of mixed sizes, a batch
            for sender in senders.values():
                sender.send_messages(ServiceBusMessage(b"x" * KB))
                sender.send_messages(ServiceBusMessage(b"x" * 200 * KB))
                sender.send_messages([ServiceBusMessage(b"x" * n * KB) for n in (1, 100, 1, 70)])
                batch = sender.create_message_batch()
                for _ in range(30):
                    batch.add_message(ServiceBusMessage(b"x" * KB))
                sender.send_messages(batch)
                # scheduled, of mixed sizes, and cancelled by one call and by another
                later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
                mixed = [ServiceBusMessage(b"x" * n * KB) for n in (1, 150, 1)]
                numbers = sender.schedule_messages(mixed, later)
                sender.cancel_scheduled_messages(numbers[:2])
                sender.cancel_scheduled_messages(numbers[2])
            # an outage of two entities: the very calls that fail are redirected
            faults = [primary.faults.reject(entity=name) for name in ("orders", "events")]
            for name in ("orders", "events"):
                senders[name].send_messages(ServiceBusMessage(b"x" * KB))
                senders[name].send_messages(ServiceBusMessage(b"x" * 200 * KB))
                senders[name].send_messages(
                    [ServiceBusMessage(b"x" * n * KB) for n in (1, 100, 1, 70)]
                )
            # one ping each finds it back, and sends go to the primary again
            for fault in faults:
                fault.clear()
            assert home.done.wait(60)
            senders["orders"].send_messages(ServiceBusMessage(b"x" * KB))
        admin.close()
        # the primary has a name, the secondary an address alone
        address = other.fully_qualified_namespace
        expected = {**counted(primary, "contoso"), **counted(secondary, address)}
        found = recorded(place)
    assert found == expected
    operations = {(entity, kind): value for (_, entity, kind), value in found.items()}
    # 1 KB is 1 operation, 200 KB are 4, the list is 1 + 2 + 1 + 2, the batch 30; a copy for each
    # subscription is charged when it is received, not when it is sent
    assert operations["invoices", "send"] == (36, 41)
    assert operations["events", "send"] == (36, 41)
    assert operations["orders", "send"] == (37, 42)
    assert operations["orders", "ping"] == operations["events", "ping"] == (1, 1)
    assert operations["orders", "schedule"] == operations["events", "schedule"] == (3, 1 + 3 + 1)
    assert operations["orders", "cancel"] == operations["events", "cancel"] == (0, 2)
    backlog = [value for (entity, _), value in operations.items() if "transfer" in entity]
    assert sum(operations for _, operations in backlog) == 2 * (1 + 4 + 6)
