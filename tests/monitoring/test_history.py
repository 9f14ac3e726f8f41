"""Rates and the syphon's events, from successive snapshots."""

import datetime as dt

from pairbus.monitoring.records import ClientState, SyphonState
from pairbus.monitoring.send_rates import DrainRates, SendRates
from pairbus.monitoring.snapshot import Facts, assemble
from pairbus.monitoring.syphon_events import SyphonEvents
from pairbus.status import Counts, EntityStatus
from pairbus.syphon.status_records import SyphonStatus

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(seconds: float) -> str:
    return (START + dt.timedelta(seconds=seconds)).isoformat()


def client(written: float, sent: int):
    orders = EntityStatus(
        entity="orders", phase="healthy", since=START, counts=Counts(sent_primary=sent)
    )
    return ClientState(
        client_id="a", updated_at=START + dt.timedelta(seconds=written), entities=[orders]
    )


def test_steady_load_is_a_flat_line_whatever_the_period_of_the_status_file():
    rates = SendRates()
    seen = []
    for second in range(60):
        written = second // 5 * 5  # the file is written every five seconds, and read every second
        seen.append(rates.update([client(written, written * 57)])["sent_primary"])
    assert seen[:5] == [None] * 5
    assert set(seen[5:]) == {57.0}


def test_rate_returns_to_zero_when_the_load_or_the_client_ends():
    rates = SendRates()
    rates.update([client(0, 0)])
    assert rates.update([client(5, 100)])["sent_primary"] == 20
    for written in (10, 15, 20, 25):
        last = rates.update([client(written, 100)])["sent_primary"]
    assert last == 0
    assert rates.update([]) == {"sent_primary": 0.0, "sent_backlog": 0.0}


def draining(progress: float | None, forwarded: int, state: str = "running"):
    last_progress = None if progress is None else at(progress)
    return SyphonState(
        id="s", state=state, forwarded=forwarded, rate=7.0, last_progress=last_progress
    )


def test_drain_in_micro_batches_is_a_flat_line_that_returns_to_zero():
    rates = DrainRates()
    assert rates.update([draining(None, 0)]) == 7.0, "before any progress the syphon's own"
    seen = []
    for second in range(5, 65):
        batch = second // 5  # 400 messages every five seconds, read every second
        seen.append(rates.update([draining(batch * 5, batch * 400)]))
    assert set(seen[5:]) == {80.0}
    assert rates.update([draining(60, 4800, "idle")]) == 0
    # A restarted syphon may count from zero.
    assert rates.update([draining(90, 5000)]) == 7.0
    assert rates.update([draining(95, 10)]) == 7.0
    assert rates.update([draining(100, 60)]) == 10.0


def syphon(state, **changes):
    return {
        "kind": "syphon", "id": "s", "host": "node-9", "pid": 1, "state": state, "forwarded": 0,
        "dead_lettered": {}, **changes,
    }  # fmt: skip


def tell(*statuses):
    events = SyphonEvents()
    for second, status in enumerate(statuses):
        status = {**status, "updated_at": at(second)}
        now = START + dt.timedelta(seconds=second)
        snapshot = assemble(Facts(now=now, statuses=[SyphonStatus.from_json(status)]))
        ((_, story),) = events.update(snapshot.syphons, snapshot.at.isoformat())
    return story


def test_syphon_tells_its_story():
    story = tell(
        syphon("starting"),
        syphon("idle"),
        syphon("running", forwarded=10),
        syphon("stalled", forwarded=400, stalled="primary: amqp:connection:forced"),
        syphon("running", forwarded=400),
        syphon("paused", forwarded=500),
        syphon("running", forwarded=540, dead_lettered={"Rejected": 2}),  # 40 in the first second
        syphon("idle", forwarded=6915, dead_lettered={"Rejected": 2}),
        syphon("stopped", forwarded=6915),
    )
    assert [event["event"] for event in story] == [
        "SyphonStarted", "SyphonStalled", "SyphonResumed", "SyphonPaused", "SyphonDeadLettered",
        "SyphonResumed", "SyphonDrained", "SyphonStopped",
    ]  # fmt: skip
    assert story[1]["reason"] == "the primary cannot be reached"
    drained = story[6]
    assert (drained["messages"], drained["seconds"]) == (6415, 1.0)


def test_drain_that_is_slowed_down_is_throttled_once():
    story = tell(
        syphon("idle"),
        syphon("running"),
        syphon("running", throttled_by="primary"),
        syphon("running"),
        syphon("running", throttled_by="primary"),
        syphon("idle"),
        syphon("running", throttled_by="secondary"),
    )
    throttled = [event["reason"] for event in story if event["event"] == "SyphonThrottled"]
    assert throttled == ["by the primary", "by the secondary"]


def test_a_syphon_that_started_before_the_page_has_its_own_time():
    story = tell(syphon("idle", started_at="2025-12-31T23:00:00+00:00"))
    assert [event["at"] for event in story] == ["2025-12-31T23:00:00+00:00"]


def test_restarted_syphon_is_started_again():
    story = tell(syphon("idle"), syphon("idle", pid=2))
    assert [event["event"] for event in story] == ["SyphonStarted", "SyphonStarted"]
