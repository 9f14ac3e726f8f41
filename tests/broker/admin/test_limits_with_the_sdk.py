"""The limits of the service, pages of lists, versions of the API, counts."""

from datetime import timedelta

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus.management import AccessRights, ApiVersion, AuthorizationRule, EntityStatus

from pairbus import broker

pytestmark = pytest.mark.sdk


def refused(call, *args, **kwargs):
    with pytest.raises(HttpResponseError) as caught:
        call(*args, **kwargs)
    assert caught.value.status_code == 400
    assert "SubCode=40000" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("lock_duration", timedelta(minutes=5, seconds=1)),
        ("max_delivery_count", 0),
        ("max_size_in_megabytes", 100),
        ("max_size_in_megabytes", 5121),
        ("duplicate_detection_history_time_window", timedelta(seconds=19)),
        ("duplicate_detection_history_time_window", timedelta(days=8)),
        ("default_message_time_to_live", timedelta(0)),
        ("auto_delete_on_idle", timedelta(minutes=4)),
        ("user_metadata", "x" * 1025),
        ("max_message_size_in_kilobytes", 100),
        ("max_message_size_in_kilobytes", 102401),
        ("forward_to", "no-such-queue"),
        ("forward_dead_lettered_messages_to", "no-such-queue"),
    ],
)
def test_queue_option_outside_its_limit_is_refused_and_nothing_is_created(
    client, name, option, value
):
    refused(client.create_queue, name, **{option: value})
    assert name not in [queue.name for queue in client.list_queues()]


@pytest.mark.parametrize(
    "bad", ["a b", "a" * 261, "-a", "a-", "ä", "a?b", "a#b", "$a", "a//b", "t/Subscriptions/s"]
)
def test_bad_name_is_refused(client, bad):
    with pytest.raises(HttpResponseError) as caught:
        client.create_queue(bad)
    assert caught.value.status_code in (400, 404)


def test_longest_name_is_accepted(client):
    name = "a" * 250 + "/b.c-d_e/f"
    try:
        assert client.create_topic(name).name == name
    finally:
        client.delete_topic(name)


def test_bad_subscription_name_is_refused(client, topic):
    for bad in ("a" * 51, "a b", "-a"):
        refused(client.create_subscription, topic, bad)


def test_circle_of_forwarding_is_accepted_as_by_the_service(client, name):
    refused(client.create_queue, name, forward_to=name)
    queue = client.create_queue(name, requires_session=True)
    client.update_queue(queue, forward_to=name, forward_dead_lettered_messages_to=name)
    assert client.get_queue(name).forward_to.endswith("/" + name)
    client.create_topic(name + "-t")
    client.create_subscription(name + "-t", "s", forward_to=name + "-t")


def test_bad_authorization_rule_is_refused_and_its_keys_are_not_repeated(client, name):
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        rights=[AccessRights.MANAGE],
        key_name="k",
        primary_key="very secret",
    )
    assert "very secret" not in refused(client.create_queue, name, authorization_rules=[rule])


def test_status_of_another_world_is_refused(client, name):
    queue = client.create_queue(name)
    for status in (EntityStatus.CREATING, EntityStatus.DELETING, "Nonsense"):
        refused(client.update_queue, queue, status=status)


def test_failed_update_changes_nothing(client, name):
    queue = client.create_queue(name)
    refused(client.update_queue, queue, max_delivery_count=0, user_metadata="new")
    assert client.get_queue(name).user_metadata is None


@pytest.mark.parametrize("version", list(ApiVersion))
def test_every_version_of_the_api_works(ns, version, name):
    with ns.admin_client(api_version=version) as client:
        created = client.create_queue(name)
        assert created.max_message_size_in_kilobytes == (
            None if version == ApiVersion.V2017_04 else 1024
        )
        client.update_queue(created, max_delivery_count=3)
        assert client.get_queue(name).max_delivery_count == 3


def test_first_version_of_the_api_knows_no_message_size(ns, name):
    with ns.admin_client() as client:
        client.create_queue(name, max_message_size_in_kilobytes=4096)
        with ns.admin_client(api_version="2017-04") as old:
            refused(old.create_queue, name + "-2", max_message_size_in_kilobytes=2048)
            old.update_queue(old.get_queue(name), max_delivery_count=3)
        found = client.get_queue(name)
        assert (found.max_message_size_in_kilobytes, found.max_delivery_count) == (4096, 3)


def test_unknown_version_of_the_api_is_refused(ns):
    with ns.admin_client(api_version="2014-01") as client:
        assert "2024-05" in refused(client.get_namespace_properties)


@pytest.mark.slow
def test_lists_longer_than_a_page_are_complete():
    with broker.run() as ns, ns.admin_client() as client:
        ns.do(lambda namespace: fill(namespace, 205))
        names = [queue.name for queue in client.list_queues()]
        assert names == sorted(f"q{n}" for n in range(205))
        assert len(list(client.list_topics())) == 101
        assert len(list(client.list_topics_runtime_properties())) == 101
        assert len(list(client.list_subscriptions("t0"))) == 101
        assert len(list(client.list_rules("t0", "s0"))) == 101
        assert len(list(client.list_queues(start_index=195, max_page_size=3))) == 10
        assert len(list(client.list_queues(max_page_size=50))) == 205
        assert list(client.list_queues(start_index=205)) == []


def fill(namespace, count):
    from pairbus.broker.entities.model import (
        QueueDescription,
        RuleDescription,
        SubscriptionDescription,
        TopicDescription,
    )

    for n in range(count):
        namespace.admin.create(QueueDescription(f"q{n}"))
    for n in range(101):
        namespace.admin.create(TopicDescription(f"t{n}"))
    for n in range(101):
        namespace.admin.create(SubscriptionDescription("t0", f"s{n}"))
    for n in range(100):
        namespace.admin.create_rule("t0", "s0", RuleDescription(f"r{n}"))


def test_namespace_topic_and_subscription_take_only_so_many(monkeypatch):
    monkeypatch.setattr("pairbus.broker.namespace.administration.MAX_ENTITIES", 2)
    monkeypatch.setattr("pairbus.broker.namespace.administration.MAX_SUBSCRIPTIONS", 1)
    monkeypatch.setattr("pairbus.broker.namespace.administration.MAX_RULES", 2)
    with broker.run() as ns, ns.admin_client() as client:
        client.create_queue("q")
        client.create_topic("t")
        client.create_subscription("t", "s")
        client.create_rule("t", "s", "r")
        for call in (
            lambda: client.create_queue("q2"),
            lambda: client.create_topic("t2"),
            lambda: client.create_subscription("t", "s2"),
            lambda: client.create_rule("t", "s", "r2"),
        ):
            with pytest.raises(HttpResponseError, match="SubCode=40300") as caught:
                call()
            assert caught.value.status_code == 403


def test_administration_calls_are_counted_per_entity():
    with broker.run() as ns, ns.admin_client() as client:
        client.create_queue("Orders")
        client.get_queue("orders")
        client.create_topic("t")
        client.create_subscription("t", "s")
        list(client.list_queues())
        counts = {key: kinds["admin"]["billable"] for key, kinds in ns.operations.items()}
        assert counts == {"Orders": 2, "t": 1, "t/Subscriptions/s": 1, "$namespace": 1}
