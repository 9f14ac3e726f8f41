"""Descriptions: limits of the service, what may change, and their JSON form."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model import (
    MAX_DURATION,
    AccessRight,
    AuthorizationRule,
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TypedValue,
    check_forwarding,
    check_update,
)
from pairbus.broker.entities.model_json import dump_description, load_description
from pairbus.broker.entities.model_properties import AUTHORIZATION_RULES, columns
from pairbus.broker.entities.model_values import format_duration, parse_duration

QUEUE = QueueDescription("orders")
TOPIC = TopicDescription("news")
SUB = SubscriptionDescription("news", "mine")


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "a" * 261},
        {"name": "-a"},
        {"name": "a/"},
        {"name": "a b"},
        {"name": "a//b"},
        {"name": "ä"},
        {"name": "t/Subscriptions/s"},
        {"name": "$default"},
        {"lock_duration": timedelta(minutes=5, microseconds=1)},
        {"lock_duration": timedelta()},
        {"max_delivery_count": 0},
        {"max_delivery_count": 2**31},
        {"max_size_in_megabytes": 1},
        {"max_size_in_megabytes": 1500},
        {"max_size_in_megabytes": 6144},
        {"duplicate_detection_history_time_window": timedelta(seconds=19)},
        {"duplicate_detection_history_time_window": timedelta(days=7, seconds=1)},
        {"default_message_time_to_live": timedelta()},
        {"auto_delete_on_idle": timedelta(minutes=4, seconds=59)},
        {"user_metadata": "x" * 1025},
        {"max_message_size_in_kilobytes": 1},
        {"max_message_size_in_kilobytes": 102401},
        {"forward_to": "bad name"},
        {"enable_express": True, "requires_duplicate_detection": True},
        {"authorization_rules": (AuthorizationRule("", (AccessRight.SEND,)),)},
        {"authorization_rules": (AuthorizationRule("k", ()),)},
        {"authorization_rules": (AuthorizationRule("k", (AccessRight.SEND,), "x" * 257),)},
        {"authorization_rules": (AuthorizationRule("k", (AccessRight.MANAGE,)),)},
        {"authorization_rules": (AuthorizationRule("k", (AccessRight.SEND,)),) * 2},
        {"authorization_rules": (AuthorizationRule("k", (AccessRight.SEND,) * 2),)},
        {
            "authorization_rules": tuple(
                AuthorizationRule(f"k{n}", (AccessRight.SEND,)) for n in range(13)
            )
        },
    ],
    ids=lambda change: next(iter(change)),
)
def test_queue_outside_a_limit_of_the_service_is_refused(change):
    with pytest.raises(ArgumentError):
        replace(QUEUE, **change).validated()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "contoso/x-servicebus-transfer/0"},
        {"name": "a" * 260},
        {"name": "a"},
        {"lock_duration": timedelta(minutes=5)},
        {"max_delivery_count": 2**31 - 1},
        {"max_size_in_megabytes": 5120},
        {"max_size_in_megabytes": 81920},
        {"max_size_in_megabytes": 16384, "enable_partitioning": True},
        {"duplicate_detection_history_time_window": timedelta(seconds=20)},
        {"duplicate_detection_history_time_window": timedelta(days=7)},
        {"auto_delete_on_idle": timedelta(minutes=5)},
        {"user_metadata": "x" * 1024},
        {"max_message_size_in_kilobytes": 102400},
    ],
    ids=lambda change: next(iter(change)),
)
def test_queue_at_a_limit_of_the_service_is_accepted(change):
    assert replace(QUEUE, **change).validated() == replace(QUEUE, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "a" * 51},
        {"name": "a/b"},
    ],
)
def test_subscription_outside_a_limit_is_refused(change):
    with pytest.raises(ArgumentError):
        replace(SUB, **change).validated()


def test_topic_has_no_receiving_to_disable():
    with pytest.raises(ArgumentError):
        replace(TOPIC, status=EntityStatus.RECEIVE_DISABLED).validated()


@pytest.mark.parametrize(
    "rule",
    [
        RuleDescription("a/b"),
        RuleDescription("r", SqlFilter("")),
        RuleDescription("r", SqlFilter("x" * 1025)),
        RuleDescription("r", SqlFilter("a=@a", (("@a", TypedValue("int", "one")),))),
        RuleDescription("r", SqlFilter("a=@a", (("@a", TypedValue("base64Binary", "")),))),
        RuleDescription("r", SqlFilter("a=@a", (("@a", TypedValue("int", "1")),) * 2)),
        RuleDescription("r", CorrelationFilter()),
        RuleDescription("r", CorrelationFilter(properties=(("", TypedValue("int", "1")),))),
        RuleDescription(
            "r", CorrelationFilter(properties=(("n", TypedValue("integer", "9" * 30)),))
        ),
        RuleDescription(
            "r",
            CorrelationFilter(
                properties=(("t", TypedValue("dateTime", "0001-01-01T00:00:00+14:00")),)
            ),
        ),
    ],
)
def test_rule_outside_a_limit_is_refused(rule):
    with pytest.raises(ArgumentError):
        rule.validated()


@pytest.mark.parametrize(
    "change",
    [
        {"requires_session": True},
        {"requires_duplicate_detection": True},
        {"enable_partitioning": True},
    ],
)
def test_what_is_fixed_at_creation_cannot_change(change):
    with pytest.raises(ArgumentError, match="cannot be changed"):
        check_update(QUEUE, replace(QUEUE, **change))
    check_update(QUEUE, replace(QUEUE, max_delivery_count=3))


def test_forwarding_needs_a_target():
    queue = replace(QUEUE, forward_to="b", forward_dead_lettered_messages_to="c")
    check_forwarding(queue, {"b": QUEUE, "c": TOPIC}.get)
    with pytest.raises(ArgumentError, match="ForwardTo: the entity 'b' does not exist"):
        check_forwarding(queue, {"c": TOPIC}.get)
    with pytest.raises(ArgumentError, match="ForwardDeadLetteredMessagesTo: the entity 'c'"):
        check_forwarding(queue, {"b": QUEUE}.get)
    check_forwarding(TOPIC, {}.get)


@given(st.timedeltas(min_value=timedelta(), max_value=timedelta(days=10675198)))
def test_durations_survive_their_iso_form(value):
    assert parse_duration(format_duration(value)) == value


def test_longest_duration_is_written_as_the_service_writes_it():
    longest = "P10675199DT2H48M5.4775807S"
    assert parse_duration(longest) == MAX_DURATION
    assert format_duration(MAX_DURATION) == longest
    assert format_duration(timedelta(days=11_000_000)) == longest


def test_negative_durations_are_read_and_written():
    assert parse_duration("-PT90S") == timedelta(seconds=-90)
    assert format_duration(timedelta(seconds=-90)) == "-PT1M30S"


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "5", "P1S", "PT1D", "P99999999999D", "P999999999Y", "PT1.S"],
)
def test_malformed_durations_are_refused(text):
    with pytest.raises(ArgumentError):
        parse_duration(text)


@pytest.mark.parametrize(
    "description",
    [
        QUEUE,
        replace(
            QUEUE,
            status=EntityStatus.SEND_DISABLED,
            lock_duration=timedelta(seconds=7, microseconds=1),
            authorization_rules=(
                AuthorizationRule(
                    "k",
                    (AccessRight.SEND,),
                    "p",
                    "s",
                    created_at_utc=datetime(2026, 1, 2, tzinfo=UTC),
                ),
            ),
        ),
        TOPIC,
        replace(SUB, forward_to="elsewhere"),
        RuleDescription("r"),
        RuleDescription(
            "r",
            SqlFilter("a=@a", (("@a", TypedValue("long", "1")),), True),
            SqlAction("SET a=@b", (("@b", TypedValue("string", "é\n")),)),
            datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        ),
        RuleDescription("r", FalseFilter()),
        RuleDescription(
            "r", CorrelationFilter(label="x", properties=(("a", TypedValue("int", "1")),))
        ),
    ],
)
def test_descriptions_survive_their_json_form(description):
    assert load_description(dump_description(description)) == description


@pytest.mark.parametrize("kind", [QueueDescription, TopicDescription, SubscriptionDescription])
def test_default_of_every_property_is_within_its_limit_and_survives_its_text(kind):
    for column in columns(kind).values():
        row = column.property
        row.check(column.xml, row.default)
        if row.type is not AUTHORIZATION_RULES:
            assert row.parse(column.xml, row.type.format(row.default)) == row.default


def test_every_field_of_a_description_but_its_name_is_in_the_table():
    for kind in (QueueDescription, TopicDescription, SubscriptionDescription):
        names = {f.name for f in fields(kind)} - {c.field for c in columns(kind).values()}
        assert names <= {"name", "topic_name"}


def test_keys_stay_out_of_the_repr():
    rule = AuthorizationRule("k", (AccessRight.SEND,), "secret-one", "secret-two")
    assert "secret" not in repr(replace(QUEUE, authorization_rules=(rule,)))


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (True, "boolean", "true"),
        (7, "long", "7"),
        (0.5, "double", "0.5"),
        (datetime(2026, 1, 2, tzinfo=UTC), "dateTime", "2026-01-02T00:00:00+00:00"),
        ("seven", "string", "seven"),
    ],
)
def test_a_python_value_has_a_type_and_comes_back(value, type_, text):
    typed = TypedValue.of(value)
    assert (typed.type, typed.text) == (type_, text)
    assert typed.value == value
    assert TypedValue.of(timedelta(seconds=1)).type == "string"
