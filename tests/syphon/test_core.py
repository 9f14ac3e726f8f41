"""The syphon's decisions, without Spark, sockets or clocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.syphon.backoff import Backoff, may_send
from pairbus.syphon.delivery_rows import Job
from pairbus.syphon.held import WHOLE_PRIMARY, HeldMessages
from pairbus.syphon.limits import Bucket, share
from pairbus.syphon.progress import Progress, state_of
from pairbus.syphon.records import HeldMessage
from pairbus.syphon.refusals import REASONS, Cause, judge


@pytest.mark.parametrize(
    ("condition", "cause"),
    [
        ("amqp:link:message-size-exceeded", Cause.MESSAGE),
        ("com.microsoft:argument-error", Cause.MESSAGE),
        ("amqp:not-found", Cause.MISSING),
        ("com.microsoft:entity-disabled", Cause.DESTINATION),
        ("amqp:resource-limit-exceeded", Cause.DESTINATION),
        ("com.microsoft:server-busy", Cause.BUSY),
        ("amqp:connection:forced", Cause.PRIMARY),
        ("com.example:never-heard-of", Cause.DESTINATION),
    ],
)
def test_a_refusal_is_the_cause_of(condition, cause):
    judgement = judge(condition)
    assert judgement.cause is cause
    assert bool(judgement.reason) == (cause in (Cause.MESSAGE, Cause.MISSING))
    assert not judgement.reason or judgement.reason in REASONS


def test_back_off_doubles_up_to_its_bound():
    backoff = Backoff(first=10, most=300)
    assert [backoff.delay(n) for n in (1, 2, 3, 6, 1000)] == [10, 20, 40, 300, 300]


def test_nothing_is_sent_when_a_third_of_the_lock_is_left():
    assert may_send(139, received_at=100, locked_until=160)
    assert not may_send(141, received_at=100, locked_until=160)
    assert not may_send(100, received_at=100, locked_until=90)


@given(st.lists(st.integers(), max_size=50), st.integers(0, 60))
def test_the_parts_of_a_split_batch_have_its_rows_and_messages_in_order(rows, at):
    job = Job(rows, [b"%d" % row for row in rows])
    first, rest = job.split(at)
    assert len(first.rows) == min(at, len(rows))
    assert (first.rows + rest.rows, first.messages + rest.messages) == (job.rows, job.messages)


def test_a_bucket_lets_its_rate_through_and_remembers_a_debt():
    bucket = Bucket(rate=100).refill(0)
    assert bucket.available() == 100
    bucket = bucket.charge(250).refill(1)
    assert bucket.available() == 0
    assert bucket.refill(2.5).available() == 100
    assert bucket.refill(1000).available() == 200  # two seconds' worth at most


def test_a_bucket_without_a_rate_lets_everything_through():
    assert Bucket().refill(0).charge(10**9).available() is None
    assert Bucket().limit(5).refill(0).rate == 5


def test_a_small_allowance_visits_the_queues_in_turn():
    queues = ["a", "b", "c"]
    seen = [share(queues, per_queue=9, bytes_per_queue=9, messages=1, turn=n) for n in range(3)]
    assert [[g.queue for g in grants] for grants in seen] == [["a"], ["b"], ["c"]]


@given(st.integers(0, 100), st.integers(1, 12), st.integers(0, 7))
def test_shares_never_exceed_what_is_allowed(messages, count, turn):
    queues = [f"q{n}" for n in range(count)]
    grants = share(queues, per_queue=20, bytes_per_queue=100, messages=messages, turn=turn)
    assert sum(g.messages for g in grants) <= messages
    assert sum(g.messages for g in grants) == min(messages, 20 * count)


def test_rate_and_time_to_go_come_from_what_was_settled():
    progress = Progress().sample(0, 0)
    assert progress.last_progress is None
    progress = progress.sample(10, 1000)
    assert progress.rate == 100
    assert progress.eta(500, 10) == 5
    assert progress.eta(500, 11) == 4  # messages went on moving, and are not reported yet
    assert progress.eta(500, 10, allowed=150.0) == 4  # the mean of 100 and 150
    assert progress.eta(500, 10, allowed=1000.0) == 5  # far from that: something else is the limit
    assert progress.eta(0, 10) == 0
    assert progress.eta(None, 10) is None
    stuck = progress.sample(100, 1000)
    assert stuck.rate == 0
    assert stuck.eta(500, 100) is None
    assert stuck.last_progress == 10


def test_the_rate_is_right_from_the_first_second_on():
    progress = Progress()
    for now in range(6):  # Spark starts
        progress = progress.sample(now, 0)
    for second in range(1, 4):
        progress = progress.sample(5 + second, 1000 * second)
        assert progress.rate == pytest.approx(1000)
    assert progress.sample(9, 3000).rate == pytest.approx(750)  # the mean of four seconds


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "idle"),
        ({"remaining": 5}, "running"),
        ({"remaining": 5, "now": 100.0}, "stalled"),
        ({"remaining": 5, "now": 100.0, "last_progress": 99.0}, "running"),
        ({"waiting": 3, "now": 100.0}, "stalled"),
        ({"remaining": 5, "uncertain": 1}, "running"),
        ({"problem": "ledger"}, "stalled"),
        ({"is_started": False}, "starting"),
        ({"is_started": False, "remaining": 5, "now": 200.0}, "starting"),
        ({"is_started": False, "remaining": 5, "now": 400.0}, "stalled"),
        ({"is_started": False, "problem": "ledger"}, "stalled"),
        ({"problem": "ledger", "paused": True}, "paused"),
        ({"paused": True, "stopped": True}, "stopped"),
    ],
)
def test_the_state_is_told_by_progress(changes, word):
    given_ = {
        "now": 1.0, "stopped": False, "paused": False, "problem": None, "remaining": 0,
        "waiting": 0, "active": False, "since": 0.0, "last_progress": None,
    }  # fmt: skip
    given_.update(changes)
    assert state_of(given_.pop("now"), **given_).word == word


def test_a_standstill_names_the_locks_that_are_waited_for():
    state = state_of(
        100.0, stopped=False, paused=False, problem=None, remaining=5, waiting=0, active=False,
        since=0.0, last_progress=50.0, uncertain=2,
    )  # fmt: skip
    assert state.stalled == "2 backlog queues wait for locks of a lost reader to expire"


@pytest.mark.parametrize(("last_progress", "quiet"), [(None, 100), (40.0, 60)])
def test_a_standstill_is_measured_from_the_last_progress_or_the_start(last_progress, quiet):
    state = state_of(
        100.0, stopped=False, paused=False, problem=None, remaining=5, waiting=0, active=True,
        since=0.0, last_progress=last_progress,
    )  # fmt: skip
    assert state.stalled == f"no message was settled for {quiet} s"


def held(number, destination="orders", queue="b/0"):
    return HeldMessage(queue, f"t{number}", number, destination, 60.0)


def test_deferred_messages_wait_until_held_ones_of_their_destination_are_deferred():
    room = HeldMessages(destination=Backoff(first=10))
    room.fail("orders", "com.microsoft:entity-disabled", 0)
    room.defer("orders", 0)
    room.probe("orders", ("b/0", 1), 10)
    room.hold([held(8)], 11)  # by a task that began before the destination recovered
    room.settled("b/0", [1])
    assert room.next_fetch({"orders": 2}, 11) == (set(), [])
    room.deferred(room.take_waiting(12, lock=60))
    assert room.next_fetch({"orders": 3}, 12) == ({"orders"}, [])


def test_a_destination_that_waits_is_probed_by_its_oldest_message():
    room = HeldMessages(destination=Backoff(first=10))
    room.fail("orders", "com.microsoft:entity-disabled", 0)
    room.hold([held(3), held(1), held(2)], 0)
    assert room.due(9) == []
    assert room.blocked().blocked == {"orders": None}
    assert [h.sequence for h in room.due(10)] == [1]
    assert room.blocked().blocked == {"orders": ("b/0", 1)}
    assert room.due(11) == []  # one probe at a time


def test_a_probe_that_fails_doubles_the_wait_and_one_that_succeeds_frees_all():
    room = HeldMessages(destination=Backoff(first=10))
    room.fail("orders", "com.microsoft:entity-disabled", 0)
    room.hold([held(n) for n in (1, 2, 3)], 0)
    (probe,) = room.due(10)
    room.fail("orders", "com.microsoft:entity-disabled", 11)
    room.hold([probe], 11)
    assert room.due(30) == []
    assert [h.sequence for h in room.due(31)] == [1]
    assert [h.sequence for h in room.accept(["orders"])] == [3, 2]
    assert not room.blocked().blocked
    assert room.counts() == {}


def test_messages_held_while_their_destination_recovered_are_returned_without_a_probe():
    # Given a probe that one task delivered, while another task held a newer message
    room = HeldMessages(destination=Backoff(first=10))
    room.fail("orders", "com.microsoft:entity-disabled", 0)
    room.hold([held(1), held(2)], 0)
    room.due(10)
    assert [h.sequence for h in room.accept(["orders"])] == [2]
    # When the other task reports, the newer message must not be sent alone before the older one
    room.hold([held(4), held(3)], 11)
    assert [h.sequence for h in room.due(11)] == [4, 3]
    assert not room.blocked().blocked


def test_a_probe_stays_first_when_a_task_fails_that_began_before_it_was_returned():
    room = HeldMessages(destination=Backoff(first=10))
    room.fail("orders", "com.microsoft:entity-disabled", 0)
    room.hold([held(1), held(2)], 0)
    (probe,) = room.due(10)
    room.fail("orders", "com.microsoft:entity-disabled", 11)
    room.hold([held(3)], 11)
    assert room.blocked().blocked == {"orders": (probe.queue, probe.sequence)}
    assert room.take_waiting(1000, lock=60) == [], "deferred messages would overtake the probe"


def test_a_probe_that_was_not_tried_gives_way_to_an_older_message():
    room = HeldMessages(destination=Backoff(first=10))
    room.fail("orders", "com.microsoft:entity-disabled", 0)
    room.hold([held(2), held(3)], 0)
    (probe,) = room.due(10)
    room.hold([held(1), probe], 11)
    assert [h.sequence for h in room.due(11)] == [1]


def test_the_same_failure_told_by_several_tasks_counts_once():
    room = HeldMessages(destination=Backoff(first=10))
    room.fail("orders", "amqp:internal-error", 0)
    room.fail("orders", "amqp:internal-error", 1)
    room.hold([held(1)], 1)
    assert len(room.due(10)) == 1


def test_everything_is_returned_in_order_behind_a_probe_that_nobody_heard_of():
    room = HeldMessages(destination=Backoff(first=10), probe_patience=60)
    room.fail("orders", "x", 0)
    room.hold([held(n) for n in range(1, 6)], 0)
    assert [h.sequence for h in room.due(10)] == [1]
    assert room.due(69) == []
    assert [h.sequence for h in room.due(70)] == [5, 4, 3, 2]
    assert not room.blocked().blocked


def test_a_probe_is_given_up_when_an_older_message_is_held():
    """A coordinator that died had returned it, and the next one does not know of it."""
    room = HeldMessages(destination=Backoff(first=10))
    room.fail("orders", "x", 0)
    room.hold([held(2), held(3)], 0)
    assert [h.sequence for h in room.due(10)] == [2]
    room.hold([held(1, queue="b/1")], 11)  # of another queue: there is no order between them
    assert room.blocked().blocked == {"orders": ("b/0", 2)}
    room.hold([held(1)], 12)
    assert room.blocked().blocked == {"orders": None}


def test_messages_held_for_the_whole_primary_are_returned_together():
    room = HeldMessages(primary=Backoff(first=10))
    room.fail(WHOLE_PRIMARY, "amqp:connection:forced", 100)
    room.hold([held(1, WHOLE_PRIMARY), held(2, WHOLE_PRIMARY)], 100)
    assert room.paused_until() == 110
    assert room.due(109) == []
    assert [h.sequence for h in room.due(110)] == [2, 1]
    assert not room.blocked().blocked
    room.succeed(111)
    assert room.paused_until() == 0


def test_locks_are_renewed_at_half_time_and_forgotten_when_lost():
    room = HeldMessages()
    room.fail("orders", "x", 0)
    room.hold([held(1), held(2, queue="b/1")], 0)
    assert room.renewals(29, lock=60) == {}
    assert room.renewals(31, lock=60) == {"b/0": ["t1"], "b/1": ["t2"]}
    room.renewed({"t1": 91})
    assert room.renewals(31, lock=60) == {"b/1": ["t2"]}
    room.renewed({"t2": None})
    assert [h.token for h in room.messages()] == ["t1"]
    assert room.counts() == {"orders": 1}
    assert room.reasons() == {"orders": "x"}


def test_a_probe_that_reaches_the_primary_ends_its_wait_and_failed_probes_wait_longer():
    room = HeldMessages(primary=Backoff(first=2, most=60))
    now = 100.0
    for _ in range(8):  # a long outage: the wait has grown to a minute
        room.fail(WHOLE_PRIMARY, "amqp:connection:forced", now)
        now = room.paused_until()
    room.fail(WHOLE_PRIMARY, "amqp:connection:forced", now)
    assert room.paused_until() == now + 60
    room.reach_primary(now - 1, now + 5)  # reached before it failed: no news
    assert room.paused_until() == now + 60
    room.reach_primary(now + 5, now + 5)
    assert room.paused_until() == now + 5
    # It can be reached but accepts nothing: the next probe waits 2 s, then 4 s, and so on.
    room.fail(WHOLE_PRIMARY, "amqp:connection:forced", now + 6)
    room.reach_primary(now + 7, now + 7)
    assert room.paused_until() == now + 66
    room.reach_primary(now + 8, now + 8)
    assert room.paused_until() == now + 8


MISSING = "amqp:not-found"


def test_a_missing_destination_is_waited_for_and_then_expires():
    room = HeldMessages(destination=Backoff(first=10), missing_timeout=3600)
    room.fail("orders", MISSING, 0)
    room.hold([held(1), held(2)], 0)
    assert [h.sequence for h in room.due(10)] == [1]  # a probe
    room.fail("orders", MISSING, 11)
    room.hold([held(1)], 11)
    assert room.blocked().expired == ()
    # A restart does not start the time again.
    again = HeldMessages(destination=Backoff(first=10), missing_timeout=3600)
    again.restore(room.record(), 3000)
    assert [h.sequence for h in again.due(3600)] == [2, 1]
    assert again.blocked().expired == ("orders",)
    assert again.blocked().blocked == {}
    assert again.record().expired == ("orders",)
    # When the destination exists after all, the next message finds it, and it is as any other.
    assert again.accept(["orders"]) == []
    assert again.blocked().expired == ()


def test_a_destination_that_refuses_for_another_reason_never_expires():
    room = HeldMessages(destination=Backoff(first=10), missing_timeout=3600)
    room.fail("orders", "com.microsoft:entity-disabled", 0)
    room.hold([held(1), held(2)], 0)
    room.due(10_000)
    assert room.blocked().expired == ()
