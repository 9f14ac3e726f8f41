"""Backlog queues: random and sticky, out for all when one fails, back after a probe."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.pairing.core.ping import PingSchedule, first_gap
from pairbus.pairing.core.rotation import Rotation
from pairbus.pairing.core.timing import Timing

THREE = Rotation(("q/0", "q/1", "q/2"))


def test_draw_decides_which_queue():
    assert [THREE.pick(draw) for draw in (0.0, 0.34, 0.67, 0.999999)] == [
        "q/0",
        "q/1",
        "q/2",
        "q/2",
    ]


def test_sender_stays_with_its_queue():
    assert THREE.pick(0.0, current="q/2") == "q/2"


def test_removed_queue_is_left_and_not_picked():
    rotation = THREE.remove("q/1", "full", now=10, cooldown=60)

    assert rotation.available == ("q/0", "q/2")
    assert rotation.pick(0.9, current="q/1") == "q/2"
    assert dict(rotation.removed)["q/1"].reason == "full"
    assert "q/0" not in dict(rotation.removed)


def test_second_failure_of_the_same_queue_is_noted_and_moves_no_probe():
    rotation = THREE.remove("q/1", "full", now=10, cooldown=60)

    again = rotation.remove("q/1", "gone", now=20, cooldown=60)

    assert again.next_due() == 70
    assert dict(again.removed)["q/1"].failed_at == 20
    assert dict(again.removed)["q/1"].since == 10


def test_queues_to_avoid_are_not_picked():
    assert THREE.pick(0.0, current="q/0", avoid={"q/0"}) == "q/1"
    assert THREE.pick(0.0, avoid=set(THREE.paths)) is None


def test_the_queue_that_failed_longest_ago_is_found():
    rotation = THREE
    for now, path in enumerate(THREE.paths):
        rotation = rotation.remove(path, "gone", now=now, cooldown=60)
    assert rotation.failed_longest_ago() == "q/0"
    assert rotation.failed_longest_ago(avoid={"q/0"}) == "q/1"

    rotation = rotation.remove("q/0", "gone", now=10, cooldown=60)
    assert rotation.failed_longest_ago() == "q/1"
    assert THREE.failed_longest_ago() is None


def test_with_no_queue_left_there_is_none_to_pick():
    rotation = THREE
    for path in THREE.paths:
        rotation = rotation.remove(path, "gone", now=0, cooldown=60)

    assert rotation.pick(0.5) is None
    assert rotation.pick(0.5, current="q/1") is None


def test_removed_queue_is_due_after_its_cooldown_and_back_after_a_probe():
    rotation = THREE.remove("q/1", "full", now=10, cooldown=60)

    assert rotation.due(69.9) == ()
    assert rotation.next_due() == 70
    assert rotation.due(70) == ("q/1",)
    assert rotation.restore("q/1") == THREE
    assert THREE.next_due() is None


def test_failed_probe_means_another_cooldown():
    rotation = THREE.remove("q/1", "full", now=10, cooldown=60)

    again = rotation.probe_failed("q/1", "gone", now=75, cooldown=60)

    assert again.next_due() == 135
    assert dict(again.removed)["q/1"].reason == "gone"
    assert dict(again.removed)["q/1"].since == 10


@given(
    st.integers(1, 12),
    st.lists(
        st.tuples(st.sampled_from("rspf"), st.integers(0, 11), st.floats(0, 0.999)), max_size=50
    ),
)
def test_a_pick_is_always_a_queue_in_rotation(count, history):
    rotation = Rotation(tuple(f"q/{i}" for i in range(count)))
    current = None
    for now, (what, index, draw) in enumerate(history):
        path = f"q/{index % count}"
        if what == "r":
            rotation = rotation.remove(path, "x", now=now, cooldown=3)
        elif what == "s":
            rotation = rotation.restore(path)
        elif what == "f":
            rotation = rotation.probe_failed(path, "y", now=now, cooldown=3)
        before, current = current, rotation.pick(draw, current=current)
        out = {path for path, _ in rotation.removed}
        assert set(rotation.available) | out == set(rotation.paths)
        assert (current is None) == (len(out) == count)
        assert current not in out
        if before is not None and before not in out:
            assert current == before


@pytest.mark.parametrize(
    ("failover_interval", "ping_interval", "expected"),
    [
        (60, 60, [60, 120, 180]),  # the defaults: one interval apart
        (0, 60, [1, 3, 7, 15, 31, 63, 123, 183]),
        (5, 60, [5, 15, 35, 75, 135]),
        (300, 60, [60, 120]),
    ],
)
def test_pings_begin_early_and_double_up_to_the_interval(
    failover_interval, ping_interval, expected
):
    gap = first_gap(
        Timing(
            failover_interval=failover_interval,
            ping_primary_interval=ping_interval,
            send_timeout=30,
            backlog_cooldown=60,
        )
    )
    schedule = PingSchedule(gap, gap, ping_interval)
    sent = []
    for _ in expected:
        sent.append(schedule.due)
        schedule = schedule.after(schedule.due)

    assert sent == expected


def test_pings_never_overlap():
    schedule = PingSchedule(100.0, 30.0, 30.0)
    assert schedule.wait(70.0) == 30.0
    assert schedule.wait(101.0) == 0.0

    quick = schedule.after(100.5)
    assert quick.due == 130.0

    slow = schedule.after(145.0)  # it took longer than the interval
    assert slow.due == 145.0
