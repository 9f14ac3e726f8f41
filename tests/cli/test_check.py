"""`pairbus check` and `pairbus pair status`: what a monitor sees."""

import datetime as dt
import json

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.cli.errors import ExitCode
from pairbus.monitoring.checks import judge
from pairbus.monitoring.snapshot import Facts, assemble

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LIMITS = {
    "backlog_warning": 10, "backlog_critical": 100, "age_warning": 60, "age_critical": 600,
    "dead_warning": 1, "dead_critical": 5,
}  # fmt: skip


def levels(**facts):
    snapshot = assemble(Facts(now=NOW, **facts))
    return {f.check: f.level for f in judge(snapshot, LIMITS, failed_over="warning")}


def queue(active=0, dead=0, age=0.0):
    return {
        "path": "q", "active": active, "dead_letters": dead,
        "oldest": NOW - dt.timedelta(seconds=age),
    }  # fmt: skip


def client(phase):
    return {
        "kind": "client", "client_id": "c", "state": "open", "updated_at": NOW.isoformat(),
        "entities": [{"entity": "orders", "phase": phase, "since": NOW.isoformat()}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("active", "level"), [(9, "ok"), (10, "warning"), (99, "warning"), (100, "critical")]
)
def test_depth_is_compared_with_both_thresholds(active, level):
    assert levels(backlog=[queue(active)])["backlog"] == level


@pytest.mark.parametrize(("age", "level"), [(59, "ok"), (60, "warning"), (600, "critical")])
def test_age_is_compared_with_both_thresholds(age, level):
    assert levels(backlog=[queue(1, age=age)])["oldest"] == level


@pytest.mark.parametrize(("dead", "level"), [(0, "ok"), (1, "warning"), (5, "critical")])
def test_dead_letters_are_compared_with_both_thresholds(dead, level):
    assert levels(backlog=[queue(dead=dead)])["dead letters"] == level


def test_failed_over_entity_counts_as_asked():
    assert levels(statuses=[client("failed_over")], backlog=[])["entities"] == "warning"
    assert levels(statuses=[client("suspect")], backlog=[])["entities"] == "ok"


def test_stalled_syphon_is_critical():
    syphon = {"kind": "syphon", "id": "s", "state": "stalled", "updated_at": NOW.isoformat()}
    assert levels(statuses=[syphon], backlog=[])["syphon"] == "critical"


def test_depth_that_nobody_knows_is_unknown():
    assert levels()["backlog"] == "unknown"


def test_source_that_fails_is_unknown():
    assert levels(backlog=[], backlog_problem="refused")["source"] == "unknown"


@pytest.mark.sdk
@pytest.mark.slow
def test_exit_codes_follow_the_worst_finding(run, namespaces):
    _, secondary = namespaces
    run("backlog", "create", "--count", "1")
    result = run("check", "--no-windows")
    assert result.exit_code == ExitCode.OK
    assert result.output.startswith("pairbus OK: ")
    with (
        ServiceBusClient.from_connection_string(secondary.connection_string) as client,
        client.get_queue_sender(run.path(0)) as sender,
    ):
        sender.send_messages([ServiceBusMessage("x"), ServiceBusMessage("y")])
    assert run("check", "--no-windows").exit_code == ExitCode.NEGATIVE
    result = run("check", "--no-windows", "--backlog-critical", "2", "--json")
    assert result.exit_code == ExitCode.CRITICAL
    answer = json.loads(result.output)
    assert answer["level"] == "critical"
    assert {"check": "backlog", "level": "critical", "detail": "2 messages"} in answer["findings"]
    # And the depth shows in the pair's status.
    status = json.loads(run("pair", "status", "--json").output)
    assert status["backlog"]["active"] == 2
    assert status["backlog"]["queues"][0]["oldest_age"] is not None


@pytest.mark.sdk
@pytest.mark.slow
def test_short_duplicate_windows_are_a_warning(run, namespaces):
    primary, _ = namespaces
    run("backlog", "create", "--count", "1")
    primary.create_queue(
        "short",
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=dt.timedelta(minutes=10),
    )
    result = run("check", "--outage", "3600")
    assert result.exit_code == ExitCode.NEGATIVE
    assert "short (10m 00s)" in result.output
    assert run("check", "--outage", "60").exit_code == ExitCode.OK


@pytest.mark.sdk
@pytest.mark.slow
def test_status_without_anything_to_look_at_says_what_to_give(run, monkeypatch):
    for name in ("SECONDARY", "LEDGER", "PRIMARY"):
        monkeypatch.delenv(f"PAIRBUS_{name}")
    result = run("pair", "status")
    assert result.exit_code == ExitCode.USAGE
    assert "PAIRBUS_LEDGER" in result.stderr
