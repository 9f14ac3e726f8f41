"""Queues: sending, receiving, settling."""

import datetime as dt
import uuid

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError


def texts(messages):
    return [str(message) for message in messages]


def test_messages_arrive_in_the_order_in_which_they_were_sent(bus):
    queue = bus.queue()
    bus.send(queue, *(ServiceBusMessage(str(n)) for n in range(5)))
    receiver = bus.receiver(queue)
    found = bus.take(receiver, 5)
    assert texts(found) == ["0", "1", "2", "3", "4"]
    numbers = [message.sequence_number for message in found]
    assert numbers == sorted(numbers)
    assert all(message.delivery_count == 0 for message in found)
    for message in found:
        receiver.complete_message(message)
    assert receiver.peek_messages() == []


def test_properties_of_every_type_survive(bus):
    queue = bus.queue()
    properties = {
        "text": "ü",
        "int": 7,
        "float": 1.5,
        "bool": True,
        "uuid": uuid.UUID(int=5),
    }
    sent = ServiceBusMessage(
        b"\x00body",
        application_properties=properties,
        message_id="id",
        subject="subject",
        content_type="text/x",
        correlation_id="correlation",
        reply_to="reply",
        to="to",
        reply_to_session_id="rs",
        time_to_live=dt.timedelta(hours=1),
    )
    bus.send(queue, sent)
    [found] = bus.take(bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE))
    assert b"".join(found.body) == b"\x00body"
    read = {key.decode(): value for key, value in found.application_properties.items()}
    read["text"] = read["text"].decode() if isinstance(read["text"], bytes) else read["text"]
    assert read == properties
    names = ("message_id", "subject", "content_type", "correlation_id", "reply_to", "to")
    for name in (*names, "reply_to_session_id", "time_to_live"):
        assert getattr(found, name) == getattr(sent, name), name


@pytest.mark.unknown
def test_message_without_an_id_gets_one(bus):
    queue = bus.queue()
    bus.send(queue, ServiceBusMessage("x"))
    [found] = bus.take(bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE))
    assert found.message_id


def test_batch_arrives_as_single_messages_in_order(bus):
    queue = bus.queue()
    sender = bus.sender(queue)
    batch = sender.create_message_batch()
    for n in range(10):
        batch.add_message(ServiceBusMessage(str(n)))
    sender.send_messages(batch)
    receiver = bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    assert texts(bus.take(receiver, 10)) == [str(n) for n in range(10)]
    assert bus.is_empty(receiver)


def test_abandoned_message_is_delivered_again_and_at_last_dead_lettered(bus):
    queue = bus.queue(max_delivery_count=2)
    bus.send(queue, ServiceBusMessage("x"))
    receiver = bus.receiver(queue)
    for count in range(2):
        [message] = bus.take(receiver)
        assert message.delivery_count == count
        receiver.abandon_message(message)
    [letter] = bus.take(bus.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER))
    assert letter.dead_letter_reason == "MaxDeliveryCountExceeded"


def test_dead_letter_carries_its_reason_and_description(bus):
    queue = bus.queue()
    bus.send(queue, ServiceBusMessage("x"))
    receiver = bus.receiver(queue)
    [message] = bus.take(receiver)
    receiver.dead_letter_message(message, reason="why", error_description="because")
    letters = bus.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    [letter] = bus.take(letters)
    assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("why", "because")
    letters.complete_message(letter)


def test_deferred_message_is_received_by_its_number_only(bus):
    queue = bus.queue()
    bus.send(queue, ServiceBusMessage("x"))
    receiver = bus.receiver(queue)
    [message] = bus.take(receiver)
    receiver.defer_message(message)
    assert bus.is_empty(receiver)
    [deferred] = receiver.receive_deferred_messages(message.sequence_number)
    assert str(deferred) == "x"
    receiver.complete_message(deferred)
    with pytest.raises(ServiceBusError):
        receiver.receive_deferred_messages(message.sequence_number)


def test_peek_shows_the_state_of_each_message_and_changes_nothing(bus):
    queue = bus.queue()
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    bus.send(queue, ServiceBusMessage("deferred"), ServiceBusMessage("active"))
    bus.sender(queue).schedule_messages(ServiceBusMessage("scheduled"), later)
    receiver = bus.receiver(queue)
    [first] = bus.take(receiver)
    receiver.defer_message(first)
    shown = {
        str(message): message.state for message in receiver.peek_messages(10, sequence_number=1)
    }
    assert shown == {
        "deferred": ServiceBusMessageState.DEFERRED,
        "active": ServiceBusMessageState.ACTIVE,
        "scheduled": ServiceBusMessageState.SCHEDULED,
    }
    assert texts(bus.take(receiver)) == ["active"]


def test_renewing_a_lock_extends_it(bus):
    queue = bus.queue(lock_duration=dt.timedelta(seconds=30))
    bus.send(queue, ServiceBusMessage("x"))
    receiver = bus.receiver(queue)
    [message] = bus.take(receiver)
    before = message.locked_until_utc
    assert receiver.renew_message_lock(message) > before
    receiver.complete_message(message)


@pytest.mark.long
def test_message_whose_lock_expired_is_delivered_again_and_cannot_be_settled(bus):
    queue = bus.queue(lock_duration=dt.timedelta(seconds=5))
    bus.send(queue, ServiceBusMessage("x"))
    receiver = bus.receiver(queue)
    [message] = bus.take(receiver)
    other = bus.receiver(queue)
    [again] = other.receive_messages(max_wait_time=15)
    assert again.delivery_count == 1
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(message)
    other.complete_message(again)


def test_received_and_deleted_message_is_gone(bus):
    queue = bus.queue()
    bus.send(queue, ServiceBusMessage("x"))
    receiver = bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    bus.take(receiver)
    assert receiver.peek_messages() == []
