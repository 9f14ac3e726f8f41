"""Compaction: fewer files, the same rows, whatever happens in between."""

import datetime as dt
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from pairbus.ledger import LedgerError, LedgerWriter, Store
from pairbus.ledger.compact import compact
from pairbus.ledger.files import read_rows
from pairbus.ledger.plan import plan
from pairbus.runtime import ThreadRuntime


def clock_runtime(clock):
    """Threads as usual, and the time that a test wants."""
    runtime = ThreadRuntime()
    runtime.time = clock
    return runtime


def write(place, clients=20, minutes=5):
    now = [0.0]
    writers = [
        LedgerWriter(str(place), client_id=f"c{n}", runtime=clock_runtime(lambda: now[0]))
        for n in range(clients)
    ]
    for minute in range(minutes):
        now[0] = minute * 60.0
        for writer in writers:
            writer.count("n", "e", "send_backlog", "send", messages=2, size=20, billable=2)
            writer.backlogged([{"message_id": f"{minute}", "destination": "e", "size": 10}])
            assert writer.flush()
    for writer in writers:
        writer.close()


def rows(place, table):
    """Every row that a reader sees, in order."""
    store = Store(str(place))
    found = plan(store, table)
    assert not found.overlapping
    table_ = pa.concat_tables([read_rows(store, f.name) for f in found.single])
    return table_.sort_by([("writer", "ascending"), ("sequence", "ascending")]).to_pylist()


def test_many_small_files_become_one_and_no_row_changes(tmp_path):
    write(tmp_path)
    before = {table: rows(tmp_path, table) for table in ("operations", "messages")}
    done = compact(str(tmp_path))
    assert [(one.table, one.files_before, one.files_after) for one in done] == [
        ("operations", 100, 1),
        ("messages", 100, 1),
    ]
    assert {table: rows(tmp_path, table) for table in before} == before
    assert not plan(Store(str(tmp_path)), "operations").gaps
    # a second time there is nothing to do
    assert [one.files_after for one in compact(str(tmp_path))] == [1, 1]


def test_files_that_are_large_enough_stay(tmp_path):
    write(tmp_path, clients=4, minutes=4)
    done = compact(str(tmp_path), target_rows=4)
    assert [one.files_after for one in done] == [4, 4]
    large = set(tmp_path.glob("operations/*.parquet"))
    write(tmp_path, clients=2, minutes=2)
    compact(str(tmp_path), target_rows=4)
    assert large < set(tmp_path.glob("operations/*.parquet"))


@pytest.mark.parametrize("removed", [0, 1, 7])
def test_a_crash_before_the_old_files_are_gone_counts_nothing_twice(tmp_path, monkeypatch, removed):
    write(tmp_path, clients=3, minutes=3)
    before = rows(tmp_path, "messages")
    delete, gone = Store.delete, []

    def die(self, name):
        if name.startswith("messages/"):
            if len(gone) == removed:
                raise KeyboardInterrupt
            gone.append(name)
        delete(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "delete", die)
        with pytest.raises(KeyboardInterrupt):
            compact(str(tmp_path))
    assert len(list(tmp_path.glob("messages/*.parquet"))) == 10 - removed
    assert rows(tmp_path, "messages") == before
    # the next one cleans up
    compact(str(tmp_path))
    assert len(list(tmp_path.glob("messages/*.parquet"))) == 1
    assert rows(tmp_path, "messages") == before


def test_a_crash_while_the_new_file_is_written_changes_nothing(tmp_path, monkeypatch):
    write(tmp_path, clients=3, minutes=3)
    before = rows(tmp_path, "messages")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *a: (_ for _ in ()).throw(OSError("no space")))
        with pytest.raises(OSError, match="no space"):
            compact(str(tmp_path))
    assert rows(tmp_path, "messages") == before
    assert not list(tmp_path.rglob("*.tmp"))


def test_copies_and_overlaps_end_in_one_place(tmp_path):
    write(tmp_path, clients=2, minutes=3)
    before = rows(tmp_path, "messages")
    shutil.copytree(tmp_path / "messages", tmp_path / "saved")
    compact(str(tmp_path))
    for file in (tmp_path / "saved").iterdir():
        shutil.copy(file, tmp_path / "messages" / f"again-{file.name}")
    shutil.rmtree(tmp_path / "saved")
    write_more = LedgerWriter(str(tmp_path), client_id="late")
    write_more.backlogged([{"message_id": "x", "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}])
    write_more.close()
    messages = compact(str(tmp_path))[1]
    assert messages.repeats_dropped == 6
    assert [r for r in rows(tmp_path, "messages") if not r["writer"].startswith("late")] == before


def test_only_a_ledger_is_compacted(tmp_path):
    (tmp_path / "operations").mkdir()
    with pytest.raises(LedgerError, match="not a ledger"):
        compact(str(tmp_path))


def test_what_killed_writers_left_behind_is_swept(tmp_path):
    write(tmp_path, clients=1, minutes=1)
    old, new = (tmp_path / "messages" / f"_{name}.parquet.1.tmp" for name in ("old", "new"))
    for file in (old, new):
        file.write_bytes(b"half a file")
    os.utime(old, (0, 0))
    compact(str(tmp_path))
    assert not old.exists()
    assert new.exists()  # somebody may be writing it
