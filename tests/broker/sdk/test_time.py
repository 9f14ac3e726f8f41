"""What time does to messages: schedules, time to live, locks that end, duplicates that are known.

The broker runs on a clock that the test moves, so that an hour takes no time at all.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError, SessionLockLostError

from pairbus.broker import RunningNamespace, run
from pairbus.testing import FakeClock


@pytest.fixture(scope="module")
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="module")
def namespace(clock: FakeClock) -> Iterator[RunningNamespace]:
    with run(clock=clock, idle_link_timeout=0, idle_connection_timeout=0) as ns:
        yield ns


def texts(messages) -> list[str]:
    return [str(message) for message in messages]


@pytest.mark.covers("ServiceBusSender.schedule_messages")
@pytest.mark.covers("ServiceBusSender.cancel_scheduled_messages")
def test_scheduled_messages_come_at_their_time_unless_cancelled(bus, clock) -> None:
    queue = bus.queue()
    sender = bus.sender(queue)
    at = datetime.fromtimestamp(clock(), UTC) + timedelta(hours=1)
    numbers = sender.schedule_messages([ServiceBusMessage("one"), ServiceBusMessage("two")], at)
    [third] = sender.schedule_messages(ServiceBusMessage("three"), at)
    assert len({*numbers, third}) == 3
    assert bus.runtime(queue).scheduled_message_count == 3
    sender.cancel_scheduled_messages(numbers[0])
    receiver = bus.receiver(queue)
    assert bus.is_empty(receiver)
    clock.advance(3601)
    found = bus.take(receiver, 2)
    assert texts(found) == ["two", "three"]
    assert found[0].scheduled_enqueue_time_utc is not None
    with pytest.raises(ServiceBusError):
        sender.cancel_scheduled_messages(numbers[1])


def test_a_message_with_a_schedule_of_its_own_waits_too(bus, clock) -> None:
    queue = bus.queue()
    at = datetime.fromtimestamp(clock(), UTC) + timedelta(minutes=10)
    bus.sender(queue).send_messages(ServiceBusMessage("later", scheduled_enqueue_time_utc=at))
    receiver = bus.receiver(queue)
    assert bus.is_empty(receiver)
    clock.advance(601)
    assert texts(bus.take(receiver)) == ["later"]


def test_an_expired_message_is_dropped(bus, clock) -> None:
    queue = bus.queue()
    bus.sender(queue).send_messages(ServiceBusMessage("x", time_to_live=timedelta(seconds=30)))
    clock.advance(31)
    assert bus.runtime(queue).total_message_count == 0
    assert bus.runtime(queue).dead_letter_message_count == 0


@pytest.mark.covers("QueueProperties.default_message_time_to_live")
@pytest.mark.covers("QueueProperties.dead_lettering_on_message_expiration")
def test_an_expired_message_is_dead_lettered_where_the_queue_says_so(bus, clock) -> None:
    queue = bus.queue(
        default_message_time_to_live=timedelta(minutes=1),
        dead_lettering_on_message_expiration=True,
    )
    bus.sender(queue).send_messages(ServiceBusMessage("x", time_to_live=timedelta(hours=5)))
    clock.advance(61)  # the shorter of the two counts
    dead = bus.receiver(queue, sub_queue="deadletter")
    [message] = bus.take(dead)
    assert message.dead_letter_reason == "TTLExpiredException"


def test_a_lock_that_ends_gives_the_message_back(bus, clock) -> None:
    queue = bus.queue(lock_duration=timedelta(seconds=30))
    bus.sender(queue).send_messages(ServiceBusMessage("x"))
    receiver = bus.receiver(queue)
    [message] = bus.take(receiver)
    clock.advance(31)
    if bus.waits_for_outcome:
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
    [message] = bus.take(receiver)
    assert message.delivery_count == 1


def test_a_session_lock_that_ends_detaches_its_receiver(bus, clock) -> None:
    queue = bus.queue(requires_session=True, lock_duration=timedelta(seconds=30))
    bus.sender(queue).send_messages(ServiceBusMessage("x", session_id="s"))
    receiver = bus.receiver(queue, session_id="s")
    [message] = bus.take(receiver)
    clock.advance(31)
    if bus.waits_for_outcome:
        with pytest.raises((SessionLockLostError, ServiceBusError)):
            receiver.complete_message(message)
    other = bus.receiver(queue, session_id="s")
    [message] = bus.take(other)
    assert message.delivery_count == 1


@pytest.mark.covers("QueueProperties.requires_duplicate_detection")
@pytest.mark.covers("QueueProperties.duplicate_detection_history_time_window")
def test_a_duplicate_within_the_window_is_dropped(bus, clock) -> None:
    queue = bus.queue(
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=1),
    )
    sender = bus.sender(queue)
    for _ in range(3):
        sender.send_messages(ServiceBusMessage("same", message_id="m1"))
    sender.send_messages(ServiceBusMessage("other", message_id="m2"))
    assert bus.runtime(queue).active_message_count == 2
    clock.advance(120)
    sender.send_messages(ServiceBusMessage("same again", message_id="m1"))
    assert bus.runtime(queue).active_message_count == 3


@pytest.mark.covers("QueueProperties.auto_delete_on_idle")
def test_an_idle_queue_is_deleted(bus, clock) -> None:
    queue = bus.queue(auto_delete_on_idle=timedelta(minutes=5))
    assert bus.ns.do(lambda ns: ns.catalog.find(queue)) is not None
    clock.advance(301)
    assert bus.ns.do(lambda ns: ns.catalog.find(queue)) is None


def test_a_ping_is_counted_and_never_seen(bus, clock) -> None:
    queue = bus.queue(dead_lettering_on_message_expiration=True)
    bus.sender(queue).send_messages(
        ServiceBusMessage(
            b"",
            content_type="application/vnd.ms-servicebus-ping",
            time_to_live=timedelta(seconds=1),
        )
    )
    receiver = bus.receiver(queue)
    assert bus.is_empty(receiver)
    assert receiver.peek_messages() == []
    assert bus.runtime(queue).total_message_count == 0
    clock.advance(2)
    assert bus.runtime(queue).dead_letter_message_count == 0
    assert bus.ns.operations[queue]["ping"]["billable"] == 1
