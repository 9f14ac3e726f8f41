"""Uncertain queues: they are not read while messages may be locked with tokens that nobody has."""

import os

import pytest

from pairbus.syphon.journal import Journal
from pairbus.syphon.orphaned_locks import Inspection, OrphanedLocks
from tests.syphon.fakes import HELD, Scene
from tests.syphon.test_journal import TOKENS, write_page


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def test_locks_may_last_from_the_first_answer_of_a_queue_that_could_not_be_reached(scene, tmp_path):
    journal = Journal(tmp_path)
    write_page(journal, requests_again=True).close()
    journal.take_over(3, "b/0")
    scene.bell.ringing = {"b/0"}
    locked, scene.queues.found = scene.queues.found, None
    for _ in range(8):
        assert scene.planned_after_tick(3) == []
        scene.runtime.now += 9
    scene.queues.found = locked  # by a request of the dead reader that was on the way
    assert scene.planned_after_tick(3) == []
    scene.runtime.now += 60
    assert scene.planned_after_tick(3) == []
    scene.runtime.now += 6
    assert scene.planned_after_tick(3) == ["b/0"]


def test_an_answer_from_before_a_queue_was_suspected_again_does_not_shorten_its_wait(tmp_path):
    orphans = OrphanedLocks(Journal(tmp_path))
    locked = Inspection(False, lock_seconds=60.0, size=100, peeks=1)
    found = {"inspection": locked, "has_returned": True, "lock_seconds": None}
    orphans.suspect("b/0", 0.0)
    check = orphans.begin_check("b/0", 2.0)
    orphans.suspect("b/0", 5.0)  # the inspection was answered at 3, and the check ends now
    assert not orphans.end_check(check, 2.0, answered_at=3.0, **found)
    again = orphans.begin_check("b/0", 69.0)
    assert not orphans.end_check(again, 69.0, answered_at=69.0, **found)


def test_an_uncertain_queue_waits_until_its_locks_expire_and_the_others_go_on(scene, tmp_path):
    journal = Journal(tmp_path)
    write_page(journal, requests_again=True).close()
    journal.take_over(3, "b/0")  # by the retry, which did not read it
    scene.bell.ringing = {"b/0", "b/1"}
    granted = scene.planned(3)
    assert granted == ["b/1"]
    assert scene.queues.looked == []  # credit may still be on its way
    scene.read("b/1", 1, more=True)
    scene.runtime.now += 2
    assert scene.planned_after_tick(4) == ["b/1"]
    assert scene.queues.looked == [("b/0", 5, set())]
    assert scene.queues.given_back == [("b/0", token.hex()) for token in reversed(TOKENS)]
    assert scene.progress().uncertain == ("b/0",)
    operations = [(o.stage, o.entity, o.operation) for o in scene.operations.counted]
    assert operations == [
        ("receive_backlog", "b/0", "doorbell"), ("settle", "b/0", "released"),
        ("management", "b/0", "peek"), ("settle", "b/0", "abandoned"),
    ]  # fmt: skip
    # Returned messages hide what another look could see; a new coordinator knows no better.
    again = Scene(tmp_path)
    again.runtime.now, again.bell.ringing = scene.runtime.now, {"b/0"}
    for _ in range(6):
        scene.runtime.now, again.runtime.now = scene.runtime.now + 9, again.runtime.now + 9
        assert scene.planned_after_tick(4) == ["b/1"]
        assert again.planned_after_tick(4) == []
    assert len(scene.queues.looked) == 1
    scene.runtime.now += 11  # the locks may have been taken until the queue was looked at first
    assert set(scene.planned_after_tick(4)) == {"b/0", "b/1"}
    assert scene.progress().uncertain == ()
    assert journal.uncertain(9) == {}


def test_a_journal_that_cannot_be_read_is_searched_again(scene, tmp_path):
    write_page(Journal(tmp_path), requests_again=True).close()
    scene.bell.ringing = {"b/0", "b/1"}
    broken = tmp_path / "journal" / "3" / "b%2F1@x"
    broken.mkdir()  # cannot be read, and exists
    with pytest.raises(OSError, match="Is a directory"):
        scene.plan(3)
    broken.rmdir()
    assert scene.planned(3) == ["b/1"]


def test_a_queue_is_read_again_when_a_look_finds_no_unknown_lock(scene, tmp_path):
    scene.report(held=HELD, failed={"orders": "x"})
    write_page(Journal(tmp_path), requests_again=True).close()
    scene.bell.ringing = {"b/0"}
    assert scene.plan(3) == ()
    scene.runtime.now += 2
    assert scene.planned_after_tick(3) == []
    assert scene.queues.looked == [("b/0", 5, {1, 2})]
    assert scene.queues.given_back == []  # its task was not retried: it has delivered them
    scene.queues.found = None  # cannot be asked
    scene.runtime.now += 5
    assert scene.planned_after_tick(3) == []
    scene.queues.found = Inspection(True)
    scene.runtime.now += 4
    assert scene.planned_after_tick(3) == []  # not yet time
    scene.runtime.now += 1
    assert scene.planned_after_tick(3) == ["b/0"]


def test_a_queue_is_read_again_when_its_reader_was_alive_and_recorded_everything(scene, tmp_path):
    journal = Journal(tmp_path)
    page = write_page(journal, requests_again=True)
    journal.take_over(3, "b/0")
    scene.bell.ringing = {"b/0"}
    scene.plan(3)
    scene.runtime.now += 2
    assert scene.planned_after_tick(3) == []
    late = os.urandom(16)
    page.record([late], 6)
    page.close()
    scene.runtime.now += 5
    assert scene.planned_after_tick(3)
    assert scene.queues.given_back[-1] == ("b/0", late.hex())


def test_a_stop_returns_what_a_dead_reader_had_recorded(scene, tmp_path):
    journal = Journal(tmp_path)
    write_page(journal, requests_again=True).close()
    journal.take_over(3, "b/0")
    scene.state.ask_to_stop()
    scene.plan(3)
    scene.tick()
    scene.tick()
    assert scene.queues.given_back == [("b/0", token.hex()) for token in reversed(TOKENS)]
    assert journal.uncertain(3)["b/0"][0].is_open  # for the next coordinator


@pytest.mark.parametrize("how", ["restart", "bell", "report", "not given back"])
def test_an_event_that_may_leave_a_message_locked_makes_its_queue_uncertain(scene, tmp_path, how):
    if how == "restart":  # a message may have rung when the former one died
        scene.plan(0)
        scene = Scene(tmp_path)
        scene.coordinator.start()
        scene.coordinator.close()
    elif how == "bell":
        scene.bell.broke = {"b/0"}
    elif how == "report":
        scene.report(uncertain=("b/0",))
    else:
        scene.queues.abandon = lambda queue, tokens: None
        scene.report(held=HELD, failed={"orders": "x"})
        scene.tick()
        scene.runtime.now += 10
    scene.tick()
    scene.bell.ringing = {"b/0"}
    assert scene.plan(0) == ()
    scene.queues.found = Inspection(True)
    scene.runtime.now += 2
    assert scene.planned_after_tick(0) == ["b/0"]
    assert scene.queues.looked[0][:2] == ("b/0", 0)
