"""Checks of a snapshot: thresholds, grades, and never OK while blind."""

import datetime as dt
from dataclasses import replace

import pytest

from pairbus.monitoring.backlog_queues import draining_clients
from pairbus.monitoring.checks import (
    Grades,
    Thresholds,
    check_duplicate_windows,
    check_snapshot,
    summarise,
    worst,
)
from pairbus.monitoring.endpoints import Pair
from pairbus.monitoring.records import QueueDepth
from pairbus.monitoring.snapshot import Facts, assemble
from pairbus.status import PairStatus
from pairbus.syphon.status_records import SyphonStatus

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LIMITS = Thresholds(
    backlog_warning=10, backlog_critical=100, age_warning=60, age_critical=600,
    dead_warning=1, dead_critical=5,
)  # fmt: skip


def findings(grades=None, **facts):
    return check_snapshot(assemble(Facts(now=NOW, **facts)), LIMITS, grades)


def levels(grades=None, **facts):
    return {f.check: f.level for f in findings(grades, **facts)}


def syphon(state="idle", age=0.0, **changes):
    at = (NOW - dt.timedelta(seconds=age)).isoformat()
    return SyphonStatus.from_json({"id": "s", "state": state, "updated_at": at, **changes})


def queue(active=0, dead=0, age=0.0):
    oldest = NOW - dt.timedelta(seconds=age)
    return QueueDepth(path="q", active=active, dead_letters=dead, oldest=oldest)


def client(phase="healthy", age=0.0, name="c", **changes):
    entity = {"entity": "orders", "phase": phase, "since": NOW, **changes}
    updated_at = NOW - dt.timedelta(seconds=age)
    return PairStatus.from_json(
        {"client_id": name, "state": "open", "updated_at": updated_at, "entities": [entity]}
    )


@pytest.mark.parametrize(
    ("active", "level"), [(9, "ok"), (10, "warning"), (99, "warning"), (100, "critical")]
)
def test_depth_is_compared_with_both_thresholds(active, level):
    assert levels(backlog=[queue(active)])["backlog"] == level


@pytest.mark.parametrize(("age", "level"), [(59, "ok"), (60, "warning"), (600, "critical")])
def test_age_is_compared_with_both_thresholds(age, level):
    assert levels(backlog=[queue(1, age=age)])["oldest"] == level


def test_an_unknown_number_of_dead_letters_is_not_ok():
    assert levels(backlog=[queue(dead=None)])["dead letters"] == "unknown"


@pytest.mark.parametrize(("dead", "level"), [(0, "ok"), (1, "warning"), (5, "critical")])
def test_dead_letters_are_compared_with_both_thresholds(dead, level):
    assert levels(backlog=[queue(dead=dead)])["dead letters"] == level


def test_failed_over_entity_counts_as_asked():
    assert levels(statuses=[client("failed_over")], backlog=[])["entities"] == "warning"
    assert levels(statuses=[client("suspect")], backlog=[])["entities"] == "ok"


def test_all_is_well_only_while_clients_and_a_syphon_report():
    assert worst(findings(statuses=[client(), syphon()], backlog=[queue()])) == "ok"


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("source", {"status_problem": "LedgerError: /typo: not a ledger", "backlog": [queue()]}),
        ("clients", {"statuses": [syphon()], "backlog": [queue()]}),
        ("clients", {"statuses": [client(age=3000), client(age=3000, name="d"), syphon()],
                     "backlog": [queue()]}),
        ("syphon", {"statuses": [client()], "backlog": [queue()]}),
        ("syphon", {"statuses": [client(), syphon("stopped")], "backlog": [queue()]}),
        ("syphon", {"statuses": [client(), syphon(age=3000)], "backlog": [queue()]}),
        ("source", {"statuses": [client(), syphon()], "backlog_problem": "the secondary: refused"}),
        ("backlog", {"statuses": [client(), syphon()]}),
        ("backlog", {"statuses": [client(), syphon()], "backlog": []}),
        ("oldest", {"statuses": [client(), syphon()], "backlog": [replace(queue(5), oldest=None)]}),
    ],
)  # fmt: skip
def test_blind_check_is_never_ok_and_says_what_to_do(name, facts):
    found = findings(**facts)
    assert worst(found) != "ok"
    (blind,) = [f for f in found if f.check == name]
    assert blind.level != "ok"
    assert blind.remedy


def test_dead_clients_are_critical_unless_others_report():
    dead = [client(age=3000, name=name) for name in "abcd"]
    assert levels(statuses=dead)["clients"] == "critical"
    (found,) = [f for f in findings(statuses=dead) if f.check == "clients"]
    assert found.detail == "4 of 4 clients silent for 50m 00s: a, b, c …"
    assert levels(statuses=[*dead, client(name="e")])["clients"] == "warning"


@pytest.mark.parametrize(
    ("grade", "name", "statuses"),
    [
        ("failed_over", "entities", [client("failed_over")]),
        ("no_client", "clients", []),
        ("unprotected", "protection", [replace(client(), unprotected="no backlog queues")]),
        ("stale", "clients", [client(age=3000)]),
        ("no_syphon", "syphon", []),
        ("stalled", "syphon", [syphon("stalled", stalled="nothing moved for 90 s")]),
        ("paused", "syphon", [syphon("paused")]),
    ],
)
@pytest.mark.parametrize("level", ["ok", "unknown", "warning", "critical"])
def test_each_condition_counts_as_asked(grade, name, statuses, level):
    assert levels(Grades(**{grade: level}), statuses=statuses)[name] == level


def test_syphon_that_waits_for_a_primary_that_is_out_is_no_second_alarm():
    waits = syphon("stalled", stalled="primary: amqp:connection:forced")
    assert levels(statuses=[client("failed_over"), waits])["syphon"] == "ok"
    assert levels(statuses=[client(), waits])["syphon"] == "critical"
    other = syphon("stalled", stalled="ledger: no space left")
    assert levels(statuses=[client("failed_over"), other])["syphon"] == "critical"


def test_a_destination_that_is_waited_for_is_named_with_the_number_of_its_messages():
    waits = {"waiting_for": {"orders": "amqp:not-found"}, "waiting_counts": {"orders": 1200}}
    (found,) = [
        f for f in findings(statuses=[syphon("running", **waits)]) if f.check == "destination"
    ]
    assert found.level == "warning"
    assert found.detail == ("orders: does not exist; waiting for it to be created (1,200 messages)")


def test_duplicate_windows_of_a_primary_that_is_out_are_left_out():
    def read(_pair):
        raise OSError("refused")

    out = check_duplicate_windows(Pair(), 60, failed_over=True, read=read)
    assert out.level == "ok"
    blind = check_duplicate_windows(Pair(), 60, failed_over=False, read=read)
    assert (blind.level, blind.detail) == ("unknown", "refused")


def test_depth_that_nobody_knows_is_unknown():
    assert levels()["backlog"] == "unknown"


def test_a_fence_that_nobody_answers_is_found_and_the_remedy_names_the_command():
    quiet = {check.check for check in findings(statuses=[client("draining")])}
    drain = {"is_overdue": True, "waits_for": ["contoso/x-servicebus-transfer/3"]}
    draining = client("draining", drain=drain)

    [drain] = [f for f in findings(statuses=[draining]) if f.check == "drain"]

    assert "drain" not in quiet
    assert drain.level == "warning"
    assert (
        drain.detail == "orders draining, no answer to the fence in contoso/x-servicebus-transfer/3"
    )
    assert "pairbus pair end-draining orders" in drain.remedy
    assert draining_clients([draining, client()], "Orders") == ["c"]


def test_headline_of_a_check_never_says_well_beside_a_warning():
    statuses = [client(), syphon("stopped")]
    snapshot = assemble(Facts(now=NOW, statuses=statuses, backlog=[queue()]))
    assert snapshot.headline == "All is well"
    found = check_snapshot(snapshot, LIMITS)
    assert summarise(snapshot, found) == "syphon: no syphon reports"
    quiet = check_snapshot(snapshot, LIMITS, Grades(no_syphon="ok"))
    assert summarise(snapshot, quiet) == "All is well"


def test_headline_of_a_blind_check_names_the_source_that_could_not_be_read():
    well = {"statuses": [client(), syphon()], "backlog_problem": "the secondary: refused"}
    snapshot = assemble(Facts(now=NOW, **well))
    assert (snapshot.level, snapshot.headline) == (
        "unknown",
        "Not everything could be checked",
    )
    found = check_snapshot(snapshot, LIMITS)
    assert summarise(snapshot, found).startswith("source: the secondary: refused; ")
    typo = assemble(Facts(now=NOW, status_problem="/typo: not a ledger", backlog=[queue()]))
    assert summarise(typo, check_snapshot(typo, LIMITS)) == (
        "source: /typo: not a ledger; syphon: no syphon reports"
    )


def test_age_of_the_backlog_is_the_syphons_if_the_secondary_is_not_asked():
    queues = [{"path": "q", "active": 5, "dead_letters": 0}]
    statuses = [client(), syphon("running", queues=queues, oldest_age=600.0)]
    assert levels(statuses=statuses)["oldest"] == "critical"
