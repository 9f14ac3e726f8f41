"""What was administered is kept, and two who administer at once do not get in each other's way."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
)

from pairbus import broker

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


def everything(client):
    """All that a client can see, without the times of last access."""

    def parts(rule):
        return [
            None if part is None else (type(part).__name__, vars(part))
            for part in (rule.filter, rule.action)
        ]

    found = {}
    for queue in client.list_queues():
        shown = dict(queue.items())
        shown["authorization_rules"] = [vars(r) for r in queue.authorization_rules or ()]
        shown["created"] = client.get_queue_runtime_properties(queue.name).created_at_utc
        found[queue.name] = shown
    for topic in client.list_topics():
        shown = dict(topic.items())
        shown["authorization_rules"] = [vars(r) for r in topic.authorization_rules or ()]
        for subscription in client.list_subscriptions(topic.name):
            rules = client.list_rules(topic.name, subscription.name)
            shown[subscription.name] = (
                dict(subscription.items()),
                [(rule.name, rule.created_at_utc, parts(rule)) for rule in rules],
            )
        found[topic.name] = shown
    return found


def fill(client):
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name="app",
        created_at_utc=datetime(2026, 1, 2, tzinfo=UTC),
        primary_key="one",
        secondary_key="two",
    )
    client.create_queue("Target")
    client.create_queue(
        "orders",
        lock_duration=timedelta(seconds=17),
        forward_dead_lettered_messages_to="target",
        authorization_rules=[rule],
        user_metadata="ü <x>",
        max_delivery_count=2147483647,
        default_message_time_to_live="P10675199DT2H48M5.4775807S",
    )
    client.create_topic("news", authorization_rules=[rule], support_ordering=False)
    client.create_subscription("news", "s", forward_to="Target", requires_session=False)
    client.create_rule(
        "news",
        "s",
        "sql",
        filter=SqlRuleFilter("a = @a AND b = @b", parameters={"@a": 2**40, "@b": "x"}),
        action=SqlRuleAction("SET c = @c", parameters={"@c": timedelta(days=1)}),
    )
    client.create_rule(
        "news", "s", "correlation", filter=CorrelationRuleFilter(label="l", properties={"n": 1.5})
    )
    client.delete_rule("news", "s", "$Default")
    queue = client.get_queue("orders")
    client.update_queue(queue, status="ReceiveDisabled")
    client.create_queue("gone")
    client.delete_queue("gone")


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_everything_that_was_administered_survives(tmp_path, ending):
    with broker.run(data=tmp_path) as ns:
        with ns.admin_client() as client:
            fill(client)
            before = everything(client)
        getattr(ns, ending)()
        ns.start()
        with ns.admin_client() as client:
            assert everything(client) == before
            assert client.get_queue("orders").status == "ReceiveDisabled"
            assert client.get_queue("ORDERS").lock_duration == timedelta(seconds=17)


def test_of_many_who_create_the_same_queue_one_succeeds(ns):
    def create(_):
        with ns.admin_client() as client:
            try:
                client.create_queue("contended")
            except ResourceExistsError:
                return False
            return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(8))) == 1


async def test_many_entities_are_created_side_by_side(ns):
    async with ns.aio_admin_client() as client:
        names = [f"side-{n}" for n in range(40)]
        await asyncio.gather(*(client.create_queue(name) for name in names))
        found = [queue.name async for queue in client.list_queues()]
        assert set(names) <= set(found)
        await asyncio.gather(*(client.delete_queue(name) for name in names))
