"""Administration: descriptions, updates, limits."""

import datetime as dt

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import SqlRuleFilter


def test_queue_has_the_given_properties_and_the_defaults_of_the_service(bus):
    queue = bus.queue(lock_duration=dt.timedelta(seconds=45), max_delivery_count=7)
    found = bus.admin.get_queue(queue)
    assert found.lock_duration == dt.timedelta(seconds=45)
    assert found.max_delivery_count == 7
    assert found.requires_session is False
    assert found.dead_lettering_on_message_expiration is False
    assert found.duplicate_detection_history_time_window == dt.timedelta(minutes=10)
    assert found.max_size_in_megabytes == 1024
    assert found.enable_batched_operations is True


def test_update_changes_the_properties_that_can_change(bus):
    queue = bus.queue()
    properties = bus.admin.get_queue(queue)
    properties.max_delivery_count = 3
    bus.admin.update_queue(properties)
    assert bus.admin.get_queue(queue).max_delivery_count == 3
    properties.requires_session = True
    with pytest.raises(HttpResponseError):
        bus.admin.update_queue(properties)


def test_entity_that_exists_is_not_created_again(bus):
    queue = bus.queue()
    with pytest.raises(ResourceExistsError):
        bus.admin.create_queue(queue)


def test_entity_that_does_not_exist_is_not_found(bus):
    for call in (bus.admin.get_queue, bus.admin.delete_queue, bus.admin.get_topic):
        with pytest.raises(ResourceNotFoundError):
            call(bus.name())


@pytest.mark.parametrize(
    "properties",
    [
        {"lock_duration": dt.timedelta(minutes=6)},
        {"max_delivery_count": 0},
        {"duplicate_detection_history_time_window": dt.timedelta(days=8)},
        {"auto_delete_on_idle": dt.timedelta(minutes=1)},
        {"user_metadata": "x" * 1025},
    ],
    ids=lambda properties: next(iter(properties)),
)
def test_value_outside_a_limit_is_refused(bus, properties):
    with pytest.raises(HttpResponseError):
        bus.queue(**properties)


def test_counts_follow_the_messages(bus):
    queue = bus.queue()
    bus.send(queue, ServiceBusMessage("a"), ServiceBusMessage("b"))
    receiver = bus.receiver(queue)
    [message] = bus.take(receiver)
    receiver.dead_letter_message(message)
    found = bus.admin.get_queue_runtime_properties(queue)
    assert (found.active_message_count, found.dead_letter_message_count) == (1, 1)
    assert found.total_message_count == 2


def test_rules_are_listed_and_a_wrong_expression_is_refused(bus):
    topic = bus.topic("s")
    bus.admin.create_rule(topic, "s", "rule", filter=SqlRuleFilter("a = 1"))
    names = {rule.name for rule in bus.admin.list_rules(topic, "s")}
    assert names == {"$Default", "rule"}
    with pytest.raises(HttpResponseError):
        bus.admin.create_rule(topic, "s", "bad", filter=SqlRuleFilter("a = = 1"))
