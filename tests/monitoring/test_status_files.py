"""Status files of this version, of older and of newer ones are read as records."""

import datetime as dt
import json
from pathlib import Path

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


def test_the_status_of_a_syphon_of_version_0_1_is_read():
    status = SyphonStatus.from_json(json.loads(OLD.read_text()))
    assert (status.state, status.forwarded, status.remaining) == ("running", 23, 10)
    assert (status.throttled_by, status.waiting_counts) == (None, {})
    assert [queue.active for queue in status.queues] == [10, 23]
