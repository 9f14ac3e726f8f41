"""Sessions: one holder each, in order, with state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pairbus.broker.entities.errors import (
    ArgumentError,
    EntityDisabledError,
    EntityNotFoundError,
    NotAllowedError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from pairbus.broker.entities.messages import Outcome
from pairbus.broker.entities.model import EntityStatus
from pairbus.broker.entities.receiver import Receiver
from tests.broker.entities.kit import Bench, Host


@pytest.fixture
def bench() -> Bench:
    return Bench(requires_session=True)


def accept_next(bench: Bench, credit: int = 9):
    accepted: list[Receiver] = []
    host = Host()
    pending = bench.ns.receivers.accept_next("q", host, accepted.append)
    if accepted and credit:
        accepted[0].grant(credit)
    return pending, accepted, host


def test_a_session_queue_refuses_messages_and_receivers_without_a_session(bench):
    with pytest.raises(NotAllowedError):
        bench.send(b"1")
    with pytest.raises(NotAllowedError):
        bench.receiver()
    with pytest.raises(NotAllowedError):
        Bench().receiver(session_id="s")


def test_a_holder_gets_the_messages_of_its_session_in_order(bench):
    bench.send(b"a1", session_id="a")
    bench.send(b"b1", session_id="b")
    bench.send(b"a2", session_id="a")
    _, host = bench.receiver(credit=9, session_id="a")
    bench.send(b"b2", session_id="b")
    bench.send(b"a3", session_id="a")
    assert host.bodies == [b"a1", b"a2", b"a3"]


def test_a_session_has_one_holder_and_is_free_when_it_closes(bench):
    bench.send(b"1", session_id="a")
    receiver, host = bench.receiver(credit=1, session_id="a")
    with pytest.raises(SessionCannotBeLockedError):
        bench.receiver(session_id="a")
    receiver.close()
    _, other = bench.receiver(credit=1, session_id="a")
    assert other.bodies == [b"1"]
    assert other.deliveries[0].message.delivery_count == 0  # closing counts nothing
    with pytest.raises(SessionLockLostError):
        receiver.settle(host.tokens[0], Outcome.COMPLETE)


def test_the_next_available_session_is_the_one_that_waits_longest(bench):
    bench.send(b"b", session_id="b")
    bench.send(b"a", session_id="a")
    _, (first,), host = accept_next(bench)
    _, (second,), _ = accept_next(bench)
    assert (first.session.session_id, second.session.session_id) == ("b", "a")
    assert host.bodies == [b"b"]
    assert first.session.locked_until == bench.clock.now + 60_000


def test_who_waits_for_a_session_gets_one_when_a_message_comes(bench):
    _, accepted, _ = accept_next(bench)
    pending, never, _ = accept_next(bench)
    assert accepted == []
    bench.send(b"1", session_id="a")
    assert [r.session.session_id for r in accepted] == ["a"]
    pending.cancel()
    pending.cancel()
    bench.send(b"2", session_id="b")
    assert never == []


def test_who_waits_for_a_session_is_told_when_the_queue_is_deleted(bench):
    _, _, host = accept_next(bench)
    bench.ns.admin.delete_queue("q")
    assert isinstance(host.error, EntityNotFoundError)


def test_who_waits_does_not_get_the_session_of_a_holder_whose_queue_is_deleted(bench):
    bench.send(b"1", session_id="a")
    _, holder = bench.receiver(session_id="a")
    _, accepted, host = accept_next(bench)
    bench.ns.admin.delete_queue("q")
    assert accepted == []
    assert isinstance(host.error, EntityNotFoundError)
    assert isinstance(holder.error, EntityNotFoundError)


def test_an_empty_session_can_be_accepted_by_name_but_is_not_the_next_one(bench):
    receiver, host = bench.receiver(credit=1, session_id="new")
    assert host.bodies == []
    receiver.close()
    _, accepted, _ = accept_next(bench)
    assert accepted == []


def test_a_session_lock_that_ends_frees_the_session_and_counts(bench):
    bench.send(b"1", b"2", session_id="a")
    receiver, host = bench.receiver(credit=1, session_id="a")
    bench.pass_time(60_000)
    assert isinstance(host.error, SessionLockLostError)
    with pytest.raises(SessionLockLostError):
        receiver.settle(host.tokens[0], Outcome.COMPLETE)
    with pytest.raises(SessionLockLostError):
        bench.ns.receivers.renew_session("q", "a")
    _, again = bench.receiver(credit=9, session_id="a")
    assert again.bodies == [b"1", b"2"]
    assert [d.message.delivery_count for d in again.deliveries] == [1, 0]


def test_a_renewed_session_keeps_its_messages_locked(bench):
    bench.send(b"1", session_id="a")
    receiver, host = bench.receiver(credit=1, session_id="a")
    bench.pass_time(50_000)
    assert bench.ns.receivers.renew_session("q", "a") == bench.clock.now + 60_000
    bench.pass_time(50_000)
    receiver.settle(host.tokens[0], Outcome.COMPLETE)
    assert bench.ns.admin.runtime("q").total_message_count == 0


def test_an_abandoned_message_comes_again_before_the_rest_of_its_session(bench):
    bench.send(b"1", b"2", b"3", session_id="a")
    receiver, host = bench.receiver(credit=2, session_id="a")
    receiver.settle(host.tokens[0], Outcome.ABANDON)
    host.take()
    receiver.grant(5)
    assert host.bodies == [b"1", b"3"]


def test_state_belongs_to_the_holder_and_outlives_it(bench):
    with pytest.raises(SessionLockLostError):
        bench.ns.receivers.session_state("q", "a")
    receiver, _ = bench.receiver(session_id="a")
    assert bench.ns.receivers.session_state("q", "a") is None
    bench.ns.receivers.set_session_state("q", "a", b"x")
    receiver.close()
    bench.receiver(session_id="a")
    assert bench.ns.receivers.session_state("q", "a") == b"x"


def test_sessions_are_listed_by_messages_or_by_state_set_since(bench):
    for name in ("a", "b", "c"):
        bench.send(b"1", session_id=name)
    assert bench.ns.receivers.list_sessions("q") == ["a", "b", "c"]
    assert bench.ns.receivers.list_sessions("q", skip=1, top=1) == ["b"]
    assert bench.ns.receivers.list_sessions("q", updated_since=0) == []
    bench.pass_time(1000)
    bench.receiver(session_id="b")
    bench.ns.receivers.set_session_state("q", "b", b"x")
    assert bench.ns.receivers.list_sessions("q", updated_since=bench.clock.now) == ["b"]
    bench.pass_time(500)
    bench.send(b"2", session_id="b")  # a message is no news of the state
    assert bench.ns.receivers.list_sessions("q", updated_since=bench.clock.now) == []
    assert bench.ns.receivers.list_sessions("q", updated_since=bench.clock.now + 1) == []
    with pytest.raises(NotAllowedError):
        Bench().ns.receivers.list_sessions("q")


def test_locks_of_deferred_messages_follow_their_session_if_its_holder_deletes_messages(bench):
    bench.send(b"1", session_id="a")
    receiver, host = bench.receiver(credit=1, session_id="a")
    receiver.settle(host.tokens[0], Outcome.DEFER)
    receiver.close()
    destructive, _ = bench.receiver(session_id="a", receive_and_delete=True)
    (locked,) = bench.ns.receivers.take_deferred("q", [1], session_id="a")
    bench.clock.now += 1000
    assert bench.ns.receivers.renew_session("q", "a") == locked.message.locked_until
    destructive.close()
    bench.receiver(session_id="a")
    (again,) = bench.ns.receivers.take_deferred("q", [1], session_id="a")
    assert again.message.delivery_count == 1  # closing counts nothing


def test_deferred_messages_of_a_session_need_its_lock(bench):
    bench.send(b"1", session_id="a")
    receiver, host = bench.receiver(credit=1, session_id="a")
    receiver.settle(host.tokens[0], Outcome.DEFER)
    (one,) = bench.ns.receivers.take_deferred("q", [1], session_id="a")
    assert bench.ns.update_disposition(
        "q", [one.lock_token], Outcome.COMPLETE, session_id="a"
    ) == []  # fmt: skip
    receiver.close()
    with pytest.raises(SessionLockLostError):
        bench.ns.receivers.take_deferred("q", [1], session_id="a")


def test_an_expired_session_is_not_the_next_one(bench):
    bench.send(b"1", session_id="a", ttl=1000)
    bench.send(b"2", session_id="b")
    bench.clock.now += 1000
    _, (receiver,), _ = accept_next(bench)
    assert receiver.session.session_id == "b"


def test_a_session_whose_last_message_is_taken_by_number_is_not_the_next_one(bench):
    bench.send(b"1", session_id="a", ttl=500)
    bench.pass_time(500)
    _, accepted, _ = accept_next(bench)
    assert accepted == []


def test_a_disabled_session_queue_serves_nobody(bench):
    bench.send(b"1", session_id="a")
    receiver, host = bench.receiver(session_id="a")
    _, _, waiting = accept_next(bench)
    status = EntityStatus.RECEIVE_DISABLED
    bench.ns.admin.update(replace(bench.ns.catalog.queue_entity("q").description, status=status))
    assert isinstance(host.error, EntityDisabledError)
    assert isinstance(waiting.error, EntityDisabledError)
    receiver.grant(5)
    bench.send(b"2", session_id="a")
    assert host.bodies == []


def test_message_locks_of_a_session_are_renewed_with_it_and_not_alone(bench):
    bench.send(b"1", session_id="a")
    _, host = bench.receiver(credit=1, session_id="a")
    with pytest.raises(ArgumentError):
        bench.ns.renew_lock("q", host.tokens)


def test_peek_can_look_at_one_session(bench):
    bench.send(b"a", session_id="a")
    bench.send(b"b", session_id="b")
    assert [d.message.bare for d in bench.ns.peek("q", 0, 9, session_id="b")] == [b"b"]
    assert len(bench.ns.peek("q", 0, 9)) == 2


def test_a_session_is_forgotten_when_nothing_is_left_of_it(bench):
    bench.send(b"1", session_id="a")
    receiver, host = bench.receiver(credit=1, session_id="a")
    receiver.settle(host.tokens[0], Outcome.COMPLETE)
    receiver.close()
    assert bench.ns.catalog.queue_at("q").store.sessions == {}


def test_dead_letters_of_a_session_queue_are_received_without_a_session(bench):
    bench.send(b"\x00\x53\x75\xa0\x01x", session_id="a")
    receiver, host = bench.receiver(credit=1, session_id="a")
    receiver.settle(host.tokens[0], Outcome.DEAD_LETTER, reason="r")
    (dead,) = bench.receive(1, path="q/$DeadLetterQueue")
    assert dead.message.session_id == "a"
