"""Many writers and compactions at the same time, none of which knows of the others."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter

import pytest

from pairbus.ledger import LedgerWriter, Store
from pairbus.ledger.compact import compact
from pairbus.ledger.files import read_rows
from pairbus.ledger.plan import plan

pytestmark = pytest.mark.slow

WRITERS = """
    import sys
    from pairbus.ledger import LedgerWriter
    place, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    writers = [LedgerWriter(place, client_id=f"{name}-{n}") for n in range(count)]
    for number, writer in enumerate(writers):
        writer.count("n", "e", "send_backlog", "send", messages=1, size=10, billable=1)
        writer.backlogged([{"message_id": f"{name}-{number}", "destination": "e"}])
        assert writer.flush(), writer.problem
"""


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def seen(place, table, column):
    """How often a reader sees each value, once it has left out what a plan leaves out.

    Files overlap where two compactions ran side by side: their rows are told apart by their
    writers and sequences.
    """
    store = Store(str(place))
    found = plan(store, table)
    assert not found.gaps
    assert not found.unreadable
    values, overlapping = [], {}
    for file in (*found.single, *found.overlapping):
        rows = read_rows(store, file.name, ["writer", "sequence", column]).to_pylist()
        if file in found.single:
            values += [row[column] for row in rows]
        else:
            overlapping |= {(row["writer"], row["sequence"]): row[column] for row in rows}
    return Counter([*values, *overlapping.values()])


@pytest.mark.parametrize("each", [75, pytest.param(500, marks=pytest.mark.long)])
def test_many_clients_write_while_compactions_run(tmp_path, each):
    processes = 2
    running = [start(WRITERS, tmp_path, f"p{n}", each) for n in range(processes)]
    done = threading.Event()
    problems = []

    def keep_compacting():
        while not done.is_set():
            try:
                if Store(str(tmp_path)).has_marker():
                    compact(str(tmp_path))
            except Exception as exc:
                problems.append(exc)
                return

    compacting = [threading.Thread(target=keep_compacting) for _ in range(2)]
    for thread in compacting:
        thread.start()
    outputs = [process.communicate()[0] for process in running]
    done.set()
    for thread in compacting:
        thread.join()
    assert [process.returncode for process in running] == [0] * processes, outputs
    assert not problems
    expected = {f"p{p}-{n}" for p in range(processes) for n in range(each)}
    assert seen(tmp_path, "messages", "message_id") == Counter(expected)
    assert seen(tmp_path, "operations", "client_id") == {
        f"p{p}-{n}": 1 for p in range(processes) for n in range(each)
    }
    for _ in range(2):  # files that overlap by themselves, then all together
        compact(str(tmp_path))
    assert len(list(tmp_path.glob("*/*.parquet"))) == 2


@pytest.mark.crash
def test_a_compaction_that_is_killed_anywhere_counts_nothing_twice(tmp_path):
    code = """
        import sys
        from pairbus.ledger import Store
        from pairbus.ledger.compact import compact
        steps = 0
        limit = int(sys.argv[2])
        def step(inner):
            def stepped(*args):
                global steps
                steps += 1
                if steps == limit:
                    print("now", flush=True)
                    sys.stdin.read()
                return inner(*args)
            return stepped
        Store.delete = step(Store.delete)
        Store.write_whole = step(Store.write_whole)
        compact(sys.argv[1], target_rows=20)
    """
    chance = random.Random(7)
    for number in range(60):
        with LedgerWriter(str(tmp_path), client_id=f"c{number}") as writer:
            writer.backlogged([{"message_id": str(number), "destination": "e"}])
    for _ in range(5):
        step = str(chance.randint(1, 25))
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), step],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        process.stdout.readline()  # at the step, or at its end if it had fewer steps
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert seen(tmp_path, "messages", "message_id") == Counter(map(str, range(60)))
    compact(str(tmp_path))
    assert seen(tmp_path, "messages", "message_id") == Counter(map(str, range(60)))
    assert len(list(tmp_path.glob("messages/*.parquet"))) == 1


def test_a_reader_that_lists_files_which_a_compaction_then_removes_lists_again(
    tmp_path, monkeypatch
):
    for number in range(5):
        with LedgerWriter(str(tmp_path), client_id=f"c{number}") as writer:
            writer.count("n", "e", "ping", "send")
    listing = Store.list
    lists = []

    def list_then_compact(self, folder, suffix=""):
        names = listing(self, folder, suffix)
        if not lists:
            lists.append(names)
            compact(str(tmp_path))
        return names

    monkeypatch.setattr(Store, "list", list_then_compact)
    found = plan(Store(str(tmp_path)), "operations")
    assert len(lists[0]) == 5
    assert (found.rows, len(found.single), found.unreadable, found.gaps) == (5, 1, (), ())
