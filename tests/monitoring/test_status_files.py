"""Status files of this version, of older and of newer ones are read as records."""

import datetime as dt
import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pairbus.monitoring.checks import check_snapshot
from pairbus.monitoring.snapshot import Facts, assemble
from pairbus.monitoring.sources import read_statuses
from pairbus.runtime.processes import machine_id, started_at
from pairbus.status import (
    BacklogQueueStatus,
    Counts,
    DrainStatus,
    EntityStatus,
    PairStatus,
)
from pairbus.syphon.status_records import QueueCounts, SyphonStatus

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
OLD = Path(__file__).parent.parent / "upgrade/data/ledger/status/syphon-caed9e4c.json"

CLIENT = PairStatus(
    client_id="c", primary_namespace="contoso", primary="a", secondary="b", state="open",
    state_reason="r", unprotected="u", ledger_problem="l", ledger_dropped_rows=3,
    entities=(
        EntityStatus(
            entity="orders", phase="draining", since=AT, last_error="e", backlog_queue="q",
            next_ping=AT, forced="primary", refused="no",
            drain=DrainStatus(since=AT, waits_for=("q",), is_overdue=True, problem="p"),
            counts=Counts(1, 2, 3, 4),
        ),
    ),
    backlog_queues=(BacklogQueueStatus(path="q", in_rotation=False, reason="full", until=AT),),
    events=({"event": "FailedOver"},), host="h", pid=1, updated_at=AT,
)  # fmt: skip

SYPHON = SyphonStatus(
    id="s", host="h", pid=1, primary="a", secondary="b", updated_at=AT.isoformat(),
    state="stalled", stalled="primary: x", forwarded=1, bytes=2, remaining=3, in_flight=4,
    waiting=5, waiting_for={"orders": "x"}, waiting_counts={"orders": 5}, uncertain=("q",),
    dead_lettered={"r": 1}, oldest_age=6.0, rate=7.0, allowed_rate=8.0, throttled_by="primary",
    eta=9.0, last_progress=AT.isoformat(), next_attempt=AT.isoformat(),
    ledger_dropped_rows=11, ledger_problem="full", limits={"max_messages_per_second": 10.0},
    queues=(QueueCounts("q", 1, 2),), checkpoint="/c",
)  # fmt: skip


def test_the_status_of_a_client_is_read_as_it_was_written():
    read = PairStatus.from_json(json.loads(json.dumps(CLIENT.as_dict())))
    assert read == CLIENT
    assert (read.host, read.pid, read.updated_at) == ("h", 1, AT)


def test_the_status_of_a_syphon_is_read_as_it_was_written():
    assert SyphonStatus.from_json(json.loads(json.dumps(SYPHON.to_json()))) == SYPHON


def test_keys_that_a_newer_version_adds_are_ignored():
    assert PairStatus.from_json({**CLIENT.as_dict(), "version": 2, "new": 1}) == CLIENT
    assert SyphonStatus.from_json({**SYPHON.to_json(), "version": 2, "new": 1}) == SYPHON


def test_keys_that_an_older_version_did_not_write_have_defaults():
    client = PairStatus.from_json({"entities": [{"entity": "orders"}], "backlog_queues": [{}]})
    assert (client.client_id, client.state, client.updated_at) == ("?", "open", None)
    assert (client.entities[0].phase, client.entities[0].counts) == ("healthy", Counts())
    syphon = SyphonStatus.from_json({"queues": [{"path": "q", "active": 1}]})
    assert (syphon.forwarded, syphon.remaining) == (0, None)
    assert syphon.queues[0].dead_letters is None  # unknown, not none


def test_names_of_a_client_are_text_whatever_its_file_holds():
    rows = {"entities": [{"entity": 5}], "backlog_queues": [{"path": 6}]}
    client = PairStatus.from_json({**CLIENT.as_dict(), "client_id": 4, **rows})
    names = client.client_id, client.entities[0].entity, client.backlog_queues[0].path
    assert names == ("4", "5", "6")


def test_the_file_of_a_client_with_a_count_that_is_no_number_is_left_out(tmp_path):
    (tmp_path / "status").mkdir()
    broken = {**CLIENT.as_dict(), "entities": [{"entity": "orders", "counts": {"pings": "x"}}]}
    for name, data in {"broken": broken, "whole": CLIENT.as_dict()}.items():
        (tmp_path / "status" / f"{name}.json").write_text(json.dumps(data))
    assert read_statuses(str(tmp_path)) == [CLIENT]


def test_the_status_of_a_syphon_of_version_0_1_is_read():
    status = SyphonStatus.from_json(json.loads(OLD.read_text()))
    assert (status.state, status.forwarded, status.remaining) == ("running", 23, 10)
    assert (status.throttled_by, status.waiting_counts) == (None, {})
    assert [queue.active for queue in status.queues] == [10, 23]


def syphon_finding(folder, status):
    now = dt.datetime.now(dt.UTC)
    (folder / "status").mkdir(exist_ok=True)
    path = folder / "status" / "s.json"
    path.write_text(json.dumps(replace(status, updated_at=now.isoformat()).to_json()))
    statuses = read_statuses(str(folder))
    snapshot = assemble(Facts(now=now, pair="p", primary_namespace="contoso", statuses=statuses))
    [found] = [one for one in check_snapshot(snapshot) if one.check == "syphon"]
    return found.level, found.detail


RUNNING = SyphonStatus(
    id="s", host=socket.gethostname(), pid=os.getpid(), state="running",
    machine=machine_id(), process_started=started_at(os.getpid()) or "",
)  # fmt: skip


def test_a_syphon_that_was_killed_on_this_host_is_not_called_running(tmp_path):
    code = "import os; os.kill(os.getpid(), 9)"
    killed = subprocess.Popen([sys.executable, "-c", code])
    gone = replace(RUNNING, pid=killed.pid, process_started=started_at(killed.pid) or "0")
    killed.wait()
    detail = "s stopped reporting: its process does not exist any more"
    assert syphon_finding(tmp_path, gone) == ("critical", detail)
    stopped = replace(gone, state="stopped")
    assert syphon_finding(tmp_path, stopped) == ("warning", "no syphon reports")


def test_a_syphon_whose_process_id_belongs_to_a_newer_process_is_not_called_running(tmp_path):
    other = replace(RUNNING, process_started="1")
    assert "does not exist any more" in syphon_finding(tmp_path, other)[1]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"host": "elsewhere", "pid": 2**22 + 1},
        {"machine": "another container of this host", "pid": 2**22 + 1},
        {"machine": "", "process_started": "", "pid": 2**22 + 1},  # of an older version
    ],
)
def test_a_syphon_whose_process_may_exist_is_believed(tmp_path, changes):
    found = syphon_finding(tmp_path, replace(RUNNING, **changes))
    assert found == ("ok", "s is running")
