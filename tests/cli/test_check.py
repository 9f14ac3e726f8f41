"""`pairbus check` and `pairbus pair status` against real namespaces."""

import datetime as dt
import json

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.cli.errors import ExitCode

SEEN = ("--no-client", "ok", "--no-syphon", "ok", "--unreachable", "ok")  # no client, no ledger


@pytest.mark.sdk
@pytest.mark.slow
def test_exit_codes_follow_the_worst_finding(run, namespaces):
    _, secondary = namespaces
    run("backlog", "create", "--count", "1")
    result = run("check", *SEEN, "--no-windows")
    assert result.exit_code == ExitCode.OK
    assert result.output.startswith("pairbus OK: ")
    with (
        ServiceBusClient.from_connection_string(secondary.connection_string) as client,
        client.get_queue_sender(run.path(0)) as sender,
    ):
        sender.send_messages([ServiceBusMessage("x"), ServiceBusMessage("y")])
    assert run("check", *SEEN, "--no-windows").exit_code == ExitCode.NEGATIVE
    result = run("check", *SEEN, "--no-windows", "--backlog-critical", "2", "--json")
    assert result.exit_code == ExitCode.CRITICAL
    answer = json.loads(result.output)
    assert answer["level"] == "critical"
    (found,) = [f for f in answer["findings"] if f["check"] == "backlog"]
    assert (found["level"], found["detail"]) == ("critical", "2 messages")
    # And the depth shows in the pair's status.
    status = json.loads(run("pair", "status", "--json").output)
    assert status["backlog"]["active"] == 2
    assert status["backlog"]["queues"][0]["oldest_age"] is not None


@pytest.mark.sdk
@pytest.mark.slow
def test_ledger_with_a_typo_is_unknown_and_named(run, tmp_path):
    run("backlog", "create", "--count", "1")
    result = run("check", "--no-windows", "--ledger", str(tmp_path / "leger"), "--no-syphon", "ok")
    assert result.exit_code == ExitCode.ERROR
    assert result.output.startswith("pairbus UNKNOWN")
    assert "leger: not a ledger" in result.output


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
    result = run("check", *SEEN, "--outage", "3600")
    assert result.exit_code == ExitCode.NEGATIVE
    assert "short (10m 00s)" in result.output
    assert run("check", *SEEN, "--outage", "60").exit_code == ExitCode.OK
    assert "short (10m 00s)" in run("check", *SEEN, "--outage", "1h").output
    assert run("check", *SEEN, "--outage", "5m", "--age-critical", "2h").exit_code == ExitCode.OK


@pytest.mark.sdk
@pytest.mark.slow
def test_status_without_anything_to_look_at_says_what_to_give(run, monkeypatch):
    for name in ("SECONDARY", "LEDGER", "PRIMARY"):
        monkeypatch.delenv(f"PAIRBUS_{name}")
    result = run("pair", "status")
    assert result.exit_code == ExitCode.USAGE
    assert "PAIRBUS_LEDGER" in result.stderr
