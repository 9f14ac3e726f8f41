"""What waits in the backlog is looked at, and stays as it is."""

from collections import Counter

import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import broker
from pairbus.client import BulkConnection
from pairbus.reports.backlog_peek import PAGE, peek_backlog, save_peeked

pytestmark = [pytest.mark.sdk, pytest.mark.slow]

QUEUE = "contoso/x-servicebus-transfer/0"


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
