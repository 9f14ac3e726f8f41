"""The coordinator: what may be read next, what is held, and what survives a restart."""

import threading
from dataclasses import replace

import pytest

from pairbus.syphon._sync.primary_probe import PrimaryProbe
from pairbus.syphon.journal import Journal
from pairbus.syphon.orphaned_locks import Inspection
from pairbus.syphon.records import HeldMessage, OperationCount, QueueRead
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.status_records import ProgressRecord
from tests.syphon.fakes import HELD, FakeOperations, Scene


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def test_nothing_is_read_until_the_doorbell_rings(scene):
    assert scene.plan(0) == ()
    assert scene.bell.listening == ["b/0", "b/1"]
    scene.bell.ringing = {"b/1"}
    assert scene.planned(0) == ["b/1"]
    assert scene.bell.listening == ["b/0"]


def test_a_queue_is_read_until_it_has_no_more(scene):
    scene.bell.ringing = {"b/0"}
    scene.plan(0)
    scene.read("b/0", 5000, more=True)
    assert scene.plan(1)
    scene.read("b/0", 12, more=False)
    assert scene.plan(2) == ()
    assert scene.progress().received == 5012


def test_a_queue_is_not_read_while_a_poll_may_hold_its_oldest_message(scene):
    scene.bell.ringing, scene.bell.busy = {"b/0"}, {"b/0"}
    assert scene.plan(0) == ()
    scene.bell.busy = set()
    assert scene.plan(0)


def test_pause_and_limits_survive_a_restart(scene, tmp_path):
    scene.bell.ringing = {"b/0", "b/1"}
    StateDirectory(tmp_path).change_controls(paused=True, max_messages_per_second=10)
    assert scene.plan(0) == ()
    assert scene.bell.listening == []
    again = Scene(tmp_path)
    again.bell.ringing = {"b/0", "b/1"}
    assert again.plan(0) == ()
    StateDirectory(tmp_path).change_controls(paused=False)
    assert sum(grant.messages for grant in again.plan(0)) == 10
    again.read("b/0", 10, more=True)
    assert again.plan(1) == ()
    again.runtime.now += 0.5
    assert sum(grant.messages for grant in again.plan(1)) == 5


def test_no_more_bytes_are_read_than_the_limit_allows(scene, tmp_path):
    scene.bell.ringing = {"b/0"}
    StateDirectory(tmp_path).change_controls(max_bytes_per_second=1000)
    assert [grant.size for grant in scene.plan(0)] == [1000]
    scene.read("b/0", 100, more=True)
    assert scene.plan(1) == ()
    scene.runtime.now += 0.25
    assert [grant.size for grant in scene.plan(1)] == [250]


def test_reading_resumes_with_one_message_after_the_primary_failed(scene):
    scene.bell.ringing = {"b/0", "b/1"}

    def granted(epoch):
        scene.runtime.now += 100
        return sum(grant.messages for grant in scene.plan(epoch))

    assert granted(0) == 2000
    scene.report(failed={"*": "amqp:connection:forced"})
    assert scene.plan(1) == ()  # it waits
    assert granted(1) == 1
    scene.report(failed={"*": "amqp:connection:forced"})
    assert scene.plan(2) == ()
    assert [granted(2), granted(3), granted(4)] == [1, 2, 4]  # nothing said that it is down
    scene.report(forwarded=1, delivered=("orders",))
    assert granted(5) == 2000


def test_no_more_than_the_bound_is_read(tmp_path):
    scene = Scene(tmp_path, max_messages=7)
    scene.bell.ringing = {"b/0"}
    assert [grant.messages for grant in scene.plan(0)] == [7]
    scene.read("b/0", 7, more=True)
    assert scene.plan(1) == ()
    assert scene.progress().is_drained


def test_a_held_message_stays_locked_is_renewed_and_probes_its_destination(scene):
    scene.report(held=HELD, failed={"orders": "com.microsoft:entity-disabled"})
    scene.tick()
    assert scene.queues.given_back == []
    assert scene.state.blocked().blocked == {"orders": None}
    assert scene.progress().waiting == 2
    scene.runtime.now += 10
    scene.tick()
    assert scene.queues.given_back == [("b/0", "aa")]
    assert scene.state.blocked().blocked == {"orders": ("b/0", 1)}
    scene.runtime.now += 25
    scene.tick()
    assert scene.queues.renewed == ["bb"]
    scene.report(forwarded=1, delivered=("orders",))
    scene.tick()
    assert scene.queues.given_back == [("b/0", "aa"), ("b/0", "bb")]
    assert scene.progress().waiting == 0


def test_a_new_coordinator_continues_with_the_held_messages(scene, tmp_path):
    scene.report(held=HELD, failed={"orders": "com.microsoft:entity-disabled"})
    scene.tick()
    again = Scene(tmp_path)
    again.coordinator.start()
    again.coordinator.close()
    assert again.state.blocked().blocked == {"orders": None}
    again.runtime.now += 35
    again.tick()
    assert again.queues.renewed == ["bb"]  # the other was given back as a probe
    assert again.queues.given_back == [("b/0", "aa")]


def test_held_messages_are_recorded_before_their_report_is_removed(scene):
    scene.report(held=HELD, failed={"orders": "com.microsoft:entity-disabled"})
    scene.tick()
    later = HeldMessage("b/0", "cc", 3, "orders", 1060.0)
    scene.report(held=(later,))
    scene.plan(0)  # and then the driver is killed
    assert later in scene.state.held().held


def test_a_stop_returns_everything_newest_first(scene):
    scene.report(held=HELD, failed={"orders": "x"})
    scene.state.ask_to_stop()
    scene.tick()
    assert scene.queues.given_back == [("b/0", "bb"), ("b/0", "aa")]
    assert scene.state.progress().is_released


def test_messages_held_for_the_primary_are_returned_before_reading_resumes(scene):
    scene.bell.ringing = {"b/0"}
    scene.report(
        held=(HeldMessage("b/0", "aa", 1, "*", 1060.0),), failed={"*": "amqp:connection:forced"}
    )
    assert scene.plan(0) == ()
    assert scene.queues.given_back == []
    scene.runtime.now += 2.0  # the primary's time is over, and no tick came yet
    assert scene.plan(0)
    assert scene.queues.given_back == [("b/0", "aa")]


def test_a_busy_primary_lowers_the_rate_and_the_progress_says_so(tmp_path):
    scene = Scene(tmp_path, ceiling=600.0)
    scene.bell.ringing = {"b/0"}
    rates = []
    for epoch in range(5):
        granted = sum(grant.messages for grant in scene.plan(epoch))
        rates.append(round(scene.state.blocked().sending.rate))
        scene.read("b/0", granted, more=True)
        scene.runtime.now += 2
    assert rates == [100, 169, 286, 483, 600]  # slow start, up to the ceiling
    share = scene.state.blocked().sending.busy(scene.runtime.now)
    scene.report(forwarded=600, busy=3, sending=share)
    scene.coordinator.tick()  # while the task goes on
    progress = scene.progress()
    assert (progress.allowed_rate, progress.throttled_by) == (pytest.approx(480 * 0.92), "primary")
    assert progress.problem is None
    scene.report(sending=share.used(5.0), has_ended=True)
    scene.plan(5)
    sending = scene.state.blocked().sending
    assert 480 < sending.rate < 490
    assert scene.coordinator.pace(1).rate > sending.rate  # sending never waits for reading
    scene.runtime.now += 60
    assert scene.progress().throttled_by is None


def test_a_busy_secondary_lowers_the_rate_too(tmp_path):
    scene = Scene(tmp_path, ceiling=100.0)
    scene.bell.ringing = {"b/0"}
    scene.plan(0)
    scene.runtime.now += 1
    scene.report(read={"b/0": QueueRead(90, 900, has_more=True, busy=1)})
    assert scene.planned(1) == ["b/0"]
    assert scene.coordinator.pace(1).rate == pytest.approx(80)
    assert scene.progress().throttled_by == "secondary"


def test_no_more_is_read_than_can_be_sent_within_the_locks(tmp_path):
    scene = Scene(tmp_path, ceiling=100.0)
    scene.bell.ringing = {"b/0"}
    scene.plan(0)
    scene.report(read={"b/0": QueueRead(100, 1000, has_more=True, lock_seconds=1.5)})
    scene.runtime.now += 1
    assert sum(grant.messages for grant in scene.plan(1)) == 50  # a third of a lock


def test_a_ledger_that_cannot_be_written_stops_reading_until_it_can(tmp_path):
    scene = Scene(tmp_path, operations=FakeOperations("disk full", None))
    scene.bell.ringing = {"b/0"}
    scene.report(stalled="ledger: disk full")
    scene.tick()
    assert scene.progress().problem == "ledger: disk full"
    assert scene.plan(0) == ()
    scene.runtime.now += 3
    scene.tick()
    assert scene.plan(0)


def test_totals_are_added_up_and_operations_counted(scene, tmp_path):
    row = OperationCount("contoso", "send_primary", "orders", "send", 1, 3, 30, 3)
    for _ in range(2):
        scene.report(forwarded=3, size=30, dead_lettered={"Rejected": 1}, operations=(row,))
    scene.tick()
    sent = [one for one in scene.operations.counted if one.stage == "send_primary"]
    assert sent == [row] * 2
    again = Scene(tmp_path)
    assert again.progress().forwarded == 6
    assert again.progress().dead_lettered == {"Rejected": 2}


def test_queues_are_empty_when_no_message_is_left_not_even_a_locked_one(tmp_path):
    scene = Scene(tmp_path, until_empty=True)
    scene.queues.empty = False
    scene.tick()
    scene.runtime.now += 3
    scene.tick()
    assert not scene.progress().is_empty
    assert scene.planned(0) == ["b/0"]  # another process may have returned what it had locked
    scene.read("b/0", 0, more=False)
    scene.queues.empty = True
    scene.tick()
    scene.runtime.now += 3
    scene.tick()
    assert scene.progress().is_empty


def test_a_backlog_in_an_unknown_state_is_not_empty(tmp_path):
    scene = Scene(tmp_path, until_empty=True)
    scene.queues.empty = None  # unknown
    scene.tick()
    for _ in range(3):
        scene.runtime.now += 3
        scene.tick()
        assert not scene.progress().is_empty
    scene.queues.empty = True
    scene.runtime.now += 3
    scene.tick()
    assert scene.progress().is_empty


def test_a_replayed_epoch_reads_only_queues_that_were_read_in_it(scene):
    Journal(scene.state.path).open_page(7, "b/1").close()
    assert {grant.queue for grant in scene.coordinator.grants(7)} == {"b/1"}


def test_the_tasks_of_a_replayed_epoch_share_and_adapt_the_rate_of_sending(tmp_path):
    scene = Scene(tmp_path, ceiling=1000.0, max_tasks=2)
    for queue in ("b/0", "b/1"):
        Journal(scene.state.path).open_page(7, queue).close()
    assert len(scene.coordinator.grants(7)) == 2
    share = scene.state.blocked().sending
    assert share.rate == 50.0
    scene.report(sending=replace(share, rate=150.0))
    assert scene.progress().allowed_rate == 300.0
    for _ in range(2):
        scene.report(sending=replace(share, rate=150.0), has_ended=True)
    scene.runtime.now += 10
    assert len(scene.plan(7)) == 2
    assert scene.state.blocked().sending.rate == 150.0
    assert scene.progress().allowed_rate == 100.0, "reading is paced again, and begins slowly"


def test_a_new_run_keeps_the_totals_and_forgets_how_the_last_one_ended(tmp_path):
    state = StateDirectory(tmp_path).create()
    state.ask_to_stop()
    ended = ProgressRecord(forwarded=5, is_empty=True, is_drained=True, is_released=True)
    state.write_progress(ended)
    state.begin_run()
    assert not state.is_stopping
    assert state.progress() == ProgressRecord(forwarded=5)


def test_totals_that_cannot_be_read_now_are_neither_empty_nor_overwritten(tmp_path):
    state = StateDirectory(tmp_path).create()
    state.write_progress(ProgressRecord(forwarded=5, is_empty=True))
    (tmp_path / "progress.json").rename(tmp_path / "away")
    (tmp_path / "progress.json").mkdir()  # cannot be read, and exists
    for read in (state.begin_run, state.progress, lambda: state.is_known, lambda: Scene(tmp_path)):
        with pytest.raises(OSError, match="Is a directory"):
            read()
    (tmp_path / "progress.json").rmdir()
    (tmp_path / "away").rename(tmp_path / "progress.json")
    state.begin_run()
    assert state.progress() == ProgressRecord(forwarded=5)


def test_a_secondary_that_hangs_does_not_delay_planning(scene):
    """The lock that planning needs is not held while the secondary is asked."""
    asked, answer = threading.Event(), threading.Event()

    def renew(queue, tokens):
        asked.set()
        assert answer.wait(60)
        return {}

    scene.queues.renew = renew
    scene.bell.ringing = {"b/1"}
    scene.report(held=HELD, failed={"orders": "x"})
    scene.runtime.now += 35
    background = threading.Thread(target=scene.tick)
    background.start()
    try:
        assert asked.wait(60)
        assert "b/1" in scene.planned(0)
    finally:
        answer.set()
        background.join()


@pytest.mark.parametrize(("answer", "given_back"), [({}, HELD), (None, ())])
def test_messages_stay_held_unless_the_queue_says_that_their_locks_are_lost(
    scene, answer, given_back
):
    scene.queues.renew = lambda queue, tokens: dict.fromkeys(tokens) if answer is None else answer
    scene.report(held=HELD, failed={"orders": "x"})
    scene.runtime.now += 35
    scene.tick()  # the oldest message is returned as a probe
    scene.report(delivered=("orders",))
    scene.tick()
    assert {token for _, token in scene.queues.given_back} == {held.token for held in given_back}


def test_messages_that_could_not_be_returned_are_recorded_and_returned_later(scene):
    abandon, scene.queues.abandon = scene.queues.abandon, lambda queue, tokens: None
    scene.report(held=HELD, failed={"orders": "x"})
    scene.tick()
    scene.report(delivered=("orders",))
    scene.tick()
    scene.runtime.now += 10
    scene.tick()
    assert {one.token for one in scene.state.held().held} == {one.token for one in HELD}
    scene.queues.abandon = abandon
    scene.tick()
    assert {token for _, token in scene.queues.given_back} == {one.token for one in HELD}


def test_only_messages_that_were_still_locked_are_counted_as_returned(scene):
    scene.queues.lost = 1
    scene.report(held=HELD, failed={"orders": "x"})
    scene.tick()
    scene.report(forwarded=1, delivered=("orders",))
    scene.tick()
    assert len(scene.queues.given_back) == 2
    counted = [one.messages for one in scene.operations.counted if one.operation == "abandoned"]
    assert counted == [1]


def test_a_queue_is_not_read_while_its_messages_are_being_returned(scene):
    planned = []

    def abandon(queue, tokens):
        planned.append(scene.planned(0))
        return len(tokens)

    scene.queues.abandon = abandon
    scene.bell.ringing = {"b/0", "b/1"}
    scene.report(held=HELD, failed={"orders": "x"})
    scene.tick()
    scene.runtime.now += 10
    scene.tick()
    assert planned == [["b/1"]]
    assert set(scene.planned(0)) == {"b/0", "b/1"}


def test_a_failure_names_the_step_that_failed_and_the_others_go_on(scene):
    def renew(queue, tokens):
        raise RuntimeError("not now")

    scene.queues.renew = renew
    scene.report(held=HELD, failed={"orders": "x"}, forwarded=2)
    scene.runtime.now += 35
    scene.report(forwarded=1)
    progress = scene.progress()
    assert progress.problem == "secondary: renewing locks: not now"
    assert progress.forwarded == 3
    scene.queues.renew = lambda queue, tokens: {}
    assert scene.progress().problem is None


@pytest.mark.parametrize("method", ["write_held", "remove"])
def test_a_report_counts_once_although_the_state_cannot_be_written(scene, monkeypatch, method):
    def fail(argument):
        raise OSError("the disk is full")

    scene.report(held=HELD, failed={"orders": "x"}, forwarded=2)
    with monkeypatch.context() as patch:
        patch.setattr(scene.state, method, fail)
        scene.tick()
        assert scene.state.has_reports()
    assert scene.progress().forwarded == 2
    assert not scene.state.has_reports()


def test_a_report_without_content_is_removed(scene, tmp_path):
    (tmp_path / "results" / "lost.json").touch()  # as after a power failure
    scene.report(forwarded=2)
    assert scene.progress().forwarded == 2
    assert not scene.state.has_reports()


def test_a_primary_that_can_be_reached_again_gets_a_message_without_a_fixed_wait(scene):
    reachable = []
    probe = PrimaryProbe(scene.runtime, scene.state, lambda: reachable.append(1) or is_back)
    is_back = False
    scene.bell.ringing = {"b/0"}
    probe.probe()
    assert reachable == []  # nobody waits for it
    for epoch in range(6):
        scene.report(failed={"*": "amqp:connection:forced"})
        scene.tick()
        assert scene.plan(epoch) == ()
        probe.probe()
        scene.runtime.now = max(scene.runtime.now, scene.state.blocked().primary_until)
    scene.report(failed={"*": "amqp:connection:forced"})
    scene.tick()
    assert scene.state.blocked().primary_until >= scene.runtime.now + 30
    scene.runtime.now += 1
    is_back = True
    probe.probe()
    assert [grant.messages for grant in scene.plan(7)] == [1]


def test_a_credential_that_raises_does_not_stop_the_probe(scene):
    def raises():
        raise RuntimeError("no token")

    probe = PrimaryProbe(scene.runtime, scene.state, raises)
    scene.report(failed={"*": "amqp:connection:forced"})
    scene.tick()
    probe.probe()
    assert scene.state.reachable_at() == 0


def test_a_credential_that_fails_is_asked_less_often_than_a_primary_that_is_down(
    scene, monkeypatch
):
    waits, has_ended = [], threading.Event()
    results = [RuntimeError("no token"), RuntimeError("no token"), False]

    class Stop:
        def wait(self, seconds):
            waits.append(seconds)
            if not results:
                has_ended.set()
            return not results

    def is_reachable():
        if isinstance(results[0], Exception):
            raise results.pop(0)
        return results.pop(0)

    monkeypatch.setattr(scene.runtime, "event", Stop, raising=False)
    probe = PrimaryProbe(scene.runtime, scene.state, is_reachable)
    scene.report(failed={"*": "amqp:connection:forced"})
    scene.tick()
    probe.start()
    assert has_ended.wait(60)
    assert waits == [0.2, 2.0, 2.0, 0.2]


@pytest.mark.parametrize("method", ["blocked", "write_reachable"])
def test_a_state_directory_that_fails_does_not_stop_the_probe(scene, monkeypatch, method):
    def fail(*args):
        has_failed.set()
        raise OSError("the share is gone")

    scene.report(failed={"*": "amqp:connection:forced"})
    scene.tick()
    has_failed, is_probed = threading.Event(), threading.Event()
    probe = PrimaryProbe(scene.runtime, scene.state, lambda: is_probed.set() or True)
    with monkeypatch.context() as patch:
        patch.setattr(scene.state, method, fail)
        probe.start()
        assert has_failed.wait(10)
    is_probed.clear()
    assert is_probed.wait(10)
    probe.close()


def test_a_queue_is_read_again_after_the_state_could_not_be_written_before_a_return(
    scene, monkeypatch
):
    def fail(record):
        raise OSError("the disk is full")

    scene.report(held=HELD, failed={"orders": "x"}, read={"b/0": QueueRead(2, 20, True)})
    scene.tick()
    scene.runtime.now += 10  # the probe is due
    with monkeypatch.context() as patch:
        patch.setattr(scene.state, "write_blocked", fail)
        scene.tick()
    assert scene.queues.given_back == []
    scene.queues.found = Inspection(True)
    assert scene.plan(0) == ()  # uncertain: messages may still be locked
    scene.runtime.now += 5
    assert scene.planned_after_tick(0) == ["b/0"]
    assert scene.queues.given_back == [("b/0", "aa")]


def test_blocked_destinations_are_written_again_after_the_totals_could_not_be_written(
    scene, monkeypatch
):
    def fail(record):
        raise OSError("the disk is full")

    scene.tick()
    with monkeypatch.context() as patch:
        patch.setattr(scene.state, "write_progress", fail)
        scene.report(held=HELD, failed={"orders": "amqp:not-found"}, forwarded=1)
        scene.tick()
    assert scene.state.blocked().blocked == {"orders": None}
    scene.report(delivered=("orders",))
    scene.tick()
    assert scene.state.blocked().blocked == {}


def test_the_record_of_held_messages_is_written_again_after_a_failure(scene, monkeypatch):
    def fail(record):
        raise OSError("the disk is full")

    scene.report(held=HELD, failed={"orders": "amqp:not-found"})
    scene.tick()
    scene.runtime.now += 6
    with monkeypatch.context() as patch:
        patch.setattr(scene.state, "write_held", fail)
        scene.report(delivered=("orders",))
        scene.tick()
    assert scene.state.held().held == HELD[::-1]
    scene.runtime.now += 6
    scene.tick()
    assert scene.state.held().held == ()
