"""Deferred messages that are not recorded are found again, and no number is forgotten."""

import pytest

from pairbus.amqp.codec import encode
from pairbus.amqp.types import Int, Long, Symbol
from pairbus.client.received import Received
from pairbus.syphon.deferred import DeferredNumbers
from pairbus.syphon.records import QueueRead
from tests.syphon.conftest import backlog_message
from tests.syphon.fakes import HELD, Scene
from tests.syphon.test_deferral import MISSING, deferring, fetched, wait_in_vain


def browsed(number, *, state=1, path="orders"):
    """A message as a peek shows it."""
    annotations = {Symbol("x-opt-sequence-number"): Long(number)}
    if state:
        annotations[Symbol("x-opt-message-state")] = Int(state)
    return Received(b"\x00\x53\x72" + encode(annotations) + backlog_message(path, number), b"")


@pytest.fixture
def new(tmp_path):
    """A coordinator with a new state, and a queue whose messages are deferred."""
    scene = Scene(tmp_path, is_new=True)
    scene.queues.pages["b/0"] = [browsed(number) for number in range(1, 6001)]
    scene.bell.ringing = {"b/0", "b/1"}
    return scene


def search_to_the_end(scene):
    for _ in range(10):
        scene.tick()


def test_a_queue_is_not_read_before_the_deferred_messages_in_it_are_found(new):
    assert new.plan(0) == ()
    new.tick()
    assert new.planned(0) == ["b/1"]  # b/0 is being searched
    search_to_the_end(new)
    assert [(grant.queue, grant.numbers) for grant in new.plan(1)] == [("b/1", ()), ("b/0", ())]
    assert new.state.blocked().deferring == ("orders",)  # newer messages wait behind them
    assert new.progress().waiting_counts == {"orders": 6000}


def test_a_query_that_ends_when_there_is_nothing_to_read_does_not_wait_for_the_search(new):
    new.coordinator.empty_once()
    assert new.planned(0) == ["b/0", "b/1"]


def test_a_search_goes_on_after_a_restart(new, tmp_path):
    assert 0 < new.progress().waiting < 6000
    again = Scene(tmp_path)
    again.queues.pages = new.queues.pages
    again.coordinator.start()
    again.coordinator.close()
    search_to_the_end(again)
    assert again.progress().waiting_counts == {"orders": 6000}
    assert again.state.unsearched() == {}


def test_a_search_ends_at_messages_that_were_never_handed_out_and_goes_on_behind_them(new):
    new.queues.pages["b/0"] = [browsed(n, state=0) for n in range(1, 400)] + [browsed(400)]
    new.tick()
    assert new.state.unsearched() == {"b/0": 0}
    assert new.planned(0) == ["b/0", "b/1"]
    new.queues.pages["b/0"] = [browsed(400)]  # the others were delivered
    new.read("b/0", 399, more=False)
    assert new.progress().waiting_counts == {"orders": 1}
    assert new.state.unsearched() == {}


def test_all_queues_are_searched_if_a_page_of_numbers_has_no_content(tmp_path):
    scene = deferring(tmp_path)
    scene.runtime.now += 10
    scene.tick()  # saves which messages are held
    [name] = scene.state.deferred_pages.names()
    (scene.state.path / "deferred" / name).write_bytes(b"")  # as after a power failure
    again = Scene(tmp_path)
    again.queues.pages["b/0"] = [browsed(1), browsed(2)]
    again.coordinator.start()
    again.coordinator.close()
    assert again.progress().waiting_counts == {"orders": 2}
    assert name not in again.state.deferred_pages.names()


def test_messages_are_not_asked_for_while_they_are_being_deferred(tmp_path):
    scene = Scene(tmp_path)
    asked = []

    def defer(queue, tokens):
        scene.runtime.now += 600  # the secondary is slow
        scene.plan(0)
        scene.read("b/0", 0, more=False)
        asked.append(fetched(scene, 1))
        return True

    scene.queues.defer = defer
    scene.report(held=HELD, failed=MISSING)
    wait_in_vain(scene, 121)
    assert asked == [{}]
    wait_in_vain(scene, 300)
    assert fetched(scene, 2) == {"b/0": (1,)}


def test_messages_stay_held_if_their_numbers_cannot_be_recorded(tmp_path):
    scene = Scene(tmp_path)
    scene.report(held=HELD, failed=MISSING)
    folder = scene.state.path / "deferred"
    folder.write_bytes(b"")  # in the way of a folder
    wait_in_vain(scene, 125)
    assert scene.queues.deferred == []
    assert scene.progress().waiting_counts == {"orders": 2}
    assert "bb" in scene.queues.renewed
    folder.unlink()
    wait_in_vain(scene, 2)
    assert sorted(scene.queues.deferred) == [("b/0", "aa"), ("b/0", "bb")]


def test_a_message_that_is_deferred_after_its_number_was_given_up_is_found(tmp_path):
    """A task of a dead driver recorded the message, and deferred it much later."""
    scene = Scene(tmp_path)
    scene.report(deferred=(DeferredNumbers("orders", "b/0", (7,)),))
    assert fetched(scene, 0) == {"b/0": (7,)}
    scene.report(read={"b/0": QueueRead(has_more=True)}, undeferred={"b/0": (7,)}, locked=("b/0",))
    assert scene.plan(1) == ()
    assert scene.progress().waiting == 0
    scene.queues.pages["b/0"] = [browsed(7)]
    scene.read("b/0", 0, more=False)
    assert scene.progress().waiting_counts == {"orders": 1}


def test_a_destination_that_came_back_is_not_remembered_as_missing(tmp_path):
    scene = deferring(tmp_path)
    scene.runtime.now += 10
    scene.tick()
    assert scene.state.held().missing_since
    scene.report(forwarded=1, delivered=("orders",), undeferred={"b/0": (1,)})
    scene.runtime.now += 10
    scene.tick()
    assert scene.state.held().missing_since == {}


def test_a_report_that_cannot_be_applied_does_not_count_the_others_twice(tmp_path):
    scene = Scene(tmp_path)
    for _ in range(3):
        scene.report(forwarded=1)
    (scene.state.path / "deferred").write_bytes(b"")
    scene.report(forwarded=1, deferred=(DeferredNumbers("orders", "b/0", (7,)),))
    assert scene.progress().forwarded <= 3
    (scene.state.path / "deferred").unlink()
    assert scene.progress().forwarded == 4
