"""Which files are read: copies and leftovers are known by their footers."""

import datetime as dt
import shutil
from pathlib import Path

import pyarrow.parquet as pq

from pairbus.ledger import LedgerWriter, Store
from pairbus.ledger.files import read_each
from pairbus.ledger.plan import FileFacts, arrange, plan
from pairbus.runtime import ThreadRuntime


def clock_runtime(clock):
    """Threads as usual, and the time that a test wants."""
    runtime = ThreadRuntime()
    runtime.time = clock
    return runtime


def facts(name, rows, **ranges):
    return FileFacts(name, rows, ranges or None, None, None)


def ledger(tmp_path, flushes=3, client="app"):
    now = [0.0]
    writer = LedgerWriter(str(tmp_path), client_id=client, runtime=clock_runtime(lambda: now[0]))
    for minute in range(flushes):
        now[0] = minute * 60.0
        writer.count("n", "e", "send_backlog", "send", messages=1, size=10, billable=1)
        writer.backlogged([{"message_id": str(minute), "destination": "e", "size": 10}])
        assert writer.flush()
    writer.close()
    return writer


def test_files_of_many_writers_are_read_as_they_are(tmp_path):
    for client in ("a", "b", "c"):
        ledger(tmp_path, client=client)
    found = plan(Store(str(tmp_path)), "operations")
    assert len(found.single) == 9
    assert not found.overlapping
    assert not found.repeats
    assert not found.gaps
    assert found.rows == 9


def test_a_copied_file_is_left_out(tmp_path):
    ledger(tmp_path)
    file = sorted(tmp_path.glob("messages/*.parquet"))[1]
    shutil.copy(file, file.with_name("copy.parquet"))
    found = plan(Store(str(tmp_path)), "messages")
    assert len(found.single) == 3
    assert len(found.repeats) == 1


def test_two_ledgers_that_overlap_are_one(tmp_path):
    ledger(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    found = plan([Store(str(tmp_path / "a")), Store(str(tmp_path / "b"))], "messages")
    assert found.rows == 3
    assert len(found.repeats) == 3


def test_files_that_overlap_in_part_are_named_together():
    found = arrange(
        "messages",
        [facts("x", 10, w=[(0, 9)]), facts("y", 10, w=[(5, 14)]), facts("z", 5, w=[(15, 19)])],
    )
    assert {f.name for f in found.overlapping} == {"x", "y"}
    assert [f.name for f in found.single] == ["z"]


def test_a_file_that_does_not_say_what_it_holds_makes_every_row_be_compared():
    found = arrange("messages", [facts("x", 10, w=[(0, 9)]), facts("foreign", 3)])
    assert {f.name for f in found.overlapping} == {"x", "foreign"}
    assert not found.single


def test_a_missing_minute_is_named_with_its_time(tmp_path):
    writer = ledger(tmp_path, flushes=4)
    sorted(tmp_path.glob("operations/*.parquet"))[1].unlink()
    [gap] = plan(Store(str(tmp_path)), "operations").gaps
    assert (gap.writer, gap.first, gap.last) == (writer.writer, 1, 1)
    assert gap.after == dt.datetime(1970, 1, 1, 0, 0, tzinfo=dt.UTC)
    assert gap.before == dt.datetime(1970, 1, 1, 0, 2, tzinfo=dt.UTC)
    assert "1 operations row(s)" in str(gap)


def test_a_broken_file_is_named_and_left_out(tmp_path):
    ledger(tmp_path)
    file = min(tmp_path.glob("messages/*.parquet"))
    file.write_bytes(file.read_bytes()[:100])
    found = plan(Store(str(tmp_path)), "messages")
    assert [Path(name).name for name in found.unreadable] == [file.name]
    assert len(found.single) == 2


def test_a_listed_file_that_cannot_be_opened_is_named_and_left_out(tmp_path):
    ledger(tmp_path)
    (tmp_path / "messages" / "a.parquet").symlink_to(tmp_path / "nowhere")
    found = plan(Store(str(tmp_path)), "messages")
    assert [Path(name).name for name in found.unreadable] == ["a.parquet"]
    assert len(found.single) == 3


def test_files_are_not_read_again_because_another_one_was_compacted(tmp_path):
    ledger(tmp_path)
    first, *others = sorted(f"messages/{file.name}" for file in tmp_path.glob("messages/*"))
    seen = []

    def read(name):
        seen.append(name)
        if name == first and seen.count(first) == 1:
            raise FileNotFoundError(name)
        return name

    found = read_each(Store(str(tmp_path)), "messages", read)
    assert list(found) == [first, *others]
    assert sorted(seen) == [first, first, *others]


def test_a_file_says_in_its_footer_which_rows_it_holds(tmp_path):
    writer = ledger(tmp_path, flushes=1)
    [file] = tmp_path.glob("messages/*.parquet")
    assert pq.read_metadata(file).metadata[b"pairbus.ranges"].decode() == (
        f'{{"{writer.writer}": [[0, 0]]}}'
    )
