"""A whole outage with real parts: the ledger against the brokers' own counters."""

import time
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityPairedNamespaceOptions, broker, pair_namespace
from pairbus.options import SyphonOptions
from pairbus.reports.cost_report import cost_report
from pairbus.reports.price_lists import load_prices
from pairbus.reports.reconciliation import balance

pytestmark = [
    pytest.mark.spark,
    pytest.mark.sdk,
    pytest.mark.slow,
]

KB = 1024
QUEUE = "contoso/x-servicebus-transfer/0"


def recorded(place, namespace):
    """Operations that the ledger has for a namespace, by entity and stage."""
    tables = [pq.read_table(file) for file in place.glob("operations/*.parquet")]
    sums = Counter()
    for row in pa.concat_tables(tables).to_pylist():
        if row["namespace"] == namespace:
            sums[row["entity"], row["stage"]] += row["billable"]
    return sums


def test_a_message_through_the_backlog_is_charged_as_the_brokers_count_it(spark, tmp_path):
    from pairbus.spark.syphon import start_syphon

    place = tmp_path / "ledger"
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        primary.create_queue("orders")
        primary.create_topic("events")
        for name in ("a", "b", "c"):
            primary.create_subscription("events", name)
        sdk = ServiceBusClient.from_connection_string(primary.connection_string, retry_total=0)
        other = ServiceBusClient.from_connection_string(secondary.connection_string)
        admin = secondary.admin_client()
        options = SendAvailabilityPairedNamespaceOptions(
            secondary=other, secondary_admin=admin, primary_namespace="contoso",
            backlog_queue_count=1, failover_interval=0, ping_primary_interval=60,
            ledger=str(place),
        )  # fmt: skip
        with pair_namespace(sdk, options) as client:
            for name in ("orders", "events"):
                client.force_failover(name)
            orders, events = client.get_queue_sender("orders"), client.get_topic_sender("events")
            for sender in (orders, events):
                sender.send_messages(ServiceBusMessage(b"x" * KB))
                sender.send_messages(ServiceBusMessage(b"x" * 200 * KB))
        admin.close()
        handle = start_syphon(
            SyphonOptions(
                primary=primary.connection_string,
                secondary=secondary.connection_string,
                primary_namespace="contoso",
                backlog_queue_count=1,
                checkpoint=str(tmp_path / "checkpoint"),
                ledger=str(place),
            ),
            spark=spark,
        )
        assert handle.wait_until_empty(120)
        handle.stop()
        address = other.fully_qualified_namespace
        at_primary, at_secondary = recorded(place, "contoso"), recorded(place, address)
        received = at_secondary[QUEUE, "receive_backlog"] + at_secondary[QUEUE, "idle_poll"]
        deadline = time.monotonic() + 60
        while True:
            # A poll that the end of the syphon cut off is counted when the broker sees that.
            first, second = primary.operations, secondary.operations
            kinds = {kind: counts["billable"] for kind, counts in second[QUEUE].items()}
            charged = kinds["receive"] + kinds["receive-empty"]
            if charged == received or time.monotonic() > deadline:
                break
            time.sleep(0.05)
    # sends to the primary: 1 KB is 1 operation, 200 KB are 4
    for name in ("orders", "events"):
        assert at_primary[name, "send_primary"] == first[name]["send"]["billable"] == 5
    assert at_secondary[QUEUE, "send_backlog"] == kinds["send"] == 10
    # a receive is charged by what it delivers, and one that ends empty is charged too
    assert received == charged
    assert at_secondary[QUEUE, "settle"] == kinds["settle"]
    # looking after the queue: pairing's own calls are recorded for the namespace; a syphon without
    # a state browses the queue for deferred messages
    looked = at_secondary[QUEUE, "management"] + at_secondary["contoso", "management"]
    assert looked == kinds["admin"] + kinds["peek"]
    assert not set(kinds) - {"send", "receive", "receive-empty", "settle", "admin", "peek"}
    # and the books: what was recorded, and what is derived for the application's receives
    report = cost_report(spark, str(place), load_prices(), subscriptions={"events": 3})
    derived = {line.name[0]: line.operations for line in report.by_stage if line.name[1]}
    assert derived == {"receive_primary": 5 + 3 * 5, "settle": 2 + 3 * 2}
    assert report.extra.operations == sum(at_secondary.values())
    books = balance(spark, str(place))
    assert books.balanced
    assert books.complete
    assert {row["destination"]: row["once"] for row in books.by_destination} == {
        "orders": 2,
        "events": 2,
    }
