"""Rules through the administration client: filters, actions and their parameters come back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

pytestmark = pytest.mark.sdk

PARAMETERS: Any = {
    "@string": "a 'b' <c> ü",
    "@int": 5,
    "@negative": -5,
    "@long": 2**40,
    "@double": 0.1,
    "@boolean": True,
    "@no": False,
    "@moment": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "@naive": datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001 (the SDK allows it)
    "@span": timedelta(days=1, hours=2, seconds=3),
}


@pytest.fixture
def subscription(client, topic):
    client.create_subscription(topic, "s")
    return (topic, "s")


def content(part):
    shown = dict(vars(part))
    for key in ("parameters", "properties"):
        if key in shown:
            shown[key] = dict(shown[key] or {})
    return shown


@pytest.mark.covers("SqlRuleFilter.*", "CorrelationRuleFilter.*")
@pytest.mark.covers(
    "ServiceBusAdministrationClient.create_rule",
    "aio.ServiceBusAdministrationClient.create_rule",
    "ServiceBusAdministrationClient.get_rule",
    "aio.ServiceBusAdministrationClient.get_rule",
    "RuleProperties.name",
    "RuleProperties.filter",
    "RuleProperties.action",
    "RuleProperties.created_at_utc",
)
@pytest.mark.parametrize(
    "part",
    [
        TrueRuleFilter(),
        FalseRuleFilter(),
        SqlRuleFilter("color = 'red' AND [a b] < 5"),
        SqlRuleFilter("a = @string", parameters=PARAMETERS),
        CorrelationRuleFilter(correlation_id="c"),
        CorrelationRuleFilter(
            correlation_id="c",
            message_id="m",
            to="t",
            reply_to="r",
            label="l <>",
            session_id="s",
            reply_to_session_id="rs",
            content_type="ct",
            properties={key[1:]: value for key, value in PARAMETERS.items()},
        ),
    ],
    ids=["true", "false", "sql", "sql with parameters", "correlation", "correlation in full"],
)
def test_filter_comes_back(client, subscription, part):
    created = client.create_rule(*subscription, "r", filter=part)
    for found in (created, client.get_rule(*subscription, "r"), client.list_rules(*subscription)):
        rule = found if hasattr(found, "filter") else next(r for r in found if r.name == "r")
        assert type(rule.filter) is type(part)
        assert content(rule.filter) == content(part)
        assert rule.action is None


@pytest.mark.covers("SqlRuleAction.*")
def test_action_comes_back(client, subscription):
    action = SqlRuleAction(
        "SET quantity = quantity + @int; REMOVE color", parameters={"@int": 5, "@s": "x"}
    )
    client.create_rule(*subscription, "r", filter=TrueRuleFilter(), action=action)
    found = client.get_rule(*subscription, "r")
    assert content(found.action) == content(action)
    assert datetime.now(UTC) - found.created_at_utc < timedelta(minutes=1)


def test_rule_without_a_filter_takes_everything(client, subscription):
    client.create_rule(*subscription, "r")
    assert isinstance(client.get_rule(*subscription, "r").filter, TrueRuleFilter)


@pytest.mark.covers(
    "ServiceBusAdministrationClient.update_rule",
    "aio.ServiceBusAdministrationClient.update_rule",
)
def test_rule_can_be_updated(client, subscription):
    rule = client.create_rule(*subscription, "r", filter=SqlRuleFilter("a = 1"))
    created_at = rule.created_at_utc
    rule.filter = CorrelationRuleFilter(label="new", properties={"n": 1})
    rule.action = SqlRuleAction("SET a = 2")
    client.update_rule(*subscription, rule)
    found = client.get_rule(*subscription, "r")
    assert found.filter.label == "new"
    assert found.filter.properties == {"n": 1}
    assert found.action.sql_expression == "SET a = 2"
    assert found.created_at_utc == created_at
    found.action = None
    client.update_rule(*subscription, found, filter=SqlRuleFilter("b = 1"))
    last = client.get_rule(*subscription, "r")
    assert (last.filter.sql_expression, last.action) == ("b = 1", None)


@pytest.mark.covers(
    "ServiceBusAdministrationClient.list_rules",
    "aio.ServiceBusAdministrationClient.list_rules",
    "ServiceBusAdministrationClient.delete_rule",
    "aio.ServiceBusAdministrationClient.delete_rule",
)
def test_rules_are_listed_and_deleted(client, subscription):
    for n in range(3):
        client.create_rule(*subscription, f"r{n}", filter=SqlRuleFilter(f"n = {n}"))
    client.delete_rule(*subscription, "$Default")
    client.delete_rule(*subscription, "R1")
    assert [rule.name for rule in client.list_rules(*subscription)] == ["r0", "r2"]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"filter": SqlRuleFilter("color =")}, "Token line offset = 8"),
        ({"filter": SqlRuleFilter("color = = 'red'")}, "Token in error = '='"),
        ({"filter": SqlRuleFilter("a = @missing")}, "'@missing' has no value"),
        ({"filter": SqlRuleFilter("a = '" + "x" * 1024 + "'")}, "1024 characters"),
        ({"filter": CorrelationRuleFilter()}, "at least one property"),
        ({"action": SqlRuleAction("DELETE a")}, "Expected SET or REMOVE"),
        ({"action": SqlRuleAction("SET sys.SequenceNumber = 1")}, "cannot be changed"),
        ({"action": SqlRuleAction("SET sys.Nonsense = 1")}, "does not exist"),
    ],
)
def test_bad_rule_is_refused_with_one_clear_line(client, subscription, part, message):
    with pytest.raises(HttpResponseError, match=message) as caught:
        client.create_rule(*subscription, "r", **part)
    assert caught.value.status_code == 400
    assert "SubCode=40000" in str(caught.value)
    assert [rule.name for rule in client.list_rules(*subscription)] == ["$Default"]


@pytest.mark.parametrize("rule_name", ["a/b", "x" * 51, "a b", "-a"])
def test_bad_rule_name_is_refused(client, subscription, rule_name):
    with pytest.raises(HttpResponseError) as caught:
        client.create_rule(*subscription, rule_name)
    assert caught.value.status_code in (400, 404)
