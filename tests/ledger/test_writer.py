"""The ledger's writer: whole files, every count, and never a failure for who uses it."""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from pairbus.ledger import LedgerError, LedgerWriter, Store, probe, write_receipts
from pairbus.ledger.plan import plan
from pairbus.runtime import ThreadRuntime


class FullDisk(pafs.FileSystemHandler):  # type: ignore[misc]
    """A filesystem that says no while `full`, and else writes where it is told."""

    def __init__(self) -> None:
        self.inner = pafs.LocalFileSystem()
        self.full = True
        self.refused = 0

    def get_type_name(self):
        return "fulldisk"

    def __eq__(self, other):
        return self is other

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return self.inner.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self.inner.get_file_info(selector)

    def create_dir(self, path, recursive):
        self.inner.create_dir(path, recursive=recursive)

    def delete_dir(self, path): ...
    def delete_dir_contents(self, path, missing_dir_ok=False): ...
    def delete_root_dir_contents(self): ...
    def copy_file(self, src, dest): ...
    def open_append_stream(self, path, metadata): ...

    def delete_file(self, path):
        self.inner.delete_file(path)

    def move(self, src, dest):
        self.inner.move(src, dest)

    def open_input_stream(self, path):
        return self.inner.open_input_stream(path)

    def open_input_file(self, path):
        return self.inner.open_input_file(path)

    def open_output_stream(self, path, metadata):
        if self.full:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.inner.open_output_stream(path)


def use_disk(disk, monkeypatch):
    """Let ledgers lie on this disk, as on an object store."""
    found = pafs.PyFileSystem(disk)
    monkeypatch.setattr("pairbus.ledger.store._resolve", lambda location: (found, location))


def writer_on(disk, monkeypatch, location):
    use_disk(disk, monkeypatch)
    return LedgerWriter(str(location), client_id="app")


def rows_of(location, table):
    return pa.concat_tables(
        [pq.read_table(f) for f in sorted((Path(location) / table).glob("*.parquet"))]
    ).to_pylist()


def test_counts_are_summed_up_by_minute_entity_stage_and_size_step(tmp_path):
    now = [600.0]
    runtime = ThreadRuntime()
    runtime.time = lambda: now[0]
    writer = LedgerWriter(str(tmp_path / "l"), client_id="app", runtime=runtime)
    for _ in range(3):
        writer.count("contoso", "orders", "send_primary", "send", messages=1, size=1000, billable=1)
    writer.count("contoso", "orders", "send_primary", "send", messages=1, size=200_000, billable=4)
    now[0] = 660.0
    writer.count("contoso", "orders", "send_primary", "send", messages=1, size=1000, billable=1)
    writer.close()
    rows = rows_of(tmp_path / "l", "operations")
    found = [
        (r["minute"].timestamp(), r["size_step"], r["count"], r["bytes"], r["billable"])
        for r in rows
    ]
    assert found == [(600, 1, 3, 3000, 3), (600, 4, 1, 200_000, 4), (660, 1, 1, 1000, 1)]
    assert [r["sequence"] for r in rows] == [0, 1, 2]
    assert {r["writer"] for r in rows} == {writer.writer}


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("contoso.servicebus.windows.net", "contoso"),
        ("contoso", "contoso"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1:5672", "127.0.0.1:5672"),
        ("localhost:5672", "localhost:5672"),
    ],
)
def test_a_namespace_has_one_name_whoever_writes(tmp_path, host, name):
    with LedgerWriter(str(tmp_path), client_id="app") as writer:
        writer.count(host, "e", "ping", "send")
    assert rows_of(tmp_path, "operations")[0]["namespace"] == name


def test_a_batch_counts_by_message_and_by_its_whole_size(tmp_path):
    with LedgerWriter(str(tmp_path), client_id="app") as writer:
        writer.count("n", "e", "send_backlog", "send", messages=100, size=100_000, billable=100)
        writer.count("n", "q", "idle_poll", "receive", messages=0)
    batch, poll = rows_of(tmp_path, "operations")
    assert (batch["billable"], batch["billable_batched"], batch["count"]) == (100, 2, 1)
    assert (poll["billable"], poll["messages"], poll["bytes"]) == (1, 0, 0)


def test_threads_lose_no_count(tmp_path, monkeypatch):
    monkeypatch.setattr("pairbus.ledger.writer.FLUSH_SECONDS", 0.01)
    writer = LedgerWriter(str(tmp_path), client_id="app")

    def work():
        for _ in range(5000):
            writer.count("n", "e", "send_primary", "send", messages=1, size=10, billable=1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert sum(r["count"] for r in rows_of(tmp_path, "operations")) == 40_000


def test_the_minute_is_flushed_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr("pairbus.ledger.writer.FLUSH_SECONDS", 0.02)
    writer = LedgerWriter(str(tmp_path), client_id="app")
    written = threading.Event()
    flush = writer.flush

    def flushed():
        done = flush()
        written.set()
        return done

    writer.flush = flushed
    writer.count("n", "e", "ping", "send", size=0)
    assert written.wait(60)
    assert len(rows_of(tmp_path, "operations")) == 1
    writer.close()


def test_a_full_disk_stops_no_count_and_nothing_is_missing_afterwards(
    tmp_path, monkeypatch, caplog
):
    disk = FullDisk()
    writer = writer_on(disk, monkeypatch, tmp_path / "l")
    with caplog.at_level(logging.INFO, "pairbus.ledger"):
        for _ in range(3):
            writer.count("n", "e", "send_primary", "send", messages=1, size=10, billable=1)
            writer.backlogged([{"message_id": "1", "destination": "e", "size": 10}])
            assert not writer.flush()
        assert "No space left" in writer.problem
        assert writer.failures == 3
        assert [r.levelname for r in caplog.records] == ["WARNING"]
        disk.full = False
        assert writer.flush()
    assert writer.problem is None
    assert caplog.records[-1].levelname == "INFO"
    writer.close()
    assert sum(r["count"] for r in rows_of(tmp_path / "l", "operations")) == 3
    assert [r["sequence"] for r in rows_of(tmp_path / "l", "messages")] == [0, 1, 2]
    assert not list((tmp_path / "l").rglob("*.tmp"))


class NoRename(FullDisk):
    """A store without renames, as Azure storage without a hierarchical namespace."""

    def move(self, src, dest):
        raise NotImplementedError("Move() is not implemented for these accounts")


def test_a_store_that_cannot_rename_is_a_problem_and_raises_nothing(tmp_path, monkeypatch):
    disk = NoRename()
    disk.full = False
    writer = writer_on(disk, monkeypatch, tmp_path / "l")
    writer.count("n", "e", "send_primary", "send", messages=1, size=10, billable=1)
    assert not writer.flush()
    assert "not implemented" in writer.problem
    writer.close()


def test_a_store_that_this_pyarrow_was_built_without_is_said_in_one_line(monkeypatch):
    def refuse(location):
        raise NotImplementedError("Arrow compiled without S3 support")

    monkeypatch.setattr("pyarrow.fs.FileSystem", SimpleNamespace(from_uri=refuse))
    with pytest.raises(LedgerError, match="s3://bucket/l: Arrow compiled without S3 support"):
        Store("s3://bucket/l")


def test_a_writer_that_begins_again_counts_its_own_failures(tmp_path, monkeypatch):
    monkeypatch.setattr("pairbus.ledger.writer.MAX_PENDING_ROWS", 1)
    disk = FullDisk()
    writer = writer_on(disk, monkeypatch, tmp_path / "l")
    writer.backlogged([{"message_id": "1"}, {"message_id": "2"}])
    assert not writer.flush()
    assert (writer.dropped_rows, writer.failures) == (1, 1)
    writer.begin("child")
    assert (writer.dropped_rows, writer.failures) == (0, 0)
    disk.full = False
    writer.close()


def test_a_real_full_disk_stops_no_count(tmp_path):
    """/dev/full would do for a file; a directory needs a limit on what may be written."""
    code = """
        import resource, signal, sys
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
        from pairbus.ledger import LedgerWriter, probe
        w = LedgerWriter(sys.argv[1], client_id="app")
        w.count("n", "e", "ping", "send")
        assert not w.flush()
        print(w.problem)
        print(probe(sys.argv[1]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.count("File too large") == 2
    assert not list(tmp_path.rglob("*.parquet"))
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_ledger_that_cannot_be_reached_is_told_and_rows_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("pairbus.ledger.writer.MAX_PENDING_ROWS", 10)
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    writer = LedgerWriter(str(blocked / "l"), client_id="app")
    for number in range(25):
        writer.backlogged([{"message_id": str(number), "destination": "e"}])
    assert not writer.flush()
    assert writer.problem
    assert writer.dropped_rows == 15
    writer.close()


class HangingDisk(FullDisk):
    """A filesystem whose writes do not return until they are let go, as NFS without its server."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.entered, self.released = threading.Event(), threading.Event()

    def open_output_stream(self, path, metadata):
        self.entered.set()
        self.released.wait(60)
        return super().open_output_stream(path, metadata)


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """A writer whose background flush hangs, and its disk."""
    monkeypatch.setattr("pairbus.ledger.writer.MAX_PENDING_ROWS", 10)
    disk = HangingDisk()
    writer = writer_on(disk, monkeypatch, tmp_path / "l")
    writer.backlogged([{"message_id": f"first {number}"} for number in range(4)])
    thread = threading.Thread(target=writer.flush)
    thread.start()
    assert disk.entered.wait(60)
    yield writer, disk, thread
    disk.released.set()
    thread.join(60)
    writer.close()


def test_rows_are_bounded_and_counted_while_a_flush_hangs(hanging, tmp_path):
    writer, disk, thread = hanging
    for number in range(100):
        writer.backlogged([{"message_id": str(number)}])
        writer.count("n", "e", "ping", "send")
    assert writer.dropped_rows == 94
    disk.released.set()
    thread.join(60)
    assert writer.flush()
    kept = [row["message_id"] for row in rows_of(tmp_path / "l", "messages")]
    assert kept == [f"first {n}" for n in range(4)] + [str(n) for n in range(94, 100)]
    (gap,) = plan(Store(str(tmp_path / "l")), "messages").gaps
    assert gap.rows == 94
    assert sum(row["count"] for row in rows_of(tmp_path / "l", "operations")) == 100


def test_write_that_does_not_return_is_a_problem(hanging, monkeypatch):
    writer, disk, thread = hanging
    assert writer.problem is None
    monkeypatch.setattr("pairbus.ledger.writer.SLOW_SECONDS", 0.0)
    assert "has not returned" in writer.problem
    disk.released.set()
    thread.join(60)
    assert writer.problem is None


def test_close_does_not_wait_for_ever_for_a_write_that_hangs(hanging, monkeypatch, caplog):
    writer, _, _ = hanging
    monkeypatch.setattr("pairbus.ledger.writer.CLOSE_SECONDS", 0.05)
    writer.close()
    assert "4 rows were not written" in caplog.text


def test_another_version_is_left_alone(tmp_path):
    (tmp_path / "ledger.json").write_text(json.dumps({"version": 9}))
    writer = LedgerWriter(str(tmp_path), client_id="app")
    writer.count("n", "e", "ping", "send")
    assert not writer.flush()
    assert "version 9" in writer.problem
    writer.close()
    assert [p.name for p in tmp_path.iterdir()] == ["ledger.json"]


def test_a_place_that_is_no_ledger_is_said_in_one_line(tmp_path):
    with pytest.raises(LedgerError, match="not a ledger") as caught:
        Store(str(tmp_path)).require_ledger()
    assert "\n" not in str(caught.value)
    (tmp_path / "ledger.json").write_text("[]")
    with pytest.raises(LedgerError, match="not a valid ledger marker"):
        Store(str(tmp_path)).require_ledger()


def test_a_url_is_a_place_too(tmp_path):
    with LedgerWriter(f"file://{tmp_path}/l", client_id="app") as writer:
        writer.count("n", "e", "ping", "send")
    assert len(rows_of(tmp_path / "l", "operations")) == 1
    with pytest.raises(LedgerError, match="nowhere"):
        Store("nowhere://x")


class JustMade(FullDisk):
    """pyarrow's answer when a folder is made while it looks: once that it is not there."""

    asked = 0

    def get_file_info_selector(self, selector):
        self.asked += 1
        if self.asked == 1:
            raise FileNotFoundError(2, "Cannot list directory")
        return super().get_file_info_selector(selector)


def test_a_folder_that_is_made_just_now_is_listed(tmp_path, monkeypatch):
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages" / "a.parquet").touch()
    use_disk(JustMade(), monkeypatch)
    store = Store(str(tmp_path))
    assert store.list("messages") == ["messages/a.parquet"]


@pytest.mark.crash
@pytest.mark.slow
def test_a_kill_leaves_whole_files_only(tmp_path):
    code = """
        import sys
        from pairbus.ledger import LedgerWriter, write_receipts
        w = LedgerWriter(sys.argv[1], client_id="app")
        n = 0
        while True:
            w.count("n", "e", "send_primary", "send", messages=1, size=10, billable=1)
            w.backlogged([{"message_id": str(n), "destination": "e", "size": 10}])
            w.flush()
            write_receipts(sys.argv[1], [{"event": "forwarded", "message_id": str(n)}])
            print(n, flush=True)
            n += 1
    """
    for attempt in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        last = -1
        for line in process.stdout:
            last = int(line)
            if last >= 5 + 3 * attempt:
                break
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        last = int(rest[-1]) if rest else last
        # every receipt that was confirmed is there, and every file is whole
        found = plan(Store(str(tmp_path)), "messages")
        assert not found.unreadable
        assert not found.gaps
        rows = rows_of(tmp_path, "messages")
        forwarded = [r for r in rows if r["event"] == "forwarded"]
        assert len(forwarded) >= last + 1
        for file in [*tmp_path.glob("messages/*.parquet"), *tmp_path.glob("operations/*.parquet")]:
            file.unlink()


def test_receipts_are_numbered_through_a_process_and_anew_after_a_failure(tmp_path, monkeypatch):
    place = str(tmp_path)
    write_receipts(place, [{"event": "forwarded", "message_id": "a"}])
    write_receipts(place, pa.Table.from_pylist([{"event": "forwarded", "message_id": "b"}]))
    with monkeypatch.context() as patch:
        patch.setattr(Store, "write_whole", lambda *a: (_ for _ in ()).throw(OSError("gone")))
        with pytest.raises(OSError, match="gone"):
            write_receipts(place, [{"event": "forwarded", "message_id": "c"}])
    write_receipts(place, [{"event": "dead_lettered", "message_id": "c", "reason": "TooLarge"}])
    rows = sorted(rows_of(place, "messages"), key=lambda r: r["message_id"])
    assert [r["sequence"] for r in rows] == [0, 1, 0]
    assert rows[0]["writer"] == rows[1]["writer"] != rows[2]["writer"]
    assert all(r["at"] is not None and r["client_id"] == "syphon" for r in rows)
    assert not plan(Store(place), "messages").gaps


def test_a_probe_says_whether_a_receipt_could_be_written(tmp_path):
    assert probe(str(tmp_path / "l")) is None
    assert list((tmp_path / "l" / "status").iterdir()) == []
    (tmp_path / "file").write_text("")
    problem = probe(str(tmp_path / "file" / "l"))
    assert problem
    assert "\n" not in problem
