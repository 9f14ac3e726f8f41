"""What waits in the backlog is looked at, and stays as it is."""

from collections import Counter
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import broker
from pairbus.amqp.codec import encode
from pairbus.client import BulkConnection
from pairbus.client.received import Received
from pairbus.reports.backlog_peek import PAGE, peek_backlog, save_peeked

pytestmark = [pytest.mark.sdk, pytest.mark.slow]

QUEUE = "contoso/x-servicebus-transfer/0"


class OneMessage:
    """A connection whose only message is in the queue itself."""

    def __init__(self, payload):
        self._payload = payload

    def management(self, entity):
        self._pages = [] if "$" in entity else [[Received(self._payload, b"")]]
        return self

    def peek_pages(self, _size):
        return self._pages


def counts(namespace):
    found = namespace.do(lambda ns: ns.admin.runtime(QUEUE))
    return (found.active_message_count, found.dead_letter_message_count, found.total_message_count)


def test_backlog_queues_and_their_dead_letters_are_peeked_and_not_touched(tmp_path):
    with broker.run("contoso-dr") as secondary:
        secondary.create_queue(QUEUE)
        with ServiceBusClient.from_connection_string(secondary.connection_string) as client:
            with client.get_queue_sender(QUEUE) as sender:
                messages = [
                    ServiceBusMessage(
                        b"x",
                        message_id=f"m{n}",
                        application_properties={"x-ms-path": "orders", "x-ms-sessionid": "s"},
                    )
                    for n in range(PAGE + 20)
                ]
                sender.send_messages(messages)
            with client.get_queue_receiver(QUEUE) as receiver:
                [first] = receiver.receive_messages(1)
                receiver.dead_letter_message(first, reason="TooLarge")
        before = counts(secondary)
        calls = Counter()
        with BulkConnection(secondary.connection_string) as connection:
            rows = list(
                peek_backlog(
                    connection,
                    [QUEUE, "contoso/x-servicebus-transfer/none"],
                    count=lambda entity, seen: calls.update({entity: max(1, seen)}),
                )
            )
        counted = secondary.operations
        assert counts(secondary) == before
    assert sorted(row["message_id"] for row in rows) == sorted(f"m{n}" for n in range(PAGE + 20))
    assert [row["message_id"] for row in rows if row["dead_letter"]] == [first.message_id]
    assert {(row["destination"], row["session_id"], row["backlog_queue"]) for row in rows} == {
        ("orders", "s", QUEUE)
    }
    assert all(row["sequence_number"] and row["enqueued_at"] and row["size"] for row in rows)
    assert calls[QUEUE] == counted[QUEUE]["peek"]["billable"]
    assert save_peeked(rows, str(tmp_path / "w.parquet")) == PAGE + 20
    assert pq.read_table(tmp_path / "w.parquet").num_rows == PAGE + 20


def test_a_peeked_message_has_the_id_that_the_ledger_has_for_it():
    # as `pairbus.pairing.packing` and the source of the syphon write them
    for given, known in ((b"order-1", "order-1"), (UUID(int=7), str(UUID(int=7)))):
        payload = b"\x00\x53\x73" + encode([given]) + b"\x00\x53\x75" + encode(b"x")
        [row] = peek_backlog(OneMessage(payload), [QUEUE])
        assert row["message_id"] == known
