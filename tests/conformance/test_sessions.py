"""Sessions: order, exclusive locks, state."""

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, SessionCannotBeLockedError


@pytest.fixture(scope="module")
def queue(bus):
    return bus.queue(requires_session=True)


def send(bus, queue, session_id, *bodies):
    bus.send(queue, *(ServiceBusMessage(body, session_id=session_id) for body in bodies))


def receive_all(bus, receiver, count):
    found = bus.take(receiver, count)
    for message in found:
        receiver.complete_message(message)
    return [str(message) for message in found]


def test_session_delivers_only_its_own_messages_in_order(bus, queue):
    send(bus, queue, "a", "a1", "a2")
    send(bus, queue, "b", "b1")
    assert receive_all(bus, bus.receiver(queue, session_id="a"), 2) == ["a1", "a2"]
    assert receive_all(bus, bus.receiver(queue, session_id="b"), 1) == ["b1"]


def test_session_that_is_held_cannot_be_accepted(bus, queue):
    holder = bus.receiver(queue, session_id="held")
    with pytest.raises(SessionCannotBeLockedError):
        bus.client.get_queue_receiver(queue, session_id="held").__enter__()
    holder.close()
    bus.receiver(queue, session_id="held")


def test_state_is_kept_with_the_session(bus, queue):
    with bus.client.get_queue_receiver(queue, session_id="state") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state(b"\x00state")
    with bus.client.get_queue_receiver(queue, session_id="state") as receiver:
        assert receiver.session.get_state() == b"\x00state"
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None


def test_renewing_extends_the_lock_of_a_session(bus, queue):
    receiver = bus.receiver(queue, session_id="renewed")
    before = receiver.session.locked_until_utc
    assert receiver.session.renew_lock() > before


def test_next_session_is_one_with_messages_that_nobody_holds(bus):
    queue = bus.queue(requires_session=True)
    send(bus, queue, "x", "x1")
    receiver = bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION)
    assert receiver.session.session_id == "x"
    assert receive_all(bus, receiver, 1) == ["x1"]


def test_waiting_for_a_session_ends_after_the_time_that_the_client_gives(bus):
    queue = bus.queue(requires_session=True)
    receiver = bus.client.get_queue_receiver(
        queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
    )
    with pytest.raises(OperationTimeoutError):
        receiver.__enter__()


@pytest.mark.unknown
def test_empty_session_id_is_a_session_id(bus, queue):
    send(bus, queue, "", "e1")
    receiver = bus.receiver(queue, session_id="")
    assert receive_all(bus, receiver, 1) == ["e1"]
