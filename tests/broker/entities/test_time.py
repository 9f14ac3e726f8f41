"""What happens by itself: expiry, schedules, duplicate windows, idleness."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from pairbus.broker.entities.errors import EntityNotFoundError, MessageNotFoundError
from pairbus.broker.entities.messages import IncomingMessage, Outcome
from pairbus.broker.entities.model import (
    MAX_DURATION,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.broker.settings import Tier
from tests.broker.entities.kit import Bench, properties_of

BARE = b"\x00\x53\x75\xa0\x01x"


def test_an_expired_message_is_dropped():
    bench = Bench()
    bench.send(b"1", ttl=1000)
    bench.send(b"2")
    bench.pass_time(999)
    assert bench.ns.admin.runtime("q").active_message_count == 2
    bench.pass_time(1)
    assert bench.ns.admin.runtime("q").total_message_count == 1
    assert [d.message.bare for d in bench.receive(9)] == [b"2"]


def test_an_expired_message_is_dead_lettered_where_the_queue_asks_for_it():
    bench = Bench(dead_lettering_on_message_expiration=True)
    bench.send(BARE, ttl=1000)
    bench.pass_time(1000)
    (dead,) = bench.receive(9, path="q/$DeadLetterQueue")
    assert properties_of(dead)["DeadLetterReason"] == "TTLExpiredException"
    bench.pass_time(10_000_000)
    assert bench.ns.admin.runtime("q").dead_letter_message_count == 1  # dead letters do not expire


def test_a_message_that_cannot_be_expired_leaves_the_others_due(monkeypatch):
    bench = Bench(dead_lettering_on_message_expiration=True)
    bench.send(BARE, BARE, BARE, ttl=1000)
    queue = bench.ns.catalog.entity("q").main
    with monkeypatch.context() as broken:
        broken.setattr(queue, "expire", lambda *_: 1 / 0)  # as if the store could not be read
        with pytest.raises(ZeroDivisionError):
            bench.pass_time(1000)
    bench.send(BARE, ttl=1)  # arms the timer again
    bench.pass_time(1)
    assert bench.ns.admin.runtime("q").dead_letter_message_count == 3


def test_the_shorter_of_message_and_queue_time_to_live_holds():
    bench = Bench(default_message_time_to_live=timedelta(seconds=5))
    bench.send(b"default")
    bench.send(b"own", ttl=1000)
    bench.send(b"capped", ttl=60_000)
    assert [d.message.ttl for d in bench.ns.peek("q", 0, 9)] == [5000, 1000, 5000]
    bench.pass_time(1000)
    assert bench.ns.admin.runtime("q").active_message_count == 2
    bench.pass_time(4000)
    assert bench.ns.admin.runtime("q").active_message_count == 0


def test_a_locked_message_does_not_expire_until_it_is_given_back():
    bench = Bench()
    bench.send(b"1", b"2", ttl=1000)
    one, two = bench.receive(2)
    bench.pass_time(2000)
    assert bench.ns.admin.runtime("q").active_message_count == 2
    assert bench.ns.update_disposition("q", [one.lock_token], Outcome.COMPLETE) == []
    bench.ns.update_disposition("q", [two.lock_token], Outcome.ABANDON)
    assert bench.ns.admin.runtime("q").active_message_count == 0


def test_a_message_expired_a_moment_ago_is_not_delivered_even_before_the_clock_rings():
    bench = Bench()
    bench.send(b"1", ttl=1000)
    bench.clock.now += 1000
    assert bench.receive(1) == []
    assert bench.ns.admin.runtime("q").total_message_count == 0


def test_a_deferred_message_expires():
    bench = Bench(dead_lettering_on_message_expiration=True)
    bench.send(BARE, ttl=1000)
    (one,) = bench.receive(1)
    bench.ns.update_disposition("q", [one.lock_token], Outcome.DEFER)
    bench.pass_time(1000)
    with pytest.raises(MessageNotFoundError):
        bench.ns.receivers.take_deferred("q", [1])
    assert bench.ns.admin.runtime("q").dead_letter_message_count == 1


def test_what_is_no_longer_there_does_not_fill_memory_until_it_would_have_expired():
    bench = Bench()
    for _ in range(40):
        bench.send(*[b"x"] * 100, ttl=3_600_000)
        bench.receive(100, receive_and_delete=True)
    assert len(bench.ns.catalog.queue_at("q").store.deadlines.expiring) < 2000


def test_a_scheduled_message_comes_at_its_time_with_a_new_number():
    bench = Bench()
    due = bench.clock.now + 10_000
    (number,) = bench.ns.schedule("q", [IncomingMessage(b"later", scheduled=due, ttl=5000)])
    bench.send(b"now")
    assert [d.message.bare for d in bench.receive(9)] == [b"now"]
    runtime = bench.ns.admin.runtime("q")
    assert (runtime.active_message_count, runtime.scheduled_message_count) == (1, 1)
    _, host = bench.receiver(credit=1)
    bench.pass_time(10_000)
    (later,) = host.deliveries
    assert later.message.bare == b"later"
    assert later.message.sequence_number > number
    assert later.message.enqueued_time == bench.clock.now
    assert later.message.expires_at == bench.clock.now + 5000
    assert bench.ns.admin.runtime("q").scheduled_message_count == 0


def test_a_schedule_in_the_past_is_now():
    bench = Bench()
    bench.send(b"1", scheduled=bench.clock.now - 5)
    assert len(bench.receive(1)) == 1


def test_scheduled_messages_can_be_cancelled_all_or_none():
    bench = Bench()
    later = bench.clock.now + 1000
    numbers = bench.ns.schedule(
        "q", [IncomingMessage(b"1", scheduled=later), IncomingMessage(b"2", scheduled=later)]
    )
    with pytest.raises(MessageNotFoundError):
        bench.ns.cancel_scheduled("q", [*numbers, 99])
    bench.ns.cancel_scheduled("q", numbers[:1])
    with pytest.raises(MessageNotFoundError):
        bench.ns.cancel_scheduled("q", numbers[:1])
    bench.pass_time(1000)
    assert [d.message.bare for d in bench.receive(9)] == [b"2"]
    with pytest.raises(MessageNotFoundError):
        bench.ns.cancel_scheduled("q", numbers[1:])


def test_a_message_scheduled_at_a_topic_reaches_the_subscriptions_at_its_time():
    bench = Bench()
    bench.ns.admin.create(TopicDescription("t"))
    (number,) = bench.ns.schedule("t", [IncomingMessage(b"1", scheduled=bench.clock.now + 1000)])
    bench.ns.schedule("t", [IncomingMessage(b"2", scheduled=bench.clock.now + 1000)])
    bench.ns.admin.create(SubscriptionDescription("t", "s"))
    assert bench.ns.admin.runtime("t").scheduled_message_count == 2
    bench.ns.cancel_scheduled("t", [number])
    bench.pass_time(1000)
    assert [d.message.bare for d in bench.receive(9, path="t/Subscriptions/S")] == [b"2"]
    assert bench.ns.admin.runtime("t").scheduled_message_count == 0


def test_a_duplicate_within_the_window_is_accepted_and_dropped():
    bench = Bench(requires_duplicate_detection=True)
    bench.send(b"1", message_id="a")
    bench.send(b"2", message_id="a")
    bench.send(b"3", message_id="b")
    bench.send(b"4")
    bench.send(b"5")
    assert [d.message.bare for d in bench.receive(9)] == [b"1", b"3", b"4", b"5"]


def test_a_duplicate_of_a_completed_message_is_still_one_until_the_window_ends():
    bench = Bench(
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(seconds=30),
    )
    bench.send(b"1", message_id="a")
    bench.receive(1, receive_and_delete=True)
    bench.pass_time(29_999)
    bench.send(b"2", message_id="a")
    assert bench.receive(1) == []
    bench.pass_time(1)
    bench.send(b"3", message_id="a")
    assert [d.message.bare for d in bench.receive(9)] == [b"3"]
    bench.pass_time(60_000)
    assert bench.ns.catalog.entity("q").history.seen == {}


def test_in_a_batch_the_second_of_two_equal_ones_is_dropped():
    bench = Bench(requires_duplicate_detection=True)
    bench.send(b"1", b"2", message_id="a")
    assert [d.message.bare for d in bench.receive(9)] == [b"1"]


def test_in_a_partitioned_queue_the_partition_key_is_part_of_the_identity():
    bench = Bench(tier=Tier.STANDARD, requires_duplicate_detection=True, enable_partitioning=True)
    bench.send(b"1", message_id="a", partition_key="x")
    bench.send(b"2", message_id="a", partition_key="y")
    bench.send(b"3", message_id="a", partition_key="x")
    assert [d.message.bare for d in bench.receive(9)] == [b"1", b"2"]


def test_an_idle_queue_is_deleted_and_a_used_one_stays():
    idle = timedelta(minutes=5)
    bench = Bench()
    for name in ("left", "sent", "received", "held"):
        bench.ns.admin.create(QueueDescription(name, auto_delete_on_idle=idle))
    bench.receiver("held")
    bench.pass_time(200_000)
    bench.send(b"1", path="sent")
    bench.receive(1, path="received")
    bench.pass_time(100_000)
    assert [q.name for q in bench.ns.admin.list_queues()] == ["held", "q", "received", "sent"]
    bench.pass_time(200_000)
    assert [q.name for q in bench.ns.admin.list_queues()] == ["held", "q"]
    with pytest.raises(EntityNotFoundError):
        bench.send(b"1", path="sent")


def test_an_idle_subscription_is_deleted_and_its_topic_stays():
    bench = Bench()
    bench.ns.admin.create(TopicDescription("t"))
    bench.ns.admin.create(
        SubscriptionDescription("t", "s", auto_delete_on_idle=timedelta(minutes=5))
    )
    bench.pass_time(300_000)
    assert bench.ns.admin.list_subscriptions("t") == []
    assert bench.ns.catalog.topic_entity("t").description.name == "t"


def test_idleness_can_be_set_later_and_changed():
    bench = Bench()
    for minutes in (10, 5, 10):
        bench.ns.admin.update(
            replace(
                bench.ns.catalog.queue_entity("q").description,
                auto_delete_on_idle=timedelta(minutes=minutes),
            )
        )
    bench.pass_time(599_999)
    assert bench.ns.catalog.find("q") is not None
    bench.pass_time(1)
    assert bench.ns.catalog.find("q") is None


def is_there(bench, minutes: float, name: str = "q") -> bool:
    """Whether an entity is there after a time."""
    bench.pass_time(round(minutes * 60_000))
    return bench.ns.catalog.find(name) is not None


def test_a_queue_with_a_scheduled_message_is_not_idle():
    bench = Bench(auto_delete_on_idle=timedelta(minutes=5))
    due = bench.clock.now + 12 * 60_000
    bench.ns.schedule("q", [IncomingMessage(b"later", scheduled=due)])
    assert is_there(bench, 5)
    assert is_there(bench, 7)
    assert is_there(bench, 4)
    assert not is_there(bench, 1)


def test_a_queue_is_in_use_until_its_last_receiver_closes():
    bench = Bench(auto_delete_on_idle=timedelta(minutes=5))
    receiver, _ = bench.receiver(credit=1)
    assert is_there(bench, 5)
    assert is_there(bench, 4)
    receiver.close()
    assert is_there(bench, 4)
    assert not is_there(bench, 1)


def test_a_topic_is_in_use_while_one_of_its_subscriptions_is():
    bench = Bench()
    bench.ns.admin.create(TopicDescription("t", auto_delete_on_idle=timedelta(minutes=5)))
    bench.ns.admin.create(SubscriptionDescription("t", "s"))
    receiver, _ = bench.receiver("t/Subscriptions/s", credit=1)
    assert is_there(bench, 6, "t")
    receiver.close()
    assert is_there(bench, 3, "t")
    bench.ns.admin.create_rule("t", "s", RuleDescription("new"))
    assert is_there(bench, 4, "t")
    assert not is_there(bench, 1, "t")


def test_a_queue_that_forwards_is_in_use_and_forwarding_uses_its_destination():
    idle = timedelta(minutes=5)
    bench = Bench(auto_delete_on_idle=idle)
    bench.ns.admin.create(QueueDescription("source", forward_to="q", auto_delete_on_idle=idle))
    assert is_there(bench, 3)
    bench.send(b"forwarded", path="source")
    assert is_there(bench, 4)
    assert not is_there(bench, 1)
    assert is_there(bench, 9, "source")


def test_idleness_that_was_switched_off_can_be_switched_on_again():
    bench = Bench(auto_delete_on_idle=timedelta(minutes=5))
    queue = bench.ns.catalog.queue_entity("q").description
    bench.ns.admin.update(replace(queue, auto_delete_on_idle=MAX_DURATION))
    bench.pass_time(300_000)
    bench.ns.admin.update(queue)
    bench.pass_time(299_999)
    assert bench.ns.catalog.find("q") is not None
    bench.pass_time(1)
    assert bench.ns.catalog.find("q") is None
