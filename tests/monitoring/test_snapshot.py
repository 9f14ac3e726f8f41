"""What the facts mean: one document for page, JSON, stream and metrics."""

import datetime as dt
from decimal import Decimal

from pairbus.monitoring import metrics
from pairbus.monitoring.records import BrokerHealth, Money, QueueDepth, StageCost
from pairbus.monitoring.snapshot import Facts, assemble
from pairbus.monitoring.sources import STATUSES

NOW = dt.datetime(2026, 11, 15, 12, 0, 0, tzinfo=dt.UTC)


def at(seconds: float) -> str:
    return (NOW + dt.timedelta(seconds=seconds)).isoformat()


def client(*entities, client_id="a", age=0.0, **changes):
    return {
        "kind": "client", "client_id": client_id, "state": "open", "updated_at": at(-age),
        "entities": list(entities), "primary_namespace": "contoso", **changes,
    }  # fmt: skip


def entity(name, phase="healthy", since=None, **changes):
    return {
        "entity": name,
        "phase": phase,
        "since": since,
        "counts": {"sent_primary": 1},
        **changes,
    }


def see(*statuses, **facts):
    records = [STATUSES[status["kind"]](status) for status in statuses]
    for name, record in (("backlog", QueueDepth), ("brokers", BrokerHealth)):
        if name in facts:
            facts[name] = [record(**row) for row in facts[name]]
    return assemble(Facts(now=NOW, statuses=records, **facts))


def test_nothing_reported_is_said_plainly():
    assert see().headline == "Nothing has reported yet"
    assert see().level == "unknown"


def test_healthy_pair_is_well():
    idle = {"kind": "syphon", "id": "s", "state": "idle", "updated_at": at(0)}
    snapshot = see(client(entity("orders")), idle, backlog=[])
    assert (snapshot.level, snapshot.headline) == ("ok", "All is well")
    # A syphon that ended has done its work; it may run once a night.
    ended = see(client(entity("orders")), {**idle, "state": "stopped"}, backlog=[])
    assert ended.level == "ok"


def test_failed_over_entity_is_critical_and_tells_since_why_and_next_ping():
    snapshot = see(
        client(entity("orders", "failed_over", at(-90), last_error="refused", next_ping=at(12)))
    )
    row = snapshot.entities[0]
    assert snapshot.level == "critical"
    assert (row.seconds, row.last_error, row.next_ping_in) == (90.0, "refused", 12.0)


def test_entity_of_several_clients_shows_the_worst_and_how_many():
    snapshot = see(
        client(entity("orders")),
        client(entity("ORDERS", "failed_over", at(-60)), client_id="b"),
        client(entity("orders", "suspect", at(-99)), client_id="c"),
    )
    (row,) = snapshot.entities
    assert (row.phase, row.clients, row.clients_failed_over) == ("failed_over", 3, 1)
    assert row.seconds == 99.0
    assert row.counts.sent_primary == 3


def test_worst_entities_come_first():
    snapshot = see(client(entity("a"), entity("z", "failed_over", at(-1)), entity("m", "suspect")))
    assert [e.entity for e in snapshot.entities] == ["z", "m", "a"]


def test_client_that_fell_silent_or_closed_no_longer_counts():
    snapshot = see(
        client(entity("orders", "failed_over", at(-500)), age=300),
        client(entity("bills", "failed_over", at(-5)), client_id="b", state="closed"),
    )
    assert snapshot.entities == []
    assert snapshot.clients[0].is_stale
    assert not snapshot.clients[1].is_stale


def test_depths_come_from_the_secondary_first():
    syphon = {
        "kind": "syphon",
        "id": "s",
        "updated_at": at(0),
        "queues": [{"path": "q", "active": 9}],
    }
    snapshot = see(syphon, backlog=[{"path": "q", "active": 4, "dead_letters": 1, "oldest": NOW}])
    assert snapshot.backlog.active == 4
    assert snapshot.backlog.dead_letters == 1
    assert snapshot.backlog.source == "secondary"
    assert see(syphon).backlog.active == 9
    assert see(syphon).backlog.source == "syphon"


def test_queue_out_of_rotation_is_marked_with_its_reason():
    queues = [{"path": "Q", "in_rotation": False, "reason": "full", "until": at(30)}]
    snapshot = see(client(backlog_queues=queues), backlog=[{"path": "q", "active": 0}])
    (row,) = snapshot.backlog.queues
    assert (row.in_rotation, row.reason, row.level) == (False, "full", "warning")


def test_stalled_syphon_is_critical_and_silent_one_a_warning():
    stalled = {"kind": "syphon", "id": "s", "updated_at": at(0), "state": "stalled"}
    silent = {"kind": "syphon", "id": "s", "updated_at": at(-500), "state": "running"}
    stopped = {"kind": "syphon", "id": "s", "updated_at": at(-500), "state": "stopped"}
    assert see(stalled).level == "critical"
    assert see(silent).syphons[0].state == "silent"
    assert see(silent).level == "warning"
    assert see(stopped).level == "unknown"


def test_outage_of_the_primary_is_one_alarm_with_its_name():
    waits = {
        "kind": "syphon", "id": "s", "updated_at": at(0), "state": "stalled",
        "stalled": "primary: amqp:connection:forced", "next_attempt": at(8),
    }  # fmt: skip
    down = {"role": "primary", "namespace": "contoso", "host": "h", "is_up": False}
    during = see(client(entity("orders", "failed_over", at(-9))), waits, brokers=[down])
    assert during.headline == "Primary contoso is down, 1 entity failed over"
    # A syphon that has not tried to deliver yet does not know the reason.
    still = {**waits, "stalled": "no message was settled for 31 s", "next_attempt": None}
    during = see(client(entity("orders", "failed_over", at(-9))), still, brokers=[down])
    assert during.headline == "Primary contoso is down, 1 entity failed over"
    assert during.syphons[0].problem == "waits for the primary"
    assert "no message was settled" in see(client(entity("orders")), still).headline
    after = see(client(entity("orders")), waits, brokers=[{**down, "is_up": True}])
    assert after.level == "warning"
    assert after.headline == "Syphon waits: the primary cannot be reached; next try in 8s"


def test_clients_that_stopped_reporting_are_in_the_headline():
    snapshot = see(client(entity("orders"), age=3000), client(entity("orders"), client_id="b"))
    assert (snapshot.level, snapshot.headline) == ("warning", "1 client silent")


def test_unprotected_client_is_in_the_headline():
    snapshot = see(client(entity("orders"), unprotected="no backlog queue can be reached"))
    assert snapshot.level == "warning"
    assert snapshot.headline == "1 client unprotected: no backlog queue can be reached"


def test_metric_counts_the_unprotected_clients_that_are_open_and_report():
    snapshot = see(
        client(client_id="a", unprotected="no backlog queues"),
        client(client_id="b", unprotected="no backlog queues", age=3000),
        client(client_id="c", unprotected="no backlog queues", state="closed"),
        client(client_id="d"),
    )
    assert 'pairbus_unprotected_clients{pair="default"} 1.0' in metrics.render(snapshot)


def test_paused_syphon_is_in_the_headline_and_has_no_time_left():
    paused = {"kind": "syphon", "id": "s", "updated_at": at(0), "state": "paused", "eta": 2421.0}
    running = {**paused, "state": "running"}
    assert (see(paused).level, see(paused).headline) == ("warning", "Syphon paused")
    assert see(paused).syphons[0].eta is None
    assert see(running).syphons[0].eta == 2421.0
    assert see(running).headline == "No paired client reports"


def test_destination_that_is_waited_for_is_in_the_headline_with_its_reason():
    syphon = {
        "kind": "syphon", "id": "s", "state": "running", "updated_at": at(0),
        "waiting_for": {"orders": "com.microsoft:entity-disabled", "bills": "amqp:not-found"},
        "waiting_counts": {"orders": 12},
    }  # fmt: skip
    snapshot = see(client(entity("orders")), syphon, backlog=[])
    assert snapshot.headline == (
        "Syphon: orders: waiting for it to be enabled (12 messages) and 1 more"
    )


def test_running_syphon_has_the_allowed_rate_and_the_namespace_that_throttles():
    running = {
        "kind": "syphon", "id": "s", "updated_at": at(0), "state": "running",
        "allowed_rate": 213.7, "throttled_by": "primary",
    }  # fmt: skip
    [syphon] = see(running).syphons
    assert (syphon.allowed_rate, syphon.throttled_by) == (213.7, "primary")
    assert see({**running, "state": "paused"}).syphons[0].throttled_by is None


def test_backlog_that_nobody_drains_is_told_in_the_headline():
    queue = {"path": "contoso/x-servicebus-transfer/0", "active": 5, "dead_letters": 0}
    syphon = {"kind": "syphon", "id": "s", "updated_at": at(0), "state": "stopped", "rate": 1.0}
    assert see(backlog=[queue]).headline == "5 in the backlog, no syphon reports"
    stopped = see(syphon, backlog=[queue])
    assert stopped.headline == "5 in the backlog, no syphon reports"
    assert stopped.syphons[0].rate == 0
    running = see({**syphon, "state": "running"}, backlog=[queue])
    assert running.headline == "5 in the backlog"
    assert running.syphons[0].rate == 1.0
    estimated = see({**syphon, "state": "running", "eta": 46.0}, backlog=[queue])
    assert estimated.headline == "5 in the backlog, drained in 46s"
    idle = see({**syphon, "state": "idle", "eta": 0.0}, backlog=[])
    assert (idle.syphons[0].rate, idle.syphons[0].eta) == (0, None)


def test_events_of_all_clients_are_one_timeline_newest_first():
    snapshot = see(
        client(client_id="a", events=[{"event": "FailedOver", "at": at(-9)}]),
        client(client_id="b", events=[{"event": "Restored", "at": at(-1)}]),
    )
    assert [(e["event"], e["client_id"]) for e in snapshot.events] == [
        ("Restored", "b"),
        ("FailedOver", "a"),
    ]


def test_pings_without_an_answer_are_one_row_until_something_else_happens():
    def ping(seconds, succeeded=False):
        return {"event": "PingSent", "at": at(seconds), "entity": "q", "succeeded": succeeded}

    failed_over = {"event": "FailedOver", "at": at(-50), "entity": "q"}
    events = [ping(-90), failed_over, ping(-40), ping(-30), ping(-20), ping(-10, True)]
    rows = see(client(client_id="a", events=events)).events
    assert [(r["event"], r["at"], r["times"]) for r in rows] == [
        ("PingSent", at(-10), 1),
        ("PingSent", at(-20), 3),
        ("FailedOver", at(-50), 1),
        ("PingSent", at(-90), 1),
    ]
    assert rows[1]["first_at"] == at(-40)


def test_sends_that_neither_namespace_accepted_are_one_row():
    events = [
        {"event": "PairUnavailable", "at": at(second), "entity": "q"} for second in range(-50, -40)
    ]
    (row,) = see(client(client_id="a", events=events)).events
    assert (row["times"], row["at"], row["first_at"]) == (10, at(-41), at(-50))


def test_event_that_several_clients_report_together_is_one_row_with_their_number():
    def events(shift):
        return [
            {"event": "FailedOver", "at": at(-50 + shift), "entity": "q"},
            {"event": "PingSent", "at": at(-40 + shift), "entity": "q", "succeeded": False},
            {"event": "PingSent", "at": at(-30 + shift), "entity": "q", "succeeded": False},
        ]

    rows = see(client(client_id="a", events=events(0)), client(client_id="b", events=events(2)))
    assert [(r["event"], r["clients"], r["times"], r["at"]) for r in rows.events] == [
        ("PingSent", 2, 2, at(-28)),
        ("FailedOver", 2, 1, at(-48)),
    ]
    apart = see(client(client_id="a", events=events(0)), client(client_id="b", events=events(20)))
    assert [r["clients"] for r in apart.events] == [1, 1, 1, 1]


def test_pair_without_any_syphon_is_not_well():
    snapshot = see(client(entity("orders")))
    assert (snapshot.level, snapshot.headline) == ("warning", "No syphon has reported")


def test_problem_of_a_source_is_shown_and_hides_nothing():
    snapshot = see(client(entity("orders"), ledger_problem="disk full"), backlog_problem="refused")
    assert snapshot.problems == ["refused", "a cannot write its ledger: disk full"]
    assert snapshot.entities


def test_rows_that_a_client_dropped_are_a_problem():
    snapshot = see(client(entity("orders"), ledger_dropped_rows=1500))
    assert snapshot.problems == ["a dropped 1,500 rows of its ledger"]


def test_rows_that_a_syphon_dropped_are_a_problem_and_in_the_metrics():
    syphon = {"kind": "syphon", "id": "s", "updated_at": at(0), "ledger_problem": "disk full"}
    snapshot = see({**syphon, "ledger_dropped_rows": 7})
    assert snapshot.problems == [
        "s cannot write its ledger: disk full",
        "s dropped 7 rows of its ledger",
    ]
    sample = 'pairbus_ledger_dropped_rows_total{client="s",pair="default"} 7.0'
    assert sample in metrics.render(snapshot)


def test_odd_status_files_do_no_harm():
    snapshot = see(
        {"kind": "client"},
        {"kind": "syphon", "dead_lettered": None, "queues": None, "updated_at": "yesterday"},
        client({"entity": "x", "phase": "purple", "since": 3}),
    )
    assert metrics.render(snapshot)


def test_counts_that_are_unknown_are_not_shown_as_zero():
    queues = [{"path": "q", "in_rotation": True}]
    syphon = {"kind": "syphon", "id": "s", "state": "running", "updated_at": at(0)}
    snapshot = see(client(backlog_queues=queues), syphon)
    assert snapshot.backlog.dead_letters is None
    assert snapshot.backlog.queues[0].dead_letters is None
    text = metrics.render(snapshot)
    assert "pairbus_backlog_queue_dead_letters{" not in text
    assert "pairbus_syphon_remaining_messages{" not in text
    assert see(backlog=[]).backlog.dead_letters == 0


def test_metrics_are_prometheus_text_with_escaped_labels():
    text = metrics.render(
        see(
            client(entity('or"ders', "failed_over", at(-90))),
            backlog=[{"path": "q", "active": 4, "dead_letters": 1, "oldest": NOW}],
            brokers=[{"role": "primary", "host": "h", "is_up": True}],
            money=Money(
                currency="USD",
                stages=[StageCost(stage="ping", operations=3, amount=Decimal("0.1"))],
            ),
        )
    )
    assert 'pairbus_entity_phase{entity="or\\"ders",pair="default",phase="failed_over"} 1' in text
    assert 'pairbus_failed_over{entity="or\\"ders",pair="default"} 1' in text
    assert 'pairbus_backlog_queue_dead_letters{pair="default",queue="q"} 1' in text
    assert 'pairbus_cost_total{currency="USD",pair="default",stage="ping"} 0.1' in text
    assert text.endswith("\n")


def test_overdue_drain_shows_its_own_problem_not_the_error_of_the_outage():
    drain = {"is_overdue": True, "waits_for": ["backlog/3"], "problem": "no right Send"}
    snapshot = see(client(entity("orders", "draining", at(-90), last_error="refused", drain=drain)))

    [row] = snapshot.entities
    assert (row.overdue_fences, row.last_error) == (["backlog/3"], "no right Send")
