"""A ledger in an object store, by its URL: a real server, real requests."""

import contextlib
import json
import logging

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityPairedNamespaceOptions, broker, pair_namespace
from pairbus.ledger import LedgerError, LedgerWriter, Store, files, probe, write_receipts
from pairbus.ledger.compact import compact
from pairbus.ledger.plan import plan
from pairbus.ledger.store import shown
from pairbus.monitoring.sources import read_statuses
from tests.conftest import serving

pytestmark = pytest.mark.slow


def rows_of(location, table):
    store = Store(location)
    tables = [files.read_rows(store, name) for name in store.list(table)]
    return pa.concat_tables(tables).to_pylist() if tables else []


@contextlib.contextmanager
def paired(location):
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        primary.create_queue("orders")
        options = SendAvailabilityPairedNamespaceOptions(
            secondary=ServiceBusClient.from_connection_string(secondary.connection_string),
            secondary_admin=secondary.admin_client(), primary_namespace="contoso",
            backlog_queue_count=1, ledger=location,
        )  # fmt: skip
        sdk = ServiceBusClient.from_connection_string(primary.connection_string)
        with pair_namespace(sdk, options) as client:
            yield client
        options.secondary_admin.close()


@pytest.mark.sdk
def test_a_paired_client_keeps_its_books_and_its_status_in_an_object_store(object_store, caplog):
    place = object_store.location("ledger")
    with paired(place) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage(b"x"))
        client.force_failover("orders")
        sender.send_messages([ServiceBusMessage(b"x", message_id=str(n)) for n in range(3)])
        ledger = client._lifecycle.pair.ledger  # noqa: SLF001 - not to wait for the minute to end
        assert ledger.flush()
        assert {row["message_id"] for row in rows_of(place, "messages")} == {"0", "1", "2"}
        client._lifecycle._status_file._write()  # noqa: SLF001 - not to wait for the minute to end
        [status] = read_statuses(place)
        assert status.entities[0].phase == "failed_over"
        # the store fails: sends go on, it is logged once and told, and nothing is missing later
        object_store.forget_everything()
        with caplog.at_level(logging.WARNING, "pairbus.ledger"):
            for number in (3, 4):
                sender.send_messages(ServiceBusMessage(b"x", message_id=str(number)))
                assert not ledger.flush()
        assert [record.name for record in caplog.records].count("pairbus.ledger") == 1
        assert "ucket" in client.status().ledger_problem
        assert ledger.failures == 2
        object_store.make_bucket()
    assert [row["message_id"] for row in rows_of(place, "messages")] == ["3", "4"]
    [status] = read_statuses(place)
    assert status.state == "closed"
    assert "secret-of-the-store" not in json.dumps(status.as_dict()) + caplog.text


def test_an_object_store_begins_empty_whatever_an_earlier_test_left_in_one():
    with serving() as store:
        place = store.location("ledger")
        write_receipts(place, [{"event": "forwarded", "message_id": "x"}])
    with serving() as store:
        assert Store(store.location("ledger")).list("messages") == []


def test_receipts_and_compaction_in_an_object_store(object_store):
    place = object_store.location("deep/er/ledger")
    assert probe(place) is None
    for number in range(5):
        write_receipts(place, [{"event": "forwarded", "message_id": str(number)}])
        with LedgerWriter(place, client_id=f"c{number}") as writer:
            writer.count("n", "e", "ping", "send")
    found = plan(Store(place), "messages")
    assert (len(found.single), found.gaps, found.unreadable) == (5, (), ())
    done = compact(place)
    assert [(one.files_before, one.files_after, one.rows) for one in done] == [(5, 1, 5)] * 2
    assert sorted(row["message_id"] for row in rows_of(place, "messages")) == list("01234")
    object_store.forget_everything()
    assert "ucket" in probe(place)
    with pytest.raises(OSError, match="ucket"):
        write_receipts(place, [{"event": "forwarded", "message_id": "x"}])


def test_an_object_appears_whole_or_not_at_all(object_store, monkeypatch):
    place = object_store.location("ledger")
    store = Store.create(place)
    seen = []

    class Watched:
        """Looks at what readers would see while a file is written, then fails."""

        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            return getattr(self._inner, name)

        def move(self, source, target):
            seen.append(store.list("messages"))
            assert source.rsplit("/", 1)[-1].startswith("_")
            raise OSError("the connection is lost")

    monkeypatch.setattr(store, "filesystem", Watched(store.filesystem))
    with pytest.raises(OSError, match="connection is lost"):
        store.write_whole("messages/a.parquet", b"half of")
    assert seen == [[]]
    assert Store(place).list("messages") == []
    # nothing is left behind either
    everything = pafs.FileSelector("books/ledger/messages", recursive=True)
    assert [info.path for info in Store(place).filesystem.get_file_info(everything)] == []


def test_a_url_is_shown_without_its_secrets():
    url = "s3://user:topsecret@books/ledger?endpoint_override=127.0.0.1:1&scheme=http"
    assert shown(url) == "s3://user:***@books/ledger"
    assert "topsecret" not in repr(Store(url))
    azure = "abfss://books@account.dfs.core.windows.net/ledger"
    assert shown(azure) == azure
    assert shown("/var/lib/ledger") == "/var/lib/ledger"
    with pytest.raises(LedgerError) as caught:
        Store("s4://user:topsecret@books/ledger")
    assert "topsecret" not in str(caught.value)
