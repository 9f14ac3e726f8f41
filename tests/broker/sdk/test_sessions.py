"""Sessions: held by one receiver at a time, in order, with state, renewal and listing."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
)


def texts(messages) -> list[str]:
    return [str(message) for message in messages]


def send(bus, queue: str, **sessions: list[str]) -> None:
    bus.sender(queue).send_messages(
        [
            ServiceBusMessage(body, session_id=session)
            for session, bodies in sessions.items()
            for body in bodies
        ]
    )


@pytest.mark.covers("ServiceBusReceiver.session", "QueueProperties.requires_session")
@pytest.mark.covers("ServiceBusSession.session_id", "ServiceBusSession.locked_until_utc")
def test_a_named_session_delivers_only_its_own_messages_in_order(bus) -> None:
    queue = bus.queue(requires_session=True)
    send(bus, queue, a=["a1", "a2"], b=["b1"])
    receiver = bus.receiver(queue, session_id="a")
    assert receiver.session.session_id == "a"
    assert receiver.session.locked_until_utc > datetime.now(UTC)
    found = bus.take(receiver, 2)
    assert texts(found) == ["a1", "a2"]
    assert {m.session_id for m in found} == {"a"}
    for message in found:
        receiver.complete_message(message)
    assert bus.is_empty(receiver)
    other = bus.receiver(queue, session_id="b")
    assert texts(bus.take(other)) == ["b1"]


def test_a_session_that_is_held_cannot_be_accepted_until_it_is_closed(bus) -> None:
    queue = bus.queue(requires_session=True)
    send(bus, queue, a=["a1"])
    with bus.client.get_queue_receiver(queue, session_id="a") as holder:
        [message] = bus.take(holder)
        with pytest.raises(SessionCannotBeLockedError):
            bus.client.get_queue_receiver(queue, session_id="a").__enter__()
    receiver = bus.receiver(queue, session_id="a")
    [message] = bus.take(receiver)
    assert message.delivery_count == 0
    receiver.complete_message(message)


def test_the_next_available_session_is_one_with_messages_that_nobody_holds(bus) -> None:
    queue = bus.queue(requires_session=True)
    send(bus, queue, a=["a1"], b=["b1"])
    first = bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5)
    second = bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5)
    assert {first.session.session_id, second.session.session_id} == {"a", "b"}
    with pytest.raises(OperationTimeoutError):
        bus.client.get_queue_receiver(
            queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.3
        ).__enter__()


def test_waiting_for_the_next_session_ends_when_one_appears(bus) -> None:
    queue = bus.queue(requires_session=True)
    sender = bus.sender(queue)
    timer = threading.Timer(
        0.7, lambda: sender.send_messages(ServiceBusMessage("late", session_id="late"))
    )
    timer.start()
    receiver = bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=10)
    assert receiver.session.session_id == "late"
    timer.join()


@pytest.mark.covers("ServiceBusSession.set_state", "ServiceBusSession.get_state")
def test_state_is_kept_with_the_session(bus) -> None:
    queue = bus.queue(requires_session=True)
    with bus.client.get_queue_receiver(queue, session_id="s") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state("halfway")
        assert receiver.session.get_state() == b"halfway"
    receiver = bus.receiver(queue, session_id="s")
    assert receiver.session.get_state() == b"halfway"
    receiver.session.set_state(None)
    assert receiver.session.get_state() is None


@pytest.mark.covers("ServiceBusSession.renew_lock")
def test_renewing_extends_the_session_lock(bus) -> None:
    queue = bus.queue(requires_session=True, lock_duration=timedelta(seconds=20))
    receiver = bus.receiver(queue, session_id="s")
    before = receiver.session.locked_until_utc
    until = receiver.session.renew_lock()
    assert until >= before
    assert receiver.session.locked_until_utc == until


def test_messages_of_a_session_are_deferred_abandoned_and_dead_lettered(bus) -> None:
    queue = bus.queue(requires_session=True)
    send(bus, queue, s=["one", "two", "three"])
    receiver = bus.receiver(queue, session_id="s")
    one, two, three = bus.take(receiver, 3)
    receiver.defer_message(one)
    receiver.dead_letter_message(two, reason="no")
    receiver.abandon_message(three)
    [three] = bus.take(receiver)
    assert three.delivery_count == 1
    receiver.complete_message(three)
    [one] = receiver.receive_deferred_messages([one.sequence_number])
    assert str(one) == "one"
    dead = bus.receiver(queue, sub_queue="deadletter")
    [two] = bus.take(dead)
    assert (str(two), two.session_id) == ("two", "s")
    dead.complete_message(two)


def test_peek_in_a_session_shows_only_its_messages(bus) -> None:
    queue = bus.queue(requires_session=True)
    send(bus, queue, a=["a1", "a2"], b=["b1"])
    receiver = bus.receiver(queue, session_id="a")
    assert texts(receiver.peek_messages(10, sequence_number=1)) == ["a1", "a2"]


def test_a_receiver_without_a_session_is_refused(bus) -> None:
    queue = bus.queue(requires_session=True)
    with pytest.raises(ServiceBusError, match="session"):
        bus.client.get_queue_receiver(queue).__enter__()
    plain = bus.queue()
    with pytest.raises(ServiceBusError, match="session"):
        bus.client.get_queue_receiver(plain, session_id="a").__enter__()


def test_a_message_without_a_session_is_refused(bus) -> None:
    queue = bus.queue(requires_session=True)
    with pytest.raises(ServiceBusError, match="session"):
        bus.sender(queue).send_messages(ServiceBusMessage("homeless"))


@pytest.mark.covers("ServiceBusClient.list_queue_sessions")
@pytest.mark.covers("ServiceBusClient.list_subscription_sessions")
def test_sessions_are_listed(bus) -> None:
    queue = bus.queue(requires_session=True)
    send(bus, queue, a=["1"], b=["2"], c=["3"])
    list_sessions = getattr(bus.client, "list_queue_sessions", None)
    if list_sessions is None:
        pytest.skip("this azure-servicebus cannot list sessions")
    assert sorted(list_sessions(queue)) == ["a", "b", "c"]
    topic = bus.topic()
    bus.ns.create_subscription(topic, "s", requires_session=True)
    bus.topic_sender(topic).send_messages(ServiceBusMessage("x", session_id="d"))
    assert list(bus.client.list_subscription_sessions(topic, "s")) == ["d"]


def test_the_empty_session_id_is_a_session_id(bus) -> None:
    queue = bus.queue(requires_session=True)
    bus.sender(queue).send_messages(ServiceBusMessage("x", session_id=""))
    receiver = bus.receiver(queue, session_id="")
    [message] = bus.take(receiver)
    assert message.session_id == ""
    receiver.complete_message(message)
