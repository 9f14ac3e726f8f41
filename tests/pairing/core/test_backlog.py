"""One call's way through the backlog queues, as a table of failures."""

from hypothesis import given
from hypothesis import strategies as st

from pairbus.pairing.core.backlog import CROWD, MAX_WAIT, BacklogCall, Failure
from pairbus.pairing.core.rotation import Rotation

THREE = Rotation(("q/0", "q/1", "q/2"))


def call_of(rotation=THREE, budget=10.0):
    call = BacklogCall(0.0, budget)
    return call, call.pick(rotation, current="q/0", now=0.0, draw=0.0)


def fail(call, path, failure, rotation=THREE, now=0.0):
    return call.note_failure(path, failure, rotation, now=now, draw=0.5)


def test_broken_connection_is_retried_on_the_same_queue_with_back_off():
    call, path = call_of()
    waits = [fail(call, path, Failure.BROKEN) for _ in range(6)]

    assert waits == [0.05, 0.1, 0.2, 0.4, 0.4, 0.4]
    assert call.pick(THREE, current="q/0", now=4.9, draw=0.9) == "q/0"
    assert call.bad_queues("q/0", 5.0) == []


def test_many_calls_that_wait_together_retry_as_often_as_few():
    def waits(others):
        call, path = call_of(budget=30.0)
        return [
            call.note_failure(path, Failure.BROKEN, THREE, now=now, draw=0.5, others=others)
            for now in (0.0, 0.1, 0.3, 0.7, 26.0)
        ]

    assert waits(CROWD) == waits(0) == [0.05, 0.1, 0.2, 0.4, 0.4]
    assert waits(10 * CROWD) == [0.5, 1.0, 2.0, 4.0, 1.0], "four tries are left before the deadline"


def test_of_many_calls_that_wait_together_some_retry_soon():
    def wait(draw):
        call, path = call_of(budget=30.0)
        waits = [
            call.note_failure(path, Failure.BROKEN, THREE, now=0.0, draw=draw, others=10 * CROWD)
            for _ in range(4)
        ]
        return waits[-1]

    assert wait(0.0) == 0.2
    assert wait(0.99) > 7


def test_after_half_the_time_another_queue_is_tried_and_none_is_removed():
    call, path = call_of()
    fail(call, path, Failure.BROKEN, now=5.0)

    other = call.pick(THREE, current="q/0", now=5.1, draw=0.0)

    assert other == "q/1"
    assert call.bad_queues(other, 5.2) == []


def test_queue_that_reports_an_error_is_removed_when_another_works():
    call, path = call_of()
    assert fail(call, path, Failure.ERROR) == 0.0

    other = call.pick(THREE, current=path, now=0.1, draw=0.0)

    assert other == "q/1"
    assert call.bad_queues(other, 0.2) == [path]


def test_when_all_fail_alike_no_queue_is_removed_and_the_rounds_go_on():
    call, path = call_of()
    for now in range(3):
        path = call.pick(THREE, current=path, now=now / 10, draw=0.0)
        fail(call, path, Failure.ERROR, now=now / 10)

    again = call.pick(THREE, current=path, now=0.5, draw=0.0)

    assert again == path
    assert call.bad_queues(again, 0.6) == []


def test_silent_queue_gets_half_the_time_and_is_removed_if_another_answers_promptly():
    call, path = call_of()
    assert call.attempt_deadline(THREE, path, 0.0) == 5.0
    fail(call, path, Failure.SILENT, now=5.0)
    other = call.pick(THREE, current=path, now=5.0, draw=0.0)
    assert call.attempt_deadline(THREE, other, 5.0) == 10.0

    assert call.bad_queues(other, 5.1) == [path]
    assert call.bad_queues(other, 9.0) == [], "the namespace itself may have just come back"


def test_the_only_queue_gets_all_the_time():
    one = Rotation(("q/0",))
    call, path = call_of(one)

    assert call.attempt_deadline(one, path, 0.0) == 10.0


def test_when_every_queue_is_full_the_call_gives_up_after_one_round():
    rotation = THREE
    call, path = call_of()
    for _ in THREE.paths:
        path = call.pick(rotation, current=path, now=0.0, draw=0.0)
        rotation = rotation.remove(path, "full", now=0.0, cooldown=60)
        assert fail(call, path, Failure.UNUSABLE, rotation) == 0.0
    assert call.pick(rotation, current=path, now=0.0, draw=0.0) is None

    # The next call tries one of them, the one that failed longest ago, and no more.
    call, path = call_of(rotation)
    assert path == "q/0"
    rotation = rotation.remove(path, "full", now=1.0, cooldown=60)
    fail(call, path, Failure.UNUSABLE, rotation)
    assert call.pick(rotation, current=path, now=0.0, draw=0.0) is None


@given(st.lists(st.tuples(st.sampled_from(Failure), st.floats(0, 0.999)), max_size=60))
def test_a_call_ends_at_its_deadline_and_every_wait_is_short(history):
    call, path = call_of()
    now = 0.0
    rotation = THREE
    for failure, draw in history:
        path = call.pick(rotation, current=path, now=now, draw=draw)
        if path is None:
            assert now >= 10 or set(call.failed.values()) == {Failure.UNUSABLE}
            return
        assert call.attempt_deadline(rotation, path, now) <= 10
        if failure is Failure.UNUSABLE:
            rotation = rotation.remove(path, "full", now=now, cooldown=60)
        wait = call.note_failure(path, failure, rotation, now=now, draw=draw)
        assert 0 <= wait <= 1.5 * MAX_WAIT
        now += wait + 0.1
    assert call.pick(rotation, current=path, now=10.0, draw=0.0) is None
