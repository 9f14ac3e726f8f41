"""Entities come from a file in the form of the official emulator's Config.json."""

import json
import math
from datetime import timedelta
from pathlib import Path

import pytest

from pairbus.broker import BrokerStartError, run
from pairbus.broker.config import ConfigError, load
from pairbus.broker.entities.model import CorrelationFilter, SqlAction, SqlFilter

EXAMPLE = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": False,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": False,
                        },
                    }
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {"DefaultMessageTimeToLive": "PT1H"},
                        "Subscriptions": [
                            {"Name": "all"},
                            {
                                "Name": "some",
                                "Properties": {"MaxDeliveryCount": 3},
                                "Rules": [
                                    {
                                        "Name": "by-properties",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "ContentType": "application/text",
                                                "Properties": {"prop1": "value1", "n": 3},
                                            },
                                        },
                                    },
                                    {
                                        "Name": "by-sql",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "user.p = 1"},
                                            "Action": {"SqlExpression": "SET user.q = 2"},
                                        },
                                    },
                                ],
                            },
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def test_the_official_form_is_read(tmp_path: Path) -> None:
    file = tmp_path / "Config.json"
    file.write_text(json.dumps(EXAMPLE))
    declared = load(file, "contoso")  # a single namespace is meant, whatever its name
    [queue] = declared.queues
    assert queue.name == "queue.1"
    assert queue.default_message_time_to_live == timedelta(hours=1)
    assert queue.max_delivery_count == 3
    assert queue.forward_to is None
    assert [topic.name for topic in declared.topics] == ["topic.1"]
    everything, some = declared.subscriptions
    assert everything.rules is None
    assert some.rules is not None
    first, second = some.rules
    assert isinstance(first.filter, CorrelationFilter)
    assert {name: value.value for name, value in first.filter.properties} == {
        "prop1": "value1",
        "n": 3,
    }
    assert second.filter == SqlFilter("user.p = 1")
    assert second.action == SqlAction("SET user.q = 2")


@pytest.mark.parametrize(
    ("queue", "says"),
    [
        ({}, r"Queues\[0\].Name: must be a string"),
        ({"Name": "q", "Properties": {"Colour": "red"}}, "Colour is not a property"),
        ({"Name": "q", "Properties": {"MaxDeliveryCount": "3"}}, "must be a whole number"),
        ({"Name": "q", "Properties": {"LockDuration": "soon"}}, "LockDuration"),
        ({"Name": "q", "Properties": {"LockDuration": "PT1H"}}, r"Queues\[0\]"),
        (
            {"Name": "q", "Properties": {"SupportOrdering": True}},
            "SupportOrdering is not a property",
        ),
        (3, "must be an object"),
    ],
)
def test_a_mistake_is_named_with_its_place(queue: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load({"Namespaces": [{"Name": "contoso", "Queues": [queue]}]}, "contoso")


def sql_rule(name: str, expression: str) -> dict[str, object]:
    return {
        "Name": name,
        "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}},
    }


def correlation_rule(content: object) -> dict[str, object]:
    properties = {"FilterType": "Correlation", "CorrelationFilter": content}
    return {"Name": "second", "Properties": properties}


@pytest.mark.parametrize("value", [math.inf, math.nan, -1, True, "5"])
def test_a_limit_that_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="must be a number, 0 or more"):
        load({"Queues": [], "Limits": {"IdleLinkTimeout": value}}, "contoso")


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (sql_rule("second", "a = = 1"), r"Rules\[1\]: There was an error parsing"),
        (sql_rule("First", "a = 2"), "two rules have the same name"),
        (correlation_rule({"Properties": ["a"]}), r"CorrelationFilter\.Properties: must be an obj"),
        (correlation_rule({"Label": 5}), r"CorrelationFilter\.Label: must be a string"),
    ],
)
def test_a_bad_rule_is_named_before_anything_is_created(rule: object, says: str) -> None:
    subscription = {"Name": "s", "Rules": [sql_rule("first", "a = 1"), rule]}
    with pytest.raises(ConfigError, match=says):
        load({"Topics": [{"Name": "t", "Subscriptions": [subscription]}]}, "contoso")


def test_a_queue_is_created_after_the_entities_that_it_forwards_to() -> None:
    queues = [
        {"Name": "first", "Properties": {"ForwardTo": "Second"}},
        {"Name": "second", "Properties": {"ForwardDeadLetteredMessagesTo": "third"}},
        {"Name": "third", "Properties": {"ForwardTo": "topic"}},
    ]
    with run(entities={"Queues": queues, "Topics": [{"Name": "topic"}]}) as namespace:
        found = namespace.do(lambda ns: [queue.name for queue in ns.admin.list_queues()])
    assert found == ["first", "second", "third"]


def test_queues_that_forward_in_a_circle_are_refused() -> None:
    queues = [
        {"Name": "one", "Properties": {"ForwardTo": "two"}},
        {"Name": "two", "Properties": {"ForwardTo": "one"}},
    ]
    with pytest.raises(BrokerStartError, match=r"'one' cannot be created.*'two' does not exist"):
        run(entities={"Queues": queues}).__enter__()


@pytest.mark.parametrize("name", ["a/../b", "a/./b"])
def test_a_name_that_no_url_can_hold_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"Queues\[0\]: .*'\.' or '\.\.'"):
        load({"Queues": [{"Name": name}]}, "contoso")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"Queues": [{"Name": "a"}, {"Name": "A"}]}, r"Queues\[1\]: the name 'A' is used twice"),
        ({"Queues": [{"Name": "a"}], "Topics": [{"Name": "a"}]}, r"Topics\[0\]: the name 'a' is"),
        (
            {"Topics": [{"Name": "t", "Subscriptions": [{"Name": "s"}, {"Name": "S"}]}]},
            r"Topics\[0\]: Subscriptions\[1\]: the name 'S' is used twice",
        ),
    ],
)
def test_a_name_that_is_used_twice_is_refused(content: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load(content, "contoso")


def test_a_file_for_other_namespaces_is_refused() -> None:
    with pytest.raises(ConfigError, match="declares no namespace 'contoso'"):
        load({"Namespaces": [{"Name": "a"}, {"Name": "b"}]}, "contoso")


def test_a_file_that_is_missing_or_no_json_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.json", "contoso")
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        load(bad, "contoso")
