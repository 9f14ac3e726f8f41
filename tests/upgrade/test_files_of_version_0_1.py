"""A backlog and a ledger that version 0.1.0 wrote are read by this version."""

import base64
import json
import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusClient

from pairbus import broker
from pairbus.client import BulkConnection
from pairbus.envelope.encoded import open_message, restore
from pairbus.ledger import LedgerWriter, Store

DATA = Path(__file__).parent / "data"
NOW = 1_900_000_000_000


def test_messages_of_the_backlog_arrive_as_they_were_sent():
    rows = [json.loads(line) for line in (DATA / "backlog.jsonl").read_text().splitlines()]
    opened = [open_message(base64.b64decode(row["payload"])) for row in rows]
    assert [one.sequence_number for one in opened] == [row["sequence_number"] for row in rows]
    assert {one.path for one in opened} == {"bills"}
    assert {one.problem for one in opened} == {None}
    home = [
        restore(one.message, session_id=one.session_id, time_to_live=one.time_to_live, now=NOW)
        for one in opened
    ]
    with (
        broker.run("contoso") as primary,
        BulkConnection(primary.connection_string) as bulk,
        ServiceBusClient.from_connection_string(primary.connection_string) as client,
    ):
        primary.create_queue("bills")
        assert all(outcome.is_accepted for outcome in bulk.sender("bills").send_batch(home))
        received = client.get_queue_receiver("bills").peek_messages(max_message_count=20)

    assert [message.message_id for message in received] == [f"bill-{n}" for n in range(10)]
    first = received[0]
    assert (first.subject, first.content_type) == ("bill", "text/plain")
    assert first.time_to_live == timedelta(days=30)
    expiry = first.raw_amqp_message.properties.absolute_expiry_time
    assert expiry == NOW + timedelta(days=30).total_seconds() * 1000
    assert first.application_properties == {
        b"n": 0, b"amount": 1.5, b"paid": False, b"big": 2**40
    }  # fmt: skip


def test_ledger_is_continued(tmp_path):
    place = tmp_path / "ledger"
    shutil.copytree(DATA / "ledger", place)
    Store(str(place)).require_ledger()
    before = counted(place)
    assert before == {"backlogged": 33, "forwarded": 23}

    writer = LedgerWriter(str(place), client_id="new")
    writer.backlogged([{"message_id": "m", "destination": "q", "backlog_queue": "b", "size": 1}])
    writer.close()
    assert counted(place) == {"backlogged": 34, "forwarded": 23}


def counted(place):
    found: dict[str, int] = {}
    for path in sorted(place.glob("messages/*.parquet")):
        for event in pq.read_table(path).column("event").to_pylist():
            found[event] = found.get(event, 0) + 1
    return found


@pytest.mark.parametrize("table", ["operations", "messages"])
def test_columns_of_the_ledger_are_those_of_this_version(tmp_path, table):
    from pairbus.ledger import files

    for path in (DATA / "ledger" / table).glob("*.parquet"):
        assert pq.read_schema(path).names == files.column_names(table)
