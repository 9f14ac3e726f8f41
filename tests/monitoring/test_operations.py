"""The operations of a ledger that grows and is compacted, counted without keeping its rows."""

import datetime as dt

import pytest

from pairbus.ledger.compact import compact
from pairbus.ledger.files import encode, to_table
from pairbus.ledger.store import Store
from pairbus.monitoring.operations import Operations, OperationsSource

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def ledger(tmp_path):
    (tmp_path / "operations").mkdir()
    (tmp_path / "ledger.json").write_text('{"format": "pairbus ledger", "version": 1}')
    return tmp_path


def write(ledger, sequence, sent, at=NOW):
    """Add a file with one row: `sent` messages."""
    row = {
        "writer": "a", "sequence": sequence, "minute": at, "client_id": "a", "operation": "send",
        "namespace": "contoso", "entity": "orders", "stage": "send_primary", "size_step": 1,
        "count": 1, "messages": sent, "bytes": 10, "billable": sent, "billable_batched": sent,
    }  # fmt: skip
    table = to_table("operations", {name: [value] for name, value in row.items()})
    file = ledger / "operations" / f"{sequence}.parquet"
    file.write_bytes(encode(table))


def messages(rows):
    return sum(row.messages for row in rows)


def test_rows_that_a_compaction_has_copied_count_once(ledger):
    write(ledger, 0, 1)
    write(ledger, 1, 2)
    source = OperationsSource(str(ledger))
    assert messages(source.read(NOW).all) == 3
    before = {path: path.read_bytes() for path in (ledger / "operations").iterdir()}
    write(ledger, 2, 4)
    compact(str(ledger))
    for path, data in before.items():  # the compaction is killed before it removes its input
        path.write_bytes(data)
    for reader in (source, OperationsSource(str(ledger))):
        assert messages(reader.read(NOW).all) == 7


def test_totals_do_not_drop_if_a_file_is_removed_before_it_is_read(ledger, monkeypatch):
    write(ledger, 0, 1)
    source = OperationsSource(str(ledger))
    source.read(NOW)
    # Two compactions follow each other: the list names the output of the first.
    monkeypatch.setattr(Store, "list", lambda *_: ["operations/gone.parquet"])
    assert messages(source.read(NOW).all) == 1


def test_rows_are_kept_as_sums(ledger):
    for minutes in range(5):
        write(ledger, minutes, 1, NOW - dt.timedelta(minutes=30 * minutes))
    source = OperationsSource(str(ledger))
    found = source.read(NOW)
    assert [(row.entity, row.stage, row.messages) for row in found.all] == [
        ("orders", "send_primary", 5)
    ]
    assert messages(found.last_hour) == 3
    assert found.first == NOW - dt.timedelta(hours=2)
    later = source.read(NOW + dt.timedelta(minutes=45))
    assert (messages(later.all), messages(later.last_hour)) == (5, 1)


def test_ledger_without_rows_has_no_operations(ledger):
    found = OperationsSource(str(ledger)).read(NOW)
    assert found == Operations()
