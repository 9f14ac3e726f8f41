"""A pair that runs the syphon itself brings its backlog home."""

import time

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import (
    ClientFaultedError,
    SendAvailabilityPairedNamespaceOptions,
    SyphonOptions,
    broker,
    events,
    pair_namespace,
)
from pairbus.amqp.message import Message
from pairbus.pairing._sync import lifecycle as shell

pytestmark = [
    pytest.mark.sdk,
    pytest.mark.slow,
    pytest.mark.spark,
    # The SDK leaves the socket of a connection that was reset to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_outage_from_the_first_failure_to_the_empty_backlog(tmp_path, monkeypatch):
    monkeypatch.setattr(shell, "FAULT_AFTER", 1.0)
    seen = []
    with (
        broker.run(namespace="contoso") as primary,
        broker.run(namespace="backup") as secondary,
        secondary.admin_client() as admin,
    ):
        primary.create_queue("orders")
        client = pair_namespace(
            ServiceBusClient.from_connection_string(primary.connection_string),
            SendAvailabilityPairedNamespaceOptions(
                secondary=ServiceBusClient.from_connection_string(secondary.connection_string),
                secondary_admin=admin,
                primary_namespace="contoso",
                backlog_queue_count=2,
                failover_interval=0,
                ping_primary_interval=1,
                ledger=tmp_path / "ledger",
                observers=[seen.append],
                enable_syphon=True,
                syphon=SyphonOptions(
                    primary=primary.connection_string,
                    secondary=secondary.connection_string,
                    master="local[2]",
                    checkpoint=str(tmp_path / "checkpoint"),
                    long_poll=2,
                ),
            ),
        )
        try:
            with client.get_queue_sender("orders") as sender:
                # Given messages in the backlog, because the primary was out
                primary.kill()
                for number in range(20):
                    sender.send_messages(ServiceBusMessage("x", message_id=str(number)))
                assert client.status().entity("orders").counts.sent_backlog == 20
                primary.start()

                # Then they come home, in order, without anybody asking
                deadline = time.monotonic() + 120
                found = []
                while len(found) < 20 and time.monotonic() < deadline:
                    time.sleep(0.2)
                    found = primary.do(lambda ns: ns.peek("orders", 0, 100))
                ids = [Message.parse(one.message.bare).properties.message_id for one in found]
                assert ids == [str(number) for number in range(20)]

                # And where the syphon runs, a pair of which one is closed does not live on
                client.secondary.close()
                while not any(isinstance(event, events.ClientFaulted) for event in seen):
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                with pytest.raises(ClientFaultedError):
                    sender.send_messages(ServiceBusMessage("y"))
        finally:
            client.close()
        assert client._lifecycle.syphon is None  # noqa: SLF001 - no status shows a stopped syphon
