"""The parts of the soak that need no processes: its files, its plan, its report."""

import subprocess
import sys
from collections import Counter

import psutil

from simulation.history import History, judge
from soak.faults import KINDS, draw_plan
from soak.ledger import contradictions, out_of_order
from soak.processes import Process, kill_leftovers
from soak.records import (
    Journal,
    State,
    Struck,
    last_call,
    read_history,
    read_lines,
    read_restarts,
    read_struck,
    windows,
)
from soak.report import render
from soak.run import Result


def test_call_without_an_end_is_unknown(tmp_path):
    journal = Journal(tmp_path / "app.calls")
    journal.add(id="app.1.0", entity="orders", began=1.0)
    journal.add(id="app.1.0", ended=2.0, is_ok=True, error="")
    journal.add(id="app.1.1", entity="orders", began=3.0)
    journal.close()
    calls = read_history(tmp_path).calls
    assert (calls["app.1.0"].outcome, calls["app.1.0"].seconds) == ("ok", 1.0)
    assert (calls["app.1.1"].outcome, calls["app.1.1"].ended) == ("unknown", None)


def test_line_that_a_killed_process_left_incomplete_costs_no_other_line(tmp_path):
    path = tmp_path / "app.calls"
    path.write_text('{"id": "app.1.0", "began": 1.0}\n{"id": "app.1.0", "en')
    journal = Journal(path)  # the next life of the application
    journal.add(id="app.2.0", entity="orders", began=5.0)
    journal.close()
    assert [line["id"] for line in read_lines(path)] == ["app.1.0", "app.2.0"]


def rows_of(*rows):
    names = ("event", "message_id", "backlog_queue", "sequence_number")
    return [{"destination": "orders", "reason": None, **dict(zip(names, row))} for row in rows]  # noqa: B905 - senders know no number


def test_ledger_must_agree_with_the_messages_that_arrived():
    rows = rows_of(
        ("backlogged", "a", "q"),
        ("forwarded", "a", "q", 1),
        ("forwarded", "b", "q", 2),
        ("backlogged", "c", "q"),
    )
    assert contradictions(rows, {"orders": ["a"]}) == [
        "lost according to the ledger: c",
        "in the ledger, and not in the primary: b",
    ]
    assert contradictions(rows[:3], {"orders": ["a", "b"]}) == []


def test_message_that_overtook_an_older_one_of_its_backlog_queue_is_found():
    history = History()
    for name in ("a", "b"):
        history.begin(name, "app", 1.0)
    rows = rows_of(("forwarded", "a", "q", 1), ("forwarded", "b", "q", 2))
    assert out_of_order(history, rows, {"orders": ["a", "b"]}) == []
    assert out_of_order(history, rows, {"orders": ["b", "a"]}) == ["b before a"]


def test_message_that_may_be_the_direct_copy_overtakes_nothing_where_duplicates_are_detected():
    history = History()
    for name in ("a", "b"):
        history.begin(name, "app", 1.0)
    rows = rows_of(("forwarded", "a", "q", 1), ("forwarded", "b", "q", 2))
    reversed_ = {"orders": ["b", "a"]}
    assert out_of_order(history, rows, reversed_, detecting=["orders"]) == []
    for call in history.calls.values():
        call.is_redirected = True
    assert out_of_order(history, rows, reversed_, detecting=["orders"]) == ["b before a"]


def test_call_is_redirected_if_its_entity_was_failed_over_from_begin_to_end(tmp_path):
    journal = Journal(tmp_path / "app.calls")

    def send(name, *events, entity="orders"):
        journal.add(id=name, entity=entity, began=1.0)
        for event in events:
            journal.add(event=event, entity="orders", at=1.5)
        journal.add(id=name, ended=2.0, is_ok=True, error="")

    send("app.1001.0")
    send("app.1001.1", "FailedOver")
    send("app.1001.2")
    send("app.1001.3", entity="invoices")
    send("app.1001.4", "Restored")
    send("app.1001.5", "FailedOver")
    send("app.1002.0")  # a new process does not know of the failover
    journal.close()
    calls = read_history(tmp_path).calls
    assert [name for name, call in calls.items() if call.is_redirected] == ["app.1001.2"]


def test_plan_has_every_kind_equally_often_and_depends_on_the_seed():
    plan = draw_plan(7, 300)
    assert set(Counter(one.kind for one in plan).values()) == {300 // len(KINDS)}
    assert [one.number for one in plan] == list(range(300))
    assert draw_plan(7, 24) == plan[:24]  # a longer soak continues a shorter one
    assert draw_plan(8, 300) != plan


def test_state_and_faults_survive_for_the_next_start(tmp_path):
    assert State.load(tmp_path) is None
    State(seed=3, faults=20, primary_port=1, secondary_port=2, runs=1).save(tmp_path)
    assert State.load(tmp_path).primary_port == 1
    struck = Struck(0, "kill primary", "down for 1.0 s", 1.0, 2.0, True)
    journal = Journal(tmp_path / "faults.jsonl")
    journal.add(**{name: getattr(struck, name) for name in struck.__slots__})
    journal.close()
    assert read_struck(tmp_path) == [struck]


def test_time_between_two_runs_counts_as_a_fault(tmp_path):
    assert last_call(tmp_path) is None
    journal = Journal(tmp_path / "app.calls")
    journal.add(id="app.1.0", entity="orders", began=1.0)
    journal.close()
    restarts = Journal(tmp_path / "restarts.jsonl")
    restarts.add(began=1.0, ended=last_call(tmp_path))
    restarts.close()
    twice = ["app.1.0", "app.1.0"]
    history = read_history(tmp_path)
    assert judge(history, twice, [], deadline=9, aftermath=9).undue == ["app.1.0"]
    assert judge(history, twice, read_restarts(tmp_path), deadline=9, aftermath=9).undue == []


def test_report_names_what_must_not_be(tmp_path):
    journal = Journal(tmp_path / "app.calls")
    for number in range(3):
        journal.add(id=f"app.1.{number}", entity="orders", began=1.0)
        journal.add(id=f"app.1.{number}", ended=2.0, is_ok=True, error="")
    journal.close()
    struck = [Struck(0, "kill primary", "", 100.0, 101.0, True)]
    arrived = ["app.1.0", "app.1.1", "app.1.1"]
    verdict = judge(read_history(tmp_path), arrived, windows(struck), deadline=9, aftermath=9)
    text = render(Result(struck, verdict, ["app.1.1"], ["syphon ended"], 3, 1, 1, 60.0), 5)
    assert "- lost: app.1.2" in text
    assert "- duplicated without a fault: app.1.1" in text
    assert "- duplicated where duplicates are detected: app.1.1" in text
    assert "- syphon ended" in text
    assert "| kill primary | 1 | 0 |" in text


def test_processes_of_a_killed_soak_are_ended_and_others_are_not(tmp_path):
    process = Process("sleeper", tmp_path)
    process.start([sys.executable, "-c", "import time; time.sleep(600)"])
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        # The number of the other process, as if an ended one of the soak had had it.
        journal = Journal(tmp_path / "pids.jsonl")
        journal.add(pid=other.pid, created=psutil.Process(other.pid).create_time() - 60)
        journal.close()
        assert kill_leftovers(tmp_path) == 1
        assert process.wait(30)
        assert other.poll() is None
    finally:
        process.kill()
        other.kill()
        other.wait()
