"""Receipts found by message: which files are read, and how often."""

import pyarrow.parquet as pq

from pairbus.ledger import LedgerWriter, ReceiptWriter, Store
from pairbus.ledger.compact import compact
from pairbus.ledger.receipt_index import ReceiptIndex

QUEUE = "contoso/x-servicebus-transfer/0"


def receipt(number):
    return {
        "event": "forwarded",
        "backlog_queue": QUEUE,
        "sequence_number": number,
        "message_id": f"m{number}",
        "enqueued_at": 1_700_000_000_000_000,
    }


def key(number):
    return (QUEUE, number, f"m{number}", 1_700_000_000_000_000)


def test_a_compaction_while_the_files_are_read_hides_no_receipt(tmp_path, monkeypatch):
    store = Store(str(tmp_path))
    for number in (1, 2):
        ReceiptWriter(str(tmp_path)).write([receipt(number)])
    listed = store.list("messages", ".parquet")
    compact(store)
    lists = iter([listed])
    original = store.list
    monkeypatch.setattr(store, "list", lambda *args: next(lists, None) or original(*args))
    assert ReceiptIndex(store).find([key(1), key(2)]) == {key(1), key(2)}


def test_a_file_is_read_once_even_if_it_holds_no_receipt(tmp_path, monkeypatch):
    with LedgerWriter(str(tmp_path), client_id="app") as writer:
        writer.backlogged([{"message_id": "m1", "destination": "orders", "size": 10}])
    ReceiptWriter(str(tmp_path)).write([receipt(1)])
    read = []

    def read_columns(store, name, columns):
        read.append(name)
        return pq.read_table(store.path(name), columns=columns)

    monkeypatch.setattr("pairbus.ledger.files.read_rows", read_columns)
    index = ReceiptIndex(Store(str(tmp_path)))
    for _ in range(3):
        assert index.find([key(1), key(2)]) == {key(1)}
    assert len(read) == 2
    ReceiptWriter(str(tmp_path)).write([receipt(2)])
    assert index.find([key(1), key(2)]) == {key(1), key(2)}
    assert len(read) == 3
