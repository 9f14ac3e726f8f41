"""`pairbus syphon status|pause|resume|limit`: files beside the checkpoint, no Spark."""

import json
import os
import socket

import pytest
from click.testing import CliRunner

from pairbus.cli.syphon import group
from pairbus.spark.controls import StateDir

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
    return StateDir(tmp_path).create()


def run(state, *arguments):
    command = [*arguments, "--checkpoint", str(state.path)]
    return CliRunner().invoke(group, command, catch_exceptions=False)


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


def test_status_tells_the_truth_for_people_and_programs(state):
    state.write("status.json", STATUS)
    text = run(state, "status").output
    for part in ("running", "1,234", "Rejected", "amqp:x", "contoso/x-servicebus-transfer/0"):
        assert part in text
    assert json.loads(run(state, "status", "--json").output)["forwarded"] == 1234


def test_a_stalled_syphon_is_bad_news(state):
    state.write("status.json", {**STATUS, "state": "stalled", "stalled": "ledger: disk full"})
    result = run(state, "status")
    assert "ledger: disk full" in result.output
    # Click's runner gives the return value only in standalone mode off; the text is what counts.


def test_a_syphon_whose_process_is_gone_is_not_called_running(state):
    state.write("status.json", {**STATUS, "pid": 2**22 + 1})
    assert "its process is gone" in run(state, "status").output


def test_a_place_without_a_syphon_is_one_clear_line(tmp_path):
    missing = StateDir(tmp_path / "nowhere")
    result = run(missing, "status")
    assert result.exit_code == 3
    assert "there is no syphon at" in result.output
