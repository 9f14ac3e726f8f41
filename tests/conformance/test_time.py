"""Time: scheduling, expiry, duplicates, forwarding."""

import datetime as dt

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue

DELETE = {"receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE}


def test_scheduled_message_comes_at_its_time_unless_it_is_cancelled(bus):
    queue = bus.queue()
    sender = bus.sender(queue)
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=6)
    kept, cancelled = sender.schedule_messages(
        [ServiceBusMessage("kept"), ServiceBusMessage("cancelled")], soon
    )
    sender.cancel_scheduled_messages(cancelled)
    receiver = bus.receiver(queue, **DELETE)
    [peeked] = receiver.peek_messages(10)
    assert peeked.sequence_number == kept
    [message] = bus.take(receiver)
    assert str(message) == "kept"
    assert dt.datetime.now(dt.UTC) >= soon
    assert bus.is_empty(receiver)


def test_expired_message_is_dead_lettered_where_the_queue_says_so(bus):
    queue = bus.queue(dead_lettering_on_message_expiration=True)
    bus.send(queue, ServiceBusMessage("x", time_to_live=dt.timedelta(seconds=1)))
    [letter] = bus.take(bus.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER))
    assert letter.dead_letter_reason == "TTLExpiredException"


def test_expired_message_is_dropped_where_the_queue_does_not_say_so(bus):
    queue = bus.queue(default_message_time_to_live=dt.timedelta(seconds=1))
    bus.send(queue, ServiceBusMessage("x", time_to_live=dt.timedelta(hours=1)))
    receiver = bus.receiver(queue, **DELETE)
    deadline = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=bus.target.wait)
    while receiver.peek_messages() and dt.datetime.now(dt.UTC) < deadline:
        pass  # a peek takes as long as the network
    assert receiver.peek_messages() == []


def test_message_with_the_id_of_another_is_dropped_within_the_window(bus):
    queue = bus.queue(requires_duplicate_detection=True)
    bus.send(queue, *(ServiceBusMessage(body, message_id="one") for body in ("first", "second")))
    bus.send(queue, ServiceBusMessage("third", message_id="two"))
    receiver = bus.receiver(queue, **DELETE)
    assert [str(message) for message in bus.take(receiver, 2)] == ["first", "third"]
    assert bus.is_empty(receiver)


def test_messages_and_dead_letters_are_forwarded(bus):
    last = bus.queue()
    letters = bus.queue()
    middle = bus.queue(forward_dead_lettered_messages_to=letters)
    first = bus.queue(forward_to=last)
    bus.send(first, ServiceBusMessage("x"))
    [message] = bus.take(bus.receiver(last, **DELETE))
    assert str(message) == "x"
    bus.send(middle, ServiceBusMessage("y"))
    receiver = bus.receiver(middle)
    [message] = bus.take(receiver)
    receiver.dead_letter_message(message, reason="why")
    [letter] = bus.take(bus.receiver(letters, **DELETE))
    assert letter.dead_letter_reason == "why"
