"""Messages that wait for long are deferred, and received by their numbers when they can be sent."""

import threading
import time

import pytest

from pairbus.client.errors import OperationTimeoutError
from pairbus.client.received import Received
from pairbus.envelope.encoded import open_message
from pairbus.monitoring import dead_letters
from pairbus.monitoring.endpoints import Endpoint
from pairbus.runtime.files import LocalFiles
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.fetching import NUMBERS, fetch
from pairbus.syphon.deferred import DeferredNumbers
from pairbus.syphon.journal import Journal
from pairbus.syphon.orphaned_locks import Inspection
from pairbus.syphon.records import (
    BlockedRecord,
    HeldMessage,
    QueueRead,
    TaskReport,
)
from tests.syphon.conftest import PREFIX, backlog_message
from tests.syphon.drains import RunningDrain
from tests.syphon.fakes import HELD, Scene
from tests.syphon.test_deliverer import Task
from tests.syphon.test_journal import write_page

QUEUE = f"{PREFIX}/0"
MISSING = {"orders": "amqp:not-found"}


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def wait_in_vain(scene, seconds):
    """Let time pass; each probe is refused."""
    for _ in range(int(seconds)):
        returned = len(scene.queues.given_back)
        scene.runtime.now += 1
        scene.tick()
        for _, token in scene.queues.given_back[returned:]:
            again = [one for one in HELD if one.token == token]
            scene.report(held=tuple(again), failed=MISSING)


def deferring(path, **changes):
    """A coordinator that has deferred both messages for `orders`."""
    scene = Scene(path, **changes)
    scene.report(held=HELD, failed=MISSING)
    wait_in_vain(scene, 121)
    assert sorted(scene.queues.deferred) == [("b/0", "aa"), ("b/0", "bb")]
    scene.plan(0)
    scene.read("b/0", 0, more=False)
    return scene


def fetched(scene, epoch):
    return {grant.queue: grant.numbers for grant in scene.plan(epoch) if grant.numbers}


@pytest.mark.slow
def test_no_file_is_used_under_the_lock_that_planning_needs(tmp_path, monkeypatch):
    """In an object store each of these calls is a request."""
    scene = Scene(tmp_path, until_empty=True)
    free, busy = set(), set()

    def watched(name, method):
        def call(*args, **kwargs):
            planning = threading.Thread(target=scene.coordinator.pace, args=(1,), daemon=True)
            planning.start()
            planning.join(timeout=2)
            (busy if planning.is_alive() else free).add(name)
            return method(*args, **kwargs)

        return call

    for name in ("read", "write", "list", "info", "remove", "open_append"):
        monkeypatch.setattr(LocalFiles, name, watched(name, getattr(LocalFiles, name)))
    # A new coordinator asks which queues were read, searches the journal, and checks a queue …
    scene.coordinator.grants(3)
    write_page(Journal(tmp_path), queue="b/1", requests_again=True).close()
    Journal(tmp_path).take_over(3, "b/1")
    scene.bell.ringing = {"b/1"}
    assert "b/1" not in scene.planned(3)
    scene.queues.found = Inspection(True, lock_seconds=60.0, size=100)
    # … defers messages, receives them, and learns that they were sent …
    scene.report(held=HELD, failed=MISSING)
    wait_in_vain(scene, 121)
    assert scene.queues.looked
    assert len(scene.queues.deferred) == 2
    scene.runtime.now += 60
    assert fetched(scene, 4) == {"b/0": (1,)}
    scene.report(delivered=("orders",), undeferred={"b/0": (1,)})
    scene.read("b/0", 1, more=False)
    assert fetched(scene, 5) == {"b/0": (2,)}
    # … and is asked to end.
    scene.state.ask_to_stop()
    scene.tick()
    assert busy == set()
    assert free == {"read", "write", "list", "info", "remove", "open_append"}


def test_a_message_is_deferred_when_it_has_waited_for_two_locks(scene):
    scene.report(held=HELD, failed=MISSING)
    wait_in_vain(scene, 119)
    assert scene.queues.deferred == []
    wait_in_vain(scene, 2)
    assert sorted(scene.queues.deferred) == [("b/0", "aa"), ("b/0", "bb")]
    renewed = list(scene.queues.renewed)
    wait_in_vain(scene, 60)
    assert scene.queues.renewed == renewed
    progress = scene.progress()
    assert progress.waiting == 2
    assert progress.waiting_counts == {"orders": 2}
    assert progress.waiting_for == MISSING
    assert scene.state.blocked().deferring == ("orders",)


def test_the_numbers_are_recorded_before_the_messages_are_deferred(scene):
    recorded = []

    def defer(queue, tokens):
        recorded.append(
            [scene.state.deferred_pages.read(n) for n in scene.state.deferred_pages.names()]
        )
        return True

    scene.queues.defer = defer
    scene.report(held=HELD, failed=MISSING)
    wait_in_vain(scene, 121)
    assert recorded == [[DeferredNumbers("orders", "b/0", (1, 2))]]


def test_a_failure_to_defer_messages_of_one_queue_leaves_those_of_another_held(tmp_path):
    scene = Scene(tmp_path)
    defer, broken = scene.queues.defer, ["b/0"]

    def fail(queue, tokens):
        if queue in broken:
            broken.remove(queue)
            raise RuntimeError("not now")
        return defer(queue, tokens)

    scene.queues.defer = fail
    other = HeldMessage("b/1", "cc", 3, "orders", 1060.0)
    scene.report(held=(*HELD, other), failed=MISSING)
    wait_in_vain(scene, 121)
    assert broken == []
    wait_in_vain(scene, 1)
    assert scene.queues.deferred == [("b/1", "cc")]
    wait_in_vain(scene, 300)
    scene.plan(0)
    scene.report(delivered=("orders",))
    assert fetched(scene, 1)["b/1"] == (3,)


def test_too_many_held_messages_are_deferred_immediately(scene):
    many = [HeldMessage("b/0", f"{n:032x}", n, "orders", 1060.0) for n in range(20_001)]
    scene.report(held=tuple(many), failed=MISSING)
    scene.tick()
    assert len(scene.queues.deferred) == 20_001
    assert scene.progress().waiting == 20_001


def test_the_oldest_deferred_message_is_the_probe_and_the_others_follow_it(tmp_path):
    scene = deferring(tmp_path)
    wait_in_vain(scene, 300)
    assert fetched(scene, 1) == {"b/0": (1,)}
    assert scene.state.blocked().fetched == {"b/0": (1, 1)}
    scene.report(failed=MISSING)  # refused: it waits again
    assert fetched(scene, 2) == {}
    wait_in_vain(scene, 300)
    assert fetched(scene, 3) == {"b/0": (1,)}
    scene.report(forwarded=1, delivered=("orders",), undeferred={"b/0": (1,)})
    assert fetched(scene, 4) == {"b/0": (2,)}
    assert "orders" in scene.state.blocked().blocked  # newer messages must not overtake
    scene.report(forwarded=1, delivered=("orders",), undeferred={"b/0": (2,)})
    assert fetched(scene, 5) == {}
    assert scene.state.blocked().blocked == {}
    assert scene.progress().waiting == 0


def test_deferred_messages_and_others_of_a_queue_are_read_in_turn(tmp_path):
    scene = deferring(tmp_path)
    scene.report(deferred=(), delivered=("orders",))
    scene.bell.ringing = {"b/0"}
    kinds = []
    for epoch in range(1, 5):
        kinds.append([bool(grant.numbers) for grant in scene.plan(epoch)])
        scene.read("b/0", 10, more=True)
    # The queue was read just before, so that what is older than the deferred messages is known.
    assert kinds == [[True], [False], [True], [False]]


def test_a_new_coordinator_knows_the_deferred_messages(tmp_path):
    deferring(tmp_path)
    again = Scene(tmp_path)
    again.coordinator.start()
    again.coordinator.close()
    assert again.state.blocked().deferring == ("orders",)
    assert again.progress().waiting_counts == {"orders": 2}
    again.runtime.now += 20
    assert fetched(again, 1) == {"b/0": (1,)}
    assert again.queues.browsed == []  # nothing was lost, so nothing is searched


def test_messages_held_by_a_coordinator_that_died_while_it_deferred_them_are_deferred(tmp_path):
    scene = Scene(tmp_path)

    def die(queue, tokens):
        raise KeyboardInterrupt

    scene.queues.defer = die
    scene.report(held=HELD, failed=MISSING)
    with pytest.raises(KeyboardInterrupt):
        wait_in_vain(scene, 121)
    again = Scene(tmp_path)
    again.coordinator.start()
    again.coordinator.close()
    again.tick()
    assert sorted(again.queues.deferred) == [("b/0", "aa"), ("b/0", "bb")]
    assert again.progress().waiting_counts == {"orders": 2}


def test_after_a_day_the_deferred_messages_are_received_to_be_dead_lettered(tmp_path):
    scene = deferring(tmp_path)
    scene.runtime.now += 86_400
    scene.tick()
    assert scene.state.blocked().expired == ("orders",)
    assert fetched(scene, 1) == {"b/0": (1, 2)}
    scene.report(dead_lettered={"DestinationNotFound": 2}, undeferred={"b/0": (1, 2)})
    assert fetched(scene, 2) == {}
    assert scene.state.blocked().blocked == {}


def test_an_uncertain_queue_with_deferred_messages_is_checked_and_then_read(tmp_path):
    scene = deferring(tmp_path)
    scene.report(delivered=("orders",), uncertain=("b/0",))
    assert fetched(scene, 1) == {}
    assert "b/0" not in scene.bell.listening  # a poll would prevent the check
    scene.queues.found = Inspection(True, lock_seconds=60.0)
    scene.runtime.now += 2
    scene.tick()
    scene.read("b/0", 0, more=False)
    assert fetched(scene, 2) == {"b/0": (1, 2)}


def test_queues_with_deferred_messages_are_not_empty(tmp_path):
    scene = deferring(tmp_path, until_empty=True)
    scene.queues.empty = True  # as if a deferred message could not be browsed
    for _ in range(10):
        scene.runtime.now += 5
        scene.tick()
    assert not scene.state.progress().is_empty


def test_deferred_messages_that_somebody_locked_are_asked_for_again_later(tmp_path):
    scene = deferring(tmp_path)
    scene.report(delivered=("orders",))
    assert fetched(scene, 1) == {"b/0": (1, 2)}
    scene.report(read={"b/0": QueueRead(has_more=True)}, locked=("b/0",))
    assert fetched(scene, 2) == {}
    scene.runtime.now += 10
    assert fetched(scene, 3) == {"b/0": (1, 2)}


# -- on real brokers


def until(condition, seconds=60.0):
    """Wait for a condition; the drain goes on in its thread."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def drain_of(pair, folder, **changes):
    return RunningDrain(pair.primary, pair.secondary, [QUEUE], folder, **changes)


def states(pair, queue=QUEUE):
    """Number and state of each message in a backlog queue."""
    found = pair.connect(pair.secondary).management(queue).peek(0, 250)
    return {one.message.application_properties["n"]: one.facts.get("state") or 0 for one in found}


def numbers_of(pair, queue=QUEUE):
    return [one.sequence_number for one in pair.connect(pair.secondary).management(queue).peek(0)]


def defer_all(pair, count):
    """Defer what the backlog queue has, without a syphon; return the sequence numbers."""
    receiver = pair.connect(pair.secondary).receiver(QUEUE)
    got = receiver.receive_now(count)
    assert len(got) == count
    receiver.settle(got, "defered")
    receiver.close()
    return [one.sequence_number for one in got]


@pytest.fixture
def task(pair, tmp_path):
    made = Task(pair, tmp_path)
    yield made
    assert numbers_of(pair) == []  # for the next test


@pytest.mark.slow
def test_messages_for_a_missing_destination_are_deferred_and_arrive_in_order(pair, tmp_path):
    pair.primary.create_queue("present")
    pair.fill([backlog_message(("absent", "present")[n % 2], n) for n in range(40)])
    with drain_of(pair, tmp_path, most_locks=0) as drain:
        assert pair.numbers("present", 20) == list(range(1, 40, 2))  # the others go on
        until(lambda: states(pair) == dict.fromkeys(range(0, 40, 2), 1))
        until(lambda: drain.state.progress().waiting_for.get("absent") == "amqp:not-found")
        until(lambda: drain.state.progress().waiting_counts == {"absent": 20})
        pair.fill([backlog_message("absent", n) for n in range(40, 60)])
        until(lambda: drain.state.progress().waiting_counts == {"absent": 40})
        pair.primary.create_queue("absent")
        pair.fill([backlog_message("absent", n) for n in range(60, 80)])
        assert pair.numbers("absent", 60) == [*range(0, 40, 2), *range(40, 80)]
        until(lambda: drain.state.progress().waiting == 0 and states(pair) == {})
        pair.fill([backlog_message("absent", 80)])  # and it is open again
        assert pair.numbers("absent", 1) == [80]


@pytest.mark.slow
def test_deferred_messages_are_dead_lettered_in_time_and_can_be_resubmitted(pair, tmp_path):
    pair.fill([backlog_message("never", n) for n in range(5)])
    dead = pair.connect(pair.secondary).management(f"{QUEUE}/$DeadLetterQueue")
    with drain_of(pair, tmp_path, most_locks=0):
        until(lambda: states(pair) == dict.fromkeys(range(5), 1))
    with drain_of(pair, tmp_path, most_locks=0, missing_timeout=1) as drain:
        until(lambda: len(dead.peek(0)) == 5)
        letters = dead_letters.find(Endpoint(pair.secondary.connection_string), [QUEUE])
        assert {(one.destination, one.reason) for one in letters} == {
            ("never", "DestinationNotFound")
        }
        pair.fill([backlog_message("never", 5)])  # it was waited for, so this one is not
        until(lambda: len(dead.peek(0)) == 6)
        pair.primary.create_queue("never")
        letters = dead_letters.find(Endpoint(pair.secondary.connection_string), [QUEUE])
        numbers = [one.sequence_number for one in letters]
        dead_letters.resubmit(Endpoint(pair.secondary.connection_string), QUEUE, numbers)
        assert pair.numbers("never", 6) == list(range(6))
        until(lambda: drain.state.progress().waiting == 0 and states(pair) == {})


@pytest.mark.slow
def test_deferred_messages_are_found_again_when_the_state_was_lost(pair, tmp_path):
    pair.fill([backlog_message("lost", n) for n in range(5)])
    with drain_of(pair, tmp_path / "a", most_locks=0):
        until(lambda: states(pair) == dict.fromkeys(range(5), 1))
    pair.primary.create_queue("lost")
    with drain_of(pair, tmp_path / "b"):
        assert pair.numbers("lost", 5) == list(range(5))
        until(lambda: states(pair) == {})


@pytest.mark.slow
def test_a_number_that_is_recorded_and_not_deferred_is_read_in_the_usual_way(pair, tmp_path):
    """The syphon died after it had recorded the messages, and before they were deferred."""
    pair.primary.create_queue("recorded")
    pair.fill([backlog_message("recorded", n) for n in range(6)])
    numbers = numbers_of(pair)
    with drain_of(pair, tmp_path) as drain:
        drain.state.report(TaskReport(deferred=(DeferredNumbers("recorded", QUEUE, numbers),)))
        assert pair.numbers("recorded", 6) == list(range(6))
        until(lambda: drain.state.progress().waiting == 0 and states(pair) == {})


@pytest.mark.slow
def test_a_task_records_the_numbers_before_it_defers(task, pair):
    class Dies(BacklogQueues):
        def settle(self, *args):
            raise KeyboardInterrupt

    pair.fill([backlog_message("orders", n) for n in range(3)])
    blocked = BlockedRecord({"orders": None}, deferring=("orders",))
    numbers = tuple(numbers_of(pair))
    with pytest.raises(KeyboardInterrupt):
        task.run(blocked=blocked, settling=Dies(task.runtime, None))
    assert task.reports[0].deferred == (DeferredNumbers("orders", QUEUE, numbers),)
    task.run(read=task.read(), blocked=blocked)  # the retry returns what was locked, and reads it
    assert states(pair) == dict.fromkeys(range(3), 1)
    complete(task, numbers)


@pytest.mark.slow
def test_a_deferred_message_that_was_sent_and_not_settled_is_sent_again(task, pair):
    class Dies(BacklogQueues):
        def settle(self, *args):
            raise KeyboardInterrupt

    pair.primary.create_queue("again")
    pair.fill([backlog_message("again", n) for n in range(3)])
    numbers = tuple(defer_all(pair, 3))
    blocked = BlockedRecord({"again": None}, fetched={QUEUE: (numbers[0], numbers[-1])})
    with pytest.raises(KeyboardInterrupt):
        task.run(
            read=task.read(numbers=numbers), blocked=blocked, settling=Dies(task.runtime, None)
        )
    assert len(task.receipts) == 1  # the receipt comes before the settlement
    task.run(read=task.read(numbers=numbers), blocked=blocked)
    assert task.reports[-1].undeferred == {QUEUE: numbers}
    assert pair.numbers("again", 6) == [0, 1, 2, 0, 1, 2]


@pytest.mark.slow
def test_a_deferred_message_whose_lock_was_lost_is_not_reported_as_settled(task, pair):
    """A retry returned it meanwhile: it is in the queue, and only the record knows of it."""
    pair.primary.create_queue("slow")
    pair.fill([backlog_message("slow", n) for n in range(3)])
    numbers = tuple(defer_all(pair, 3))
    blocked = BlockedRecord({"slow": None}, fetched={QUEUE: (numbers[0], numbers[-1])})
    slow = list(task.read(numbers=numbers))
    retry = list(task.read(numbers=numbers))  # returns the messages first
    task.run(read=slow, blocked=blocked)
    assert [report.undeferred for report in task.reports] == [{}]
    assert task.reports[-1].forwarded == 3
    task.run(read=retry, blocked=blocked)
    assert task.reports[-1].undeferred == {QUEUE: numbers}


@pytest.mark.slow
def test_deferred_messages_that_cannot_be_sent_are_deferred_again(task, pair):
    pair.fill([backlog_message("nowhere", n) for n in range(3)])
    numbers = tuple(defer_all(pair, 3))
    blocked = BlockedRecord(
        {"nowhere": None}, deferring=("nowhere",), fetched={QUEUE: (numbers[0], numbers[-1])}
    )
    task.run(read=task.read(numbers=numbers), blocked=blocked, waits_for_missing=True)
    assert task.held() == []
    assert [report.undeferred for report in task.reports] == [{}]
    complete(task, numbers)  # they are not locked


@pytest.mark.slow
def test_what_is_gone_is_left_out_and_nothing_overtakes_what_is_locked(task, pair):
    pair.fill([backlog_message("orders", n) for n in range(120)])
    numbers = defer_all(pair, 120)
    management = pair.connect(pair.secondary).management(QUEUE)
    gone, locked = numbers[:10], numbers[80]
    management.settle_each([[one.tag for one in management.receive_deferred(gone)]])
    [held] = management.receive_deferred([locked])

    fetched = task.backlog.fetch(QUEUE, numbers)

    assert fetched.undeferred == gone
    assert fetched.is_blocked
    got = [open_message(payload).sequence_number for _, payload in fetched.messages]
    assert got == numbers[10:50]  # up to the request with the locked message
    task.backlog.settle(QUEUE, [token for token, _ in fetched.messages], "completed")
    task.backlog.settle(QUEUE, [held.tag], "completed")
    complete(task, [n for n in numbers[50:] if n != locked])


def test_messages_behind_a_request_without_an_answer_are_returned():
    class Management:
        entity = QUEUE

        def receive_deferred_each(self, groups):
            answers = [([Received(b"", bytes([group[0]]))], None) for group in groups]
            answers[1] = ([], OperationTimeoutError("receive-by-sequence-number"))
            return answers

        def peek(self, first, count):
            return []

    returned = []

    def abandon(tokens):
        returned.extend(tokens)
        return True

    fetched = fetch(Management(), abandon, range(1, 3 * NUMBERS + 1))
    assert [token for token, _ in fetched.messages] == [bytes([1])]
    assert fetched.broke_off
    assert returned == [bytes([2 * NUMBERS + 1])]


def complete(task, numbers):
    """Remove deferred messages."""
    fetched = task.backlog.fetch(QUEUE, list(numbers))
    assert len(fetched.messages) == len(numbers)
    assert task.backlog.settle(QUEUE, [token for token, _ in fetched.messages], "completed") == 0
