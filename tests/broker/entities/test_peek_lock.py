"""Receiving with locks: order, settling, counting, lock loss."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from pairbus.amqp.codec import encode
from pairbus.amqp.types import Symbol
from pairbus.broker.entities.errors import (
    ArgumentError,
    EntityDisabledError,
    EntityNotFoundError,
    MessageLockLostError,
    MessageNotFoundError,
    NotAllowedError,
)
from pairbus.broker.entities.messages import Outcome
from pairbus.broker.entities.model import EntityStatus, QueueDescription
from pairbus.broker.server.outgoing import render_delivery, render_locked
from tests.broker.entities.kit import Bench, properties_of


def test_a_message_that_was_sent_is_delivered_locked_and_gone_when_completed():
    bench = Bench()
    bench.send(b"one")
    receiver, host = bench.receiver(credit=5)
    assert host.bodies == [b"one"]
    assert host.deliveries[0].locked_until == bench.clock.now + 60_000
    receiver.settle(host.tokens[0], Outcome.COMPLETE)
    assert bench.ns.admin.runtime("q").total_message_count == 0


def test_credit_that_waits_is_served_when_a_message_comes():
    bench = Bench()
    receiver, host = bench.receiver(credit=2)
    bench.send(b"one", b"two", b"three")
    assert host.bodies == [b"one", b"two"]
    receiver.grant(1)
    assert host.bodies == [b"one", b"two", b"three"]


def test_a_drain_delivers_what_is_there_and_uses_up_the_rest():
    bench = Bench()
    bench.send(b"one")
    receiver, host = bench.receiver()
    receiver.grant(5, drain=True)
    assert (host.bodies, host.drains, receiver.credit) == ([b"one"], 1, 0)
    bench.send(b"two")
    assert host.bodies == [b"one"]


def test_receivers_that_compete_get_different_messages():
    bench = Bench()
    _, one = bench.receiver(credit=1)
    _, two = bench.receiver(credit=1)
    bench.send(b"a", b"b")
    assert sorted(one.bodies + two.bodies) == [b"a", b"b"]
    assert len(one.bodies) == len(two.bodies) == 1


@pytest.mark.parametrize(
    ("outcome", "count"), [(Outcome.ABANDON, 1), (Outcome.RELEASE, 0)], ids=["abandon", "release"]
)
def test_what_is_given_back_returns_to_its_place_in_order(outcome, count):
    bench = Bench()
    bench.send(b"1", b"2", b"3", b"4")
    receiver, host = bench.receiver(credit=3)
    receiver.settle(host.tokens[2], outcome)
    receiver.settle(host.tokens[0], outcome)
    again = bench.receive(10)
    assert [d.message.bare for d in again] == [b"1", b"3", b"4"]
    assert [d.message.delivery_count for d in again] == [count, count, 0]


@pytest.mark.parametrize("outcome", [Outcome.ABANDON, Outcome.RELEASE])
def test_what_is_given_back_goes_to_who_waits(outcome):
    bench = Bench()
    bench.send(b"1")
    receiver, host = bench.receiver(credit=1)
    _, other = bench.receiver(credit=1)
    receiver.settle(host.tokens[0], outcome)
    assert other.bodies == [b"1"]


def test_a_lock_that_ends_gives_the_message_to_the_next_and_counts():
    bench = Bench()
    bench.send(b"1")
    receiver, host = bench.receiver(credit=1)
    _, other = bench.receiver(credit=1)
    bench.pass_time(59_999)
    assert other.bodies == []
    bench.pass_time(1)
    assert other.bodies == [b"1"]
    assert other.deliveries[0].message.delivery_count == 1
    with pytest.raises(MessageLockLostError):
        receiver.settle(host.tokens[0], Outcome.COMPLETE)
    assert bench.ns.admin.runtime("q").active_message_count == 1


def test_a_lock_that_has_ended_is_lost_even_before_the_clock_rings():
    bench = Bench()
    bench.send(b"1")
    receiver, host = bench.receiver(credit=1)
    bench.clock.now += 60_000
    with pytest.raises(MessageLockLostError):
        receiver.settle(host.tokens[0], Outcome.COMPLETE)
    assert [d.message.bare for d in bench.receive(1)] == [b"1"]


def test_a_renewed_lock_lasts_longer_and_a_lost_one_cannot_be_renewed():
    bench = Bench()
    bench.send(b"1", b"2")
    receiver, host = bench.receiver(credit=2)
    bench.pass_time(50_000)
    assert bench.ns.renew_lock("q", host.tokens[:1]) == [bench.clock.now + 60_000]
    bench.pass_time(10_000)
    with pytest.raises(MessageLockLostError):
        bench.ns.renew_lock("q", host.tokens)
    receiver.settle(host.tokens[0], Outcome.COMPLETE)
    bench.pass_time(120_000)
    assert [d.message.bare for d in bench.receive(9)] == [b"2"]


def test_a_shorter_lock_duration_holds_for_new_locks_only():
    bench = Bench()
    bench.send(b"1", b"2")
    bench.receiver(credit=1)
    bench.ns.admin.update(
        replace(bench.ns.catalog.queue_entity("q").description, lock_duration=timedelta(seconds=5))
    )
    (second,) = bench.receive(1)
    assert second.locked_until == bench.clock.now + 5_000
    bench.pass_time(5_000)
    assert [d.message.bare for d in bench.receive(9)] == [b"2"]
    bench.pass_time(60_000)
    assert [d.message.bare for d in bench.receive(9)] == [b"1", b"2"]


def test_locks_survive_the_close_of_the_link():
    bench = Bench()
    bench.send(b"1")
    (one,) = bench.receive(1)
    assert bench.receive(1) == []
    assert bench.ns.update_disposition("q", [one.lock_token], Outcome.COMPLETE) == []
    assert bench.ns.admin.runtime("q").total_message_count == 0


def test_a_disposition_with_a_lost_token_settles_the_others_and_says_which():
    bench = Bench()
    bench.send(b"1", b"2")
    tokens = [d.lock_token for d in bench.receive(2)]
    lost = bench.ns.update_disposition("q", [tokens[0], b"x" * 16, tokens[1]], Outcome.COMPLETE)
    assert lost == [b"x" * 16]
    assert bench.ns.admin.runtime("q").total_message_count == 0


def test_a_message_cannot_be_settled_twice():
    bench = Bench()
    bench.send(b"1")
    receiver, host = bench.receiver(credit=1)
    receiver.settle(host.tokens[0], Outcome.COMPLETE)
    with pytest.raises(MessageLockLostError):
        receiver.settle(host.tokens[0], Outcome.ABANDON)


def test_after_too_many_deliveries_a_message_is_dead_lettered_with_the_reason():
    bench = Bench(max_delivery_count=2)
    bench.send(BARE)
    for expected in (0, 1):
        (one,) = bench.receive(1)
        assert one.message.delivery_count == expected
        bench.ns.update_disposition("q", [one.lock_token], Outcome.ABANDON)
    assert bench.receive(1) == []
    (dead,) = bench.receive(1, path="q/$DeadLetterQueue")
    assert properties_of(dead)["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert dead.message.sequence_number == 1
    runtime = bench.ns.admin.runtime("q")
    assert (runtime.active_message_count, runtime.dead_letter_message_count) == (0, 1)


def test_a_release_never_dead_letters():
    bench = Bench(max_delivery_count=1)
    bench.send(b"1")
    for _ in range(5):
        (one,) = bench.receive(1)
        bench.ns.update_disposition("q", [one.lock_token], Outcome.RELEASE)
    assert bench.ns.admin.runtime("q").dead_letter_message_count == 0


BARE = b"\x00\x53\x75\xa0\x01x"


def test_a_dead_letter_carries_reason_description_and_changed_properties():
    bench = Bench()
    bench.send(BARE)
    receiver, host = bench.receiver(credit=1)
    receiver.settle(
        host.tokens[0],
        Outcome.DEAD_LETTER,
        reason="bad",
        description="very bad",
        properties={"seen": True},
    )
    (dead,) = bench.receive(1, path="q/$deadletterqueue")
    assert properties_of(dead) == {
        "seen": True,
        "DeadLetterReason": "bad",
        "DeadLetterErrorDescription": "very bad",
    }
    with pytest.raises(ArgumentError):
        bench.ns.update_disposition("q/$deadletterqueue", [dead.lock_token], Outcome.DEAD_LETTER)
    assert bench.ns.update_disposition(
        "q/$deadletterqueue", [dead.lock_token], Outcome.COMPLETE
    ) == []  # fmt: skip
    assert bench.ns.admin.runtime("q").total_message_count == 0


def test_a_dead_letter_is_never_dead_lettered_however_often_it_is_tried():
    bench = Bench(max_delivery_count=1)
    bench.send(BARE)
    receiver, host = bench.receiver(credit=1)
    receiver.settle(host.tokens[0], Outcome.DEAD_LETTER)
    for _ in range(5):
        (dead,) = bench.receive(1, path="q/$DeadLetterQueue")
        bench.ns.update_disposition("q/$DeadLetterQueue", [dead.lock_token], Outcome.ABANDON)
    assert bench.ns.admin.runtime("q").dead_letter_message_count == 1


def test_abandon_and_defer_can_change_properties():
    bench = Bench()
    bench.send(BARE)
    (one,) = bench.receive(1)
    bench.ns.update_disposition("q", [one.lock_token], Outcome.ABANDON, properties={"a": 1})
    (one,) = bench.receive(1)
    assert properties_of(one) == {"a": 1}
    bench.ns.update_disposition("q", [one.lock_token], Outcome.DEFER, properties={"b": "2"})
    (one,) = bench.ns.receivers.take_deferred("q", [1])
    assert properties_of(one) == {"a": 1, "b": "2"}
    assert bench.ns.admin.runtime("q").size_in_bytes == len(one.message.bare)


def test_a_deferred_message_is_only_received_by_its_number():
    bench = Bench()
    bench.send(b"1", b"2")
    receiver, host = bench.receiver(credit=2)
    receiver.settle(host.tokens[0], Outcome.DEFER)
    bench.pass_time(60_000)
    assert [d.message.bare for d in bench.receive(9)] == [b"2"]
    (one,) = bench.ns.receivers.take_deferred("q", [1])
    assert one.message.bare == b"1"
    assert one.wire_state == 1
    with pytest.raises(MessageNotFoundError):  # it is locked
        bench.ns.receivers.take_deferred("q", [1])
    bench.ns.update_disposition("q", [one.lock_token], Outcome.ABANDON)
    assert bench.receive(9) == []  # abandoned, it is deferred still
    (one,) = bench.ns.receivers.take_deferred("q", [1])
    bench.ns.update_disposition("q", [one.lock_token], Outcome.COMPLETE)
    with pytest.raises(MessageNotFoundError):
        bench.ns.receivers.take_deferred("q", [1])


def test_deferred_messages_are_received_all_or_none_and_may_be_deleted_at_once():
    bench = Bench()
    bench.send(b"1", b"2")
    receiver, host = bench.receiver(credit=2)
    receiver.settle(host.tokens[0], Outcome.DEFER)
    receiver.settle(host.tokens[1], Outcome.DEFER)
    with pytest.raises(MessageNotFoundError):
        bench.ns.receivers.take_deferred("q", [1, 2, 3])
    got = bench.ns.receivers.take_deferred("q", [2, 1], receive_and_delete=True)
    assert [d.message.bare for d in got] == [b"2", b"1"]
    assert bench.ns.admin.runtime("q").total_message_count == 0


def test_receive_and_delete_removes_what_it_delivers():
    bench = Bench()
    bench.send(b"1", b"2")
    (one,) = bench.receive(1, receive_and_delete=True)
    assert (one.lock_token, one.locked_until, one.message.bare) == (b"", 0, b"1")
    assert bench.ns.admin.runtime("q").active_message_count == 1


def test_receive_and_delete_counts_what_is_not_delivered_yet_against_the_credit():
    bench = Bench()
    bench.send(b"one", b"two", b"three")
    receiver, host = bench.receiver(receive_and_delete=True)
    bench.ns.committer.begin_turn()  # nothing is durable, and so nothing delivered, before its end
    receiver.grant(1)
    receiver.grant(1)  # the client grants again, because it has got nothing yet
    assert host.bodies == []
    bench.ns.committer.end_turn()
    assert host.bodies == [b"one"]
    receiver.grant(1)
    assert host.bodies == [b"one", b"two"]


def test_peek_shows_every_state_and_changes_nothing():
    bench = Bench()
    bench.send(b"1", b"2", b"3")
    receiver, host = bench.receiver(credit=2)
    receiver.settle(host.tokens[1], Outcome.DEFER)
    bench.send(b"later", scheduled=bench.clock.now + 1000)
    seen = bench.ns.peek("q", 0, 10)
    assert [d.message.bare for d in seen] == [b"1", b"2", b"3", b"later"]
    assert [d.wire_state for d in seen] == [0, 1, 0, 2]
    assert [d.message.bare for d in bench.ns.peek("q", 2, 2)] == [b"2", b"3"]
    assert bench.ns.peek("q", 5, 10) == []
    assert [d.message.delivery_count for d in seen] == [0, 1, 0, 0]


def test_peek_finds_its_way_in_a_sparse_queue():
    bench = Bench()
    bench.send(b"first")
    receiver, host = bench.receiver(credit=1)
    receiver.settle(host.tokens[0], Outcome.DEFER)
    for _ in range(30):
        bench.send(*[b"x"] * 100)
        bench.receive(100, receive_and_delete=True)
    bench.send(b"last")
    assert [d.message.bare for d in bench.ns.peek("q", 0, 10)] == [b"first", b"last"]
    assert [d.message.bare for d in bench.ns.peek("q", 2, 10)] == [b"last"]


def test_paths_do_not_differ_by_case_and_wrong_ones_are_not_found():
    bench = Bench()
    bench.send(b"1", path="Q")
    assert len(bench.receive(1, path="/Q")) == 1
    with pytest.raises(EntityNotFoundError):
        bench.send(b"1", path="nowhere")
    with pytest.raises(EntityNotFoundError):
        bench.receiver("nowhere")
    with pytest.raises(NotAllowedError):
        bench.send(b"1", path="q/$DeadLetterQueue")


@pytest.mark.parametrize(
    ("status", "can_send", "can_receive"),
    [
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_a_disabled_queue_refuses_what_its_status_says(status, can_send, can_receive):
    bench = Bench()
    bench.send(b"1")
    _, host = bench.receiver()
    bench.ns.admin.update(replace(bench.ns.catalog.queue_entity("q").description, status=status))
    assert (host.error is None) == can_receive
    if can_receive:
        assert len(bench.receive(1)) == 1
    else:
        with pytest.raises(EntityDisabledError):
            bench.receive(1)
    if can_send:
        bench.send(b"2")
    else:
        with pytest.raises(EntityDisabledError):
            bench.send(b"2")
    bench.ns.admin.update(
        replace(bench.ns.catalog.queue_entity("q").description, status=EntityStatus.ACTIVE)
    )
    bench.send(b"3")


def test_a_deleted_queue_ends_its_receivers_and_forgets_its_messages():
    bench = Bench()
    bench.send(b"1")
    receiver, host = bench.receiver(credit=1)
    bench.ns.admin.delete_queue("Q")
    assert isinstance(host.error, EntityNotFoundError)
    receiver.close()
    with pytest.raises(EntityNotFoundError):
        bench.send(b"2")
    bench.ns.admin.create(QueueDescription("q"))
    assert bench.receive(5) == []
    bench.pass_time(600_000)
    assert bench.ns.admin.runtime("q").total_message_count == 0


def test_many_are_completed_at_once_and_the_lost_ones_are_told():
    bench = Bench()
    bench.send(*(b"%d" % n for n in range(600)))
    early = bench.receive(300)
    bench.pass_time(40_000)
    late = bench.receive(300)
    bench.clock.now += 20_000  # the locks of the first are over, and nobody has noticed yet
    tokens = [d.lock_token for d in early + late]
    unknown = b"x" * 16
    lost = bench.ns.update_disposition("q", [*tokens, unknown], Outcome.COMPLETE)
    assert lost == [*(d.lock_token for d in early), unknown]
    assert bench.ns.admin.runtime("q").total_message_count == 300
    again = bench.receive(600)
    assert [d.message.bare for d in again] == [b"%d" % n for n in range(300)]
    assert {d.message.delivery_count for d in again} == {1}


def test_what_came_back_is_delivered_in_its_place_among_many():
    bench = Bench()
    bench.send(*(b"%d" % n for n in range(20)))
    first = bench.receive(10)
    for delivery in (first[7], first[2]):
        bench.ns.update_disposition("q", [delivery.lock_token], Outcome.ABANDON)
    assert [d.message.bare for d in bench.receive(6)] == [b"2", b"7", b"10", b"11", b"12", b"13"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"ttl": 5000},
        {"durable": True, "priority": 9},
        {"annotations": encode({Symbol("k"): 1})},
    ],
)
def test_a_delivery_looks_the_same_in_one_part_or_in_two(fields):
    bench = Bench()
    bench.send(b"\x00\x53\x75\xa0\x01x", **fields)
    (delivery,) = bench.receive()
    assert b"".join(render_locked(delivery)) == render_delivery(delivery)
