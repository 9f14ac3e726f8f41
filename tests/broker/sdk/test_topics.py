"""Topics: subscriptions, rules, actions, forwarding, through the SDK's own clients."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
)


def texts(messages) -> list[str]:
    return [str(message) for message in messages]


@pytest.fixture(scope="module")
def admin(namespace):
    with namespace.admin_client() as client:
        yield client


@pytest.mark.covers("ServiceBusClient.get_topic_sender")
@pytest.mark.covers("ServiceBusClient.get_subscription_receiver")
def test_every_subscription_gets_a_copy_of_its_own(bus) -> None:
    topic = bus.topic("one", "two")
    bus.topic_sender(topic).send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    one, two = bus.subscription(topic, "one"), bus.subscription(topic, "two")
    for receiver in (one, two):
        found = bus.take(receiver, 2)
        assert texts(found) == ["a", "b"]
        receiver.complete_message(found[0])
        bus.settled(receiver)
    assert bus.runtime(f"{topic}/Subscriptions/one").active_message_count == 1


@pytest.mark.covers("RuleProperties.filter", "RuleProperties.action")
def test_rules_choose_and_change_messages(bus, admin) -> None:
    topic = bus.topic("sql", "correlation", "none", "all")
    for name in ("sql", "correlation", "none"):
        admin.delete_rule(topic, name, "$Default")
    admin.create_rule(
        topic,
        "sql",
        "big",
        filter=SqlRuleFilter("amount > @limit AND kind LIKE 'ord%'", {"@limit": 10}),
        action=SqlRuleAction("SET priority = 'high'; REMOVE amount"),
    )
    admin.create_rule(
        topic,
        "correlation",
        "red",
        filter=CorrelationRuleFilter(label="paint", properties={"colour": "red"}),
    )
    admin.create_rule(topic, "none", "never", filter=FalseRuleFilter())
    bus.topic_sender(topic).send_messages(
        [
            ServiceBusMessage("1", application_properties={"amount": 11, "kind": "order"}),
            ServiceBusMessage("2", application_properties={"amount": 9, "kind": "order"}),
            ServiceBusMessage(
                "3", subject="paint", application_properties={"colour": "red", "kind": "x"}
            ),
        ]
    )
    [message] = bus.take(bus.subscription(topic, "sql"))
    assert str(message) == "1"
    assert message.application_properties == {b"kind": b"order", b"priority": b"high"}
    assert texts(bus.take(bus.subscription(topic, "correlation"))) == ["3"]
    assert texts(bus.take(bus.subscription(topic, "all"), 3)) == ["1", "2", "3"]
    assert bus.runtime(f"{topic}/Subscriptions/none").total_message_count == 0


def test_a_subscription_has_its_own_dead_letters(bus) -> None:
    topic = bus.topic("s")
    bus.topic_sender(topic).send_messages(ServiceBusMessage("x"))
    receiver = bus.subscription(topic, "s")
    [message] = bus.take(receiver)
    receiver.dead_letter_message(message, reason="why")
    dead = bus.subscription(topic, "s", sub_queue="deadletter")
    [message] = bus.take(dead)
    assert message.dead_letter_reason == "why"


def test_scheduling_to_a_topic_reaches_its_subscriptions_and_can_be_cancelled(bus) -> None:
    topic = bus.topic("s")
    sender = bus.topic_sender(topic)
    soon = datetime.now(UTC) + timedelta(seconds=0.5)
    sender.schedule_messages(ServiceBusMessage("soon"), soon)
    numbers = sender.schedule_messages(
        ServiceBusMessage("never"), datetime.now(UTC) + timedelta(hours=1)
    )
    sender.cancel_scheduled_messages(numbers)
    receiver = bus.subscription(topic, "s")
    assert texts(bus.take(receiver)) == ["soon"]


@pytest.mark.covers("SubscriptionProperties.requires_session")
def test_a_subscription_can_require_sessions(bus) -> None:
    topic = bus.topic()
    bus.ns.create_subscription(topic, "s", requires_session=True)
    bus.topic_sender(topic).send_messages(ServiceBusMessage("x", session_id="k"))
    receiver = bus.subscription(topic, "s", session_id="k")
    assert texts(bus.take(receiver)) == ["x"]


@pytest.mark.covers("QueueProperties.forward_to", "SubscriptionProperties.forward_to")
@pytest.mark.covers("QueueProperties.forward_dead_lettered_messages_to")
def test_messages_and_dead_letters_are_forwarded(bus) -> None:
    target = bus.queue()
    graves = bus.queue()
    through = bus.queue(forward_to=target)
    topic = bus.topic()
    bus.ns.create_subscription(topic, "s", forward_to=target)
    bus.sender(through).send_messages(ServiceBusMessage("by queue"))
    bus.topic_sender(topic).send_messages(ServiceBusMessage("by topic"))
    receiver = bus.receiver(target, receive_mode="receiveanddelete")
    assert texts(bus.take(receiver, 2)) == ["by queue", "by topic"]
    source = bus.queue(forward_dead_lettered_messages_to=graves)
    bus.sender(source).send_messages(ServiceBusMessage("bad"))
    origin = bus.receiver(source)
    [message] = bus.take(origin)
    origin.dead_letter_message(message, reason="r")
    [message] = bus.take(bus.receiver(graves))
    assert message.dead_letter_reason == "r"
    assert message.dead_letter_source == source


def test_sending_to_a_subscription_and_receiving_from_a_topic_are_refused(bus) -> None:
    topic = bus.topic("s")
    with pytest.raises(ServiceBusError):
        bus.client.get_queue_receiver(topic).__enter__()
    sender = bus.client.get_queue_sender(f"{topic}/Subscriptions/s")
    with pytest.raises(ServiceBusError):
        bus.keep(sender).send_messages(ServiceBusMessage("x"))


@pytest.mark.covers("TopicRuntimeProperties.*", "SubscriptionRuntimeProperties.*")
def test_runtime_properties_of_topics_and_subscriptions(bus, admin) -> None:
    topic = bus.topic("one", "two")
    sender = bus.topic_sender(topic)
    sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    sender.schedule_messages(ServiceBusMessage("c"), datetime.now(UTC) + timedelta(hours=1))
    receiver = bus.subscription(topic, "one")
    [message] = bus.take(receiver)
    receiver.dead_letter_message(message)
    bus.settled(receiver)
    runtime = admin.get_topic_runtime_properties(topic)
    assert (runtime.subscription_count, runtime.scheduled_message_count) == (2, 1)
    assert runtime.size_in_bytes > 0
    assert runtime.created_at_utc <= runtime.updated_at_utc
    one = admin.get_subscription_runtime_properties(topic, "one")
    assert (one.active_message_count, one.dead_letter_message_count) == (1, 1)
    assert one.total_message_count == 2
    two = admin.get_subscription_runtime_properties(topic, "two")
    assert (two.active_message_count, two.total_message_count) == (2, 2)


@pytest.mark.covers("SubscriptionProperties.max_delivery_count")
@pytest.mark.covers("SubscriptionProperties.forward_dead_lettered_messages_to")
def test_a_subscription_obeys_its_own_limits(bus) -> None:
    graves = bus.queue()
    topic = bus.topic()
    bus.ns.create_subscription(
        topic, "s", max_delivery_count=1, forward_dead_lettered_messages_to=graves
    )
    bus.topic_sender(topic).send_messages(ServiceBusMessage("x"))
    receiver = bus.subscription(topic, "s")
    [message] = bus.take(receiver)
    receiver.abandon_message(message)
    [message] = bus.take(bus.receiver(graves))
    assert message.dead_letter_reason == "MaxDeliveryCountExceeded"


@pytest.mark.covers("SubscriptionProperties.dead_lettering_on_filter_evaluation_exceptions")
def test_a_filter_that_fails_dead_letters_where_the_subscription_says_so(bus, admin) -> None:
    topic = bus.topic()
    for name, wanted in (("kept", True), ("dropped", False)):
        bus.ns.create_subscription(
            topic, name, dead_lettering_on_filter_evaluation_exceptions=wanted
        )
        admin.delete_rule(topic, name, "$Default")
        admin.create_rule(topic, name, "bad", filter=SqlRuleFilter("amount / 0 = 1"))
    bus.topic_sender(topic).send_messages(
        ServiceBusMessage("x", application_properties={"amount": 1})
    )
    kept = bus.runtime(f"{topic}/Subscriptions/kept")
    dropped = bus.runtime(f"{topic}/Subscriptions/dropped")
    assert (kept.dead_letter_message_count, dropped.dead_letter_message_count) == (1, 0)


@pytest.mark.covers("TopicProperties.requires_duplicate_detection", "TopicProperties.status")
def test_a_topic_detects_duplicates_and_can_be_disabled(bus, admin) -> None:
    topic = bus.topic(requires_duplicate_detection=True)
    bus.ns.create_subscription(topic, "s")
    sender = bus.topic_sender(topic)
    for _ in range(2):
        sender.send_messages(ServiceBusMessage("x", message_id="same"))
    assert bus.runtime(f"{topic}/Subscriptions/s").active_message_count == 1
    properties = admin.get_topic(topic)
    properties.status = "Disabled"
    admin.update_topic(properties)
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("y"))


def test_what_cannot_be_forwarded_waits_in_the_transfer_dead_letter_queue(bus, admin) -> None:
    target = bus.queue()
    source = bus.queue(forward_to=target)
    admin.delete_queue(target)
    bus.sender(source).send_messages(ServiceBusMessage("lost on the way"))
    receiver = bus.receiver(source, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
    [message] = bus.take(receiver)
    assert str(message) == "lost on the way"
    assert message.dead_letter_reason
    runtime = admin.get_queue_runtime_properties(source)
    assert runtime.transfer_dead_letter_message_count == 1
    receiver.complete_message(message)
