"""Topics: copies, filters, actions."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
)

DELETE = {"receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE}
MESSAGES = {
    "low": ServiceBusMessage("low", application_properties={"n": 1}, subject="s"),
    "high": ServiceBusMessage("high", application_properties={"n": 9, "c": "red"}),
    "none": ServiceBusMessage("none", correlation_id="abc"),
}


def test_every_subscription_gets_a_copy_of_its_own(bus):
    topic = bus.topic("a", "b")
    bus.send(topic, ServiceBusMessage("x"))
    for name in ("a", "b"):
        assert str(bus.take(bus.subscription(topic, name, **DELETE))[0]) == "x"


@pytest.mark.parametrize(
    ("rule", "matching"),
    [
        (SqlRuleFilter("n > 1"), ["high"]),
        (SqlRuleFilter("n IS NULL OR c LIKE 'r%'"), ["high", "none"]),
        (SqlRuleFilter("sys.Label = 's'"), ["low"]),
        (SqlRuleFilter("c IN ('red', 'blue') AND NOT (n = 1)"), ["high"]),
        (SqlRuleFilter("n = @limit", parameters={"@limit": 1}), ["low"]),
        (SqlRuleFilter("EXISTS(n)"), ["low", "high"]),
        (CorrelationRuleFilter(correlation_id="abc"), ["none"]),
        (CorrelationRuleFilter(label="s", properties={"n": 1}), ["low"]),
    ],
    ids=["comparison", "null and like", "label", "in", "parameter", "exists", "id", "both"],
)
def test_filter_chooses_messages(bus, filtered, rule, matching):
    topic, receiver = filtered
    for name in ("$Default", "rule"):
        if any(known.name == name for known in bus.admin.list_rules(topic, "s")):
            bus.admin.delete_rule(topic, "s", name)
    bus.admin.create_rule(topic, "s", "rule", filter=rule)
    bus.send(topic, *MESSAGES.values())
    bus.admin.create_rule(topic, "s", "end", filter=SqlRuleFilter("sys.Label = 'end'"))
    bus.send(topic, ServiceBusMessage("end", subject="end"))
    bus.admin.delete_rule(topic, "s", "end")
    assert [str(found) for found in bus.take(receiver, len(matching) + 1)] == [*matching, "end"]


@pytest.fixture(scope="module")
def filtered(bus):
    topic = bus.topic("s")
    return topic, bus.subscription(topic, "s", **DELETE)


def test_action_changes_the_copy_of_its_subscription(bus):
    topic = bus.topic("plain", "changed")
    bus.admin.delete_rule(topic, "changed", "$Default")
    bus.admin.create_rule(
        topic,
        "changed",
        "rule",
        filter=SqlRuleFilter("n = 1"),
        action=SqlRuleAction("SET seen = 'yes'; REMOVE gone; SET n = n + 1"),
    )
    bus.send(topic, ServiceBusMessage("x", application_properties={"n": 1, "gone": True}))
    [plain] = bus.take(bus.subscription(topic, "plain", **DELETE))
    [changed] = bus.take(bus.subscription(topic, "changed", **DELETE))
    assert set(plain.application_properties) == {b"n", b"gone"}
    assert set(changed.application_properties) == {b"n", b"seen"}
    assert changed.application_properties[b"n"] == 2


@pytest.mark.unknown
def test_action_that_sets_the_scheduled_time_does_not_delay_the_copy(bus):
    # The service accepts such an action. Azure/azure-service-bus#373 reports that the copy was
    # scheduled for some clients and not for others.
    topic = bus.topic("s")
    bus.admin.delete_rule(topic, "s", "$Default")
    later = datetime.now(UTC) + timedelta(hours=1)
    action = SqlRuleAction("SET sys.ScheduledEnqueueTimeUtc = @at", parameters={"@at": later})
    bus.admin.create_rule(topic, "s", "rule", action=action)
    bus.send(topic, ServiceBusMessage("x"))
    assert str(bus.take(bus.subscription(topic, "s", **DELETE))[0]) == "x"


def test_message_that_no_rule_matches_is_dropped(bus):
    topic = bus.topic("s")
    bus.admin.delete_rule(topic, "s", "$Default")
    bus.admin.create_rule(topic, "s", "none", filter=FalseRuleFilter())
    bus.send(topic, ServiceBusMessage("x"))
    assert bus.is_empty(bus.subscription(topic, "s", **DELETE))
