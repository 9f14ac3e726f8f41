"""Every property that the administration client can set comes back as it was set."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.management import AccessRights, AuthorizationRule, EntityStatus

pytestmark = pytest.mark.sdk

LONGEST = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477581)

QUEUE = {
    "auto_delete_on_idle": timedelta(minutes=7),
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": timedelta(minutes=11, seconds=1),
    "duplicate_detection_history_time_window": timedelta(minutes=12),
    "enable_batched_operations": False,
    "lock_duration": timedelta(seconds=13),
    "max_delivery_count": 14,
    "max_size_in_megabytes": 3072,
    "requires_duplicate_detection": True,
    "requires_session": True,
    "user_metadata": "Ünï <&>\"' \t\n]]> end",
    "max_message_size_in_kilobytes": 2048,
}
TOPIC = {
    "default_message_time_to_live": timedelta(minutes=11),
    "max_size_in_megabytes": 2048,
    "requires_duplicate_detection": True,
    "duplicate_detection_history_time_window": timedelta(minutes=12),
    "enable_batched_operations": False,
    "support_ordering": False,
    "auto_delete_on_idle": timedelta(minutes=10),
    "user_metadata": "about the topic",
    "max_message_size_in_kilobytes": 102400,
}
STANDARD_ONLY = {"enable_express": True, "enable_partitioning": True}
SUBSCRIPTION = {
    "lock_duration": timedelta(seconds=13),
    "requires_session": True,
    "default_message_time_to_live": timedelta(minutes=11),
    "dead_lettering_on_message_expiration": True,
    "dead_lettering_on_filter_evaluation_exceptions": False,
    "max_delivery_count": 14,
    "enable_batched_operations": False,
    "user_metadata": "about the subscription",
    "auto_delete_on_idle": timedelta(minutes=5),
}


def shown(properties):
    return dict(properties.items())


def rule(key_name="reader", rights=(AccessRights.LISTEN,)):
    return AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=list(rights),
        created_at_utc=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        modified_at_utc=datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC),
        key_name=key_name,
        primary_key="the primary key",
        secondary_key="the secondary key",
    )


@pytest.mark.covers(
    "QueueProperties.availability_status",
)
def test_queue_without_options_has_the_defaults_of_the_service(client, name):
    assert shown(client.create_queue(name)) == {
        "name": name,
        "authorization_rules": None,
        "auto_delete_on_idle": LONGEST,
        "dead_lettering_on_message_expiration": False,
        "default_message_time_to_live": LONGEST,
        "duplicate_detection_history_time_window": timedelta(minutes=10),
        "availability_status": "Available",
        "enable_batched_operations": True,
        "enable_express": False,
        "enable_partitioning": False,
        "lock_duration": timedelta(minutes=1),
        "max_delivery_count": 10,
        "max_size_in_megabytes": 1024,
        "requires_duplicate_detection": False,
        "requires_session": False,
        "status": "Active",
        "forward_to": None,
        "user_metadata": None,
        "forward_dead_lettered_messages_to": None,
        "max_message_size_in_kilobytes": 1024,
    }


@pytest.mark.parametrize("option", QUEUE)
def test_option_of_a_queue_comes_back(client, name, option):
    created = client.create_queue(name, **{option: QUEUE[option]})
    assert created[option] == QUEUE[option]
    assert shown(client.get_queue(name)) == shown(created)


@pytest.mark.covers(
    "ServiceBusAdministrationClient.create_queue",
    "aio.ServiceBusAdministrationClient.create_queue",
    "ServiceBusAdministrationClient.get_queue",
    "aio.ServiceBusAdministrationClient.get_queue",
    "ServiceBusAdministrationClient.list_queues",
    "aio.ServiceBusAdministrationClient.list_queues",
    "QueueProperties.name",
    "QueueProperties.enable_batched_operations",
    "QueueProperties.user_metadata",
)
def test_all_options_of_a_queue_come_back_together(client, name):
    created = shown(client.create_queue(name, **QUEUE))
    assert {key: created[key] for key in QUEUE} == QUEUE
    assert shown(client.get_queue(name)) == created
    assert created in [shown(queue) for queue in client.list_queues()]


@pytest.mark.covers(
    "QueueProperties.enable_express",
    "QueueProperties.enable_partitioning",
    "TopicProperties.enable_express",
    "TopicProperties.enable_partitioning",
)
@pytest.mark.parametrize("option", STANDARD_ONLY)
def test_option_that_only_standard_has_comes_back(client, standard_client, name, option):
    assert standard_client.create_queue(name, **{option: True})[option] is True
    assert standard_client.get_queue(name)[option] is True
    assert standard_client.create_topic(name + "-t", **{option: True})[option] is True
    with pytest.raises(HttpResponseError, match="not supported in a Premium namespace"):
        client.create_queue(name, **{option: True})
    with pytest.raises(HttpResponseError, match="not supported in a Premium namespace"):
        client.create_topic(name, **{option: True})


def test_standard_namespace_has_messages_of_256_kilobytes(standard_client, name):
    created = standard_client.create_queue(name)
    assert created.max_message_size_in_kilobytes == 256
    created.max_delivery_count = 3
    standard_client.update_queue(created)
    with pytest.raises(HttpResponseError, match="Premium namespaces only") as caught:
        standard_client.create_queue(name + "-large", max_message_size_in_kilobytes=1024)
    assert caught.value.status_code == 400
    with pytest.raises(HttpResponseError, match="Premium namespaces only"):
        standard_client.create_topic(name + "-large", max_message_size_in_kilobytes=2048)


def test_namespace_properties_name_the_tier(client, standard_client):
    assert standard_client.get_namespace_properties().messaging_sku == "Standard"
    premium = client.get_namespace_properties()
    assert (premium.messaging_sku, premium.messaging_units) == ("Premium", 1)


def test_backlog_queue_is_created_exactly(client, name):
    longest = "P10675199DT2H48M5.4775807S"
    wanted = {
        "max_size_in_megabytes": 5120,
        "max_delivery_count": 2147483647,
        "default_message_time_to_live": longest,
        "auto_delete_on_idle": longest,
        "lock_duration": timedelta(minutes=1),
        "dead_lettering_on_message_expiration": True,
        "enable_batched_operations": True,
    }
    path = f"{name}/x-servicebus-transfer/0"
    client.create_queue(path, **wanted)
    queue = shown(client.get_queue(path))
    assert queue["name"] == path
    wanted |= {"default_message_time_to_live": LONGEST, "auto_delete_on_idle": LONGEST}
    assert {key: queue[key] for key in wanted} == wanted


@pytest.mark.covers(
    "TopicProperties.availability_status",
    "TopicProperties.size_in_bytes",
    "TopicProperties.filtering_messages_before_publishing",
)
def test_topic_without_options_has_the_defaults_of_the_service(client, name):
    assert shown(client.create_topic(name)) == {
        "name": name,
        "default_message_time_to_live": LONGEST,
        "max_size_in_megabytes": 1024,
        "requires_duplicate_detection": False,
        "duplicate_detection_history_time_window": timedelta(minutes=10),
        "enable_batched_operations": True,
        "size_in_bytes": 0,
        "filtering_messages_before_publishing": False,
        "authorization_rules": None,
        "status": "Active",
        "support_ordering": True,
        "auto_delete_on_idle": LONGEST,
        "enable_partitioning": False,
        "availability_status": "Available",
        "enable_express": False,
        "user_metadata": None,
        "max_message_size_in_kilobytes": 1024,
    }


@pytest.mark.parametrize("option", TOPIC)
def test_option_of_a_topic_comes_back(client, name, option):
    created = client.create_topic(name, **{option: TOPIC[option]})
    assert created[option] == TOPIC[option]
    assert shown(client.get_topic(name)) == shown(created)


@pytest.mark.covers(
    "ServiceBusAdministrationClient.create_topic",
    "aio.ServiceBusAdministrationClient.create_topic",
    "ServiceBusAdministrationClient.get_topic",
    "aio.ServiceBusAdministrationClient.get_topic",
    "ServiceBusAdministrationClient.list_topics",
    "aio.ServiceBusAdministrationClient.list_topics",
    "TopicProperties.name",
    "TopicProperties.enable_batched_operations",
    "TopicProperties.support_ordering",
    "TopicProperties.user_metadata",
)
def test_all_options_of_a_topic_come_back_together(client, name):
    wanted = TOPIC | {"requires_duplicate_detection": False}  # not together with express
    created = shown(client.create_topic(name, **wanted))
    assert {key: created[key] for key in wanted} == wanted
    assert created in [shown(topic) for topic in client.list_topics()]


@pytest.mark.covers(
    "SubscriptionProperties.availability_status",
)
def test_subscription_without_options_has_the_defaults_of_the_service(client, topic):
    assert shown(client.create_subscription(topic, "s")) == {
        "name": "s",
        "lock_duration": timedelta(minutes=1),
        "requires_session": False,
        "default_message_time_to_live": LONGEST,
        "dead_lettering_on_message_expiration": False,
        "dead_lettering_on_filter_evaluation_exceptions": True,
        "max_delivery_count": 10,
        "enable_batched_operations": True,
        "status": "Active",
        "forward_to": None,
        "user_metadata": None,
        "forward_dead_lettered_messages_to": None,
        "auto_delete_on_idle": LONGEST,
        "availability_status": "Available",
    }
    assert [rule.name for rule in client.list_rules(topic, "s")] == ["$Default"]


@pytest.mark.parametrize("option", SUBSCRIPTION)
def test_option_of_a_subscription_comes_back(client, topic, option):
    created = client.create_subscription(topic, "s", **{option: SUBSCRIPTION[option]})
    assert created[option] == SUBSCRIPTION[option]
    assert shown(client.get_subscription(topic, "s")) == shown(created)


@pytest.mark.covers(
    "ServiceBusAdministrationClient.create_subscription",
    "aio.ServiceBusAdministrationClient.create_subscription",
    "ServiceBusAdministrationClient.get_subscription",
    "aio.ServiceBusAdministrationClient.get_subscription",
    "ServiceBusAdministrationClient.list_subscriptions",
    "aio.ServiceBusAdministrationClient.list_subscriptions",
    "SubscriptionProperties.name",
    "SubscriptionProperties.enable_batched_operations",
    "SubscriptionProperties.user_metadata",
)
def test_all_options_of_a_subscription_come_back_together(client, topic):
    created = shown(client.create_subscription(topic, "s", **SUBSCRIPTION))
    assert {key: created[key] for key in SUBSCRIPTION} == SUBSCRIPTION
    assert [shown(s) for s in client.list_subscriptions(topic)] == [created]


@pytest.mark.parametrize("option", ["forward_to", "forward_dead_lettered_messages_to"])
def test_forwarding_comes_back_as_an_address_and_can_be_updated(client, ns, name, option):
    client.create_queue(name + "-target")
    client.create_topic(name + "-topic")
    address = client.create_queue(name, **{option: name + "-target"})[option]
    assert address.startswith("sb://127.0.0.1:")
    assert address.endswith("/" + name + "-target")
    queue = client.get_queue(name)
    assert queue[option] == address
    queue.user_metadata = "changed"
    client.update_queue(queue)
    assert client.get_queue(name)[option] == address
    queue[option] = None
    client.update_queue(queue)
    assert client.get_queue(name)[option] is None
    subscription = client.create_subscription(name + "-topic", "s", **{option: name + "-target"})
    assert subscription[option] == address


@pytest.mark.covers("AuthorizationRule.*")
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_authorization_rules_come_back(client, name, kind):
    rules = [rule(), rule("all", (AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN))]
    getattr(client, f"create_{kind}")(name, authorization_rules=rules)
    found = getattr(client, f"get_{kind}")(name).authorization_rules
    assert [vars(r) for r in found] == [vars(r) for r in rules]


def test_keys_of_an_authorization_rule_are_made_when_none_are_given(client, name):
    bare = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name="k",
    )
    (made,) = client.create_queue(name, authorization_rules=[bare]).authorization_rules
    assert len(made.primary_key) == len(made.secondary_key) == 44
    assert made.primary_key != made.secondary_key
    (kept,) = client.get_queue(name).authorization_rules
    assert kept.primary_key == made.primary_key


@pytest.mark.covers(
    "ServiceBusAdministrationClient.get_queue_runtime_properties",
    "aio.ServiceBusAdministrationClient.get_queue_runtime_properties",
    "ServiceBusAdministrationClient.get_topic_runtime_properties",
    "aio.ServiceBusAdministrationClient.get_topic_runtime_properties",
    "ServiceBusAdministrationClient.get_subscription_runtime_properties",
    "aio.ServiceBusAdministrationClient.get_subscription_runtime_properties",
    "ServiceBusAdministrationClient.list_queues_runtime_properties",
    "aio.ServiceBusAdministrationClient.list_queues_runtime_properties",
    "ServiceBusAdministrationClient.list_topics_runtime_properties",
    "aio.ServiceBusAdministrationClient.list_topics_runtime_properties",
    "ServiceBusAdministrationClient.list_subscriptions_runtime_properties",
    "aio.ServiceBusAdministrationClient.list_subscriptions_runtime_properties",
)
def test_runtime_properties_of_new_entities(client, name):
    client.create_queue(name)
    client.create_topic(name + "-t")
    client.create_subscription(name + "-t", "s")
    queue = client.get_queue_runtime_properties(name)
    topic = client.get_topic_runtime_properties(name + "-t")
    subscription = client.get_subscription_runtime_properties(name + "-t", "s")
    for runtime in (queue, topic, subscription):
        age = datetime.now(UTC) - runtime.created_at_utc
        assert timedelta(seconds=-5) < age < timedelta(minutes=1)
        assert runtime.updated_at_utc >= runtime.created_at_utc
        assert runtime.accessed_at_utc is not None
    assert topic.subscription_count == 1
    assert (queue.size_in_bytes, topic.size_in_bytes, topic.scheduled_message_count) == (0, 0, 0)
    for runtime in (queue, subscription):
        assert runtime.total_message_count == runtime.active_message_count == 0
        assert runtime.dead_letter_message_count == runtime.transfer_message_count == 0
        assert runtime.transfer_dead_letter_message_count == 0
    assert queue.scheduled_message_count == 0
    names = [r.name for r in client.list_queues_runtime_properties()]
    assert name in names
    assert name + "-t" in [r.name for r in client.list_topics_runtime_properties()]
    assert [r.name for r in client.list_subscriptions_runtime_properties(name + "-t")] == ["s"]


@pytest.mark.covers("NamespaceProperties.*")
@pytest.mark.covers(
    "ServiceBusAdministrationClient.get_namespace_properties",
    "aio.ServiceBusAdministrationClient.get_namespace_properties",
)
def test_namespace_properties(client):
    properties = client.get_namespace_properties()
    assert properties.name == "contoso"
    assert properties.namespace_type == "Messaging"
    assert properties.messaging_sku in ("Standard", "Premium")
    assert properties.created_at_utc <= datetime.now(UTC)


def test_missing_entities_are_not_found(client, topic):
    client.create_subscription(topic, "s")
    for call in (
        lambda: client.get_queue("missing"),
        lambda: client.get_topic("missing"),
        lambda: client.get_queue_runtime_properties("missing"),
        lambda: client.get_subscription(topic, "missing"),
        lambda: client.get_subscription("missing", "s"),
        lambda: client.get_subscription_runtime_properties(topic, "missing"),
        lambda: client.get_rule(topic, "s", "missing"),
        lambda: client.get_rule(topic, "missing", "r"),
        lambda: client.delete_queue("missing"),
        lambda: client.delete_topic("missing"),
        lambda: client.delete_subscription(topic, "missing"),
        lambda: client.delete_rule(topic, "s", "missing"),
        lambda: client.create_subscription("missing", "s"),
        lambda: client.create_rule(topic, "missing", "r"),
        lambda: list(client.list_subscriptions("missing")),
        lambda: list(client.list_rules(topic, "missing")),
    ):
        with pytest.raises(ResourceNotFoundError):
            call()


def test_names_are_taken_once_whatever_their_case(client, topic):
    client.create_subscription(topic, "s")
    client.create_rule(topic, "s", "r")
    for call in (
        lambda: client.create_topic(topic),
        lambda: client.create_topic(topic.upper()),
        lambda: client.create_queue(topic),
        lambda: client.create_subscription(topic, "S"),
        lambda: client.create_rule(topic, "s", "R"),
        lambda: client.create_rule(topic, "s", "$default"),
    ):
        with pytest.raises(ResourceExistsError):
            call()


@pytest.mark.covers(
    "ServiceBusAdministrationClient.delete_queue",
    "aio.ServiceBusAdministrationClient.delete_queue",
)
def test_names_are_found_whatever_their_case(client, name):
    client.create_queue(name)
    assert client.get_queue(name.upper())["lock_duration"] == timedelta(minutes=1)
    client.delete_queue(name.upper())
    with pytest.raises(ResourceNotFoundError):
        client.get_queue(name)


@pytest.mark.covers(
    "ServiceBusAdministrationClient.delete_topic",
    "aio.ServiceBusAdministrationClient.delete_topic",
)
def test_deleted_topic_takes_its_subscriptions_along(client, topic):
    client.create_subscription(topic, "s")
    client.create_rule(topic, "s", "extra")
    client.delete_topic(topic)
    client.create_topic(topic)
    assert list(client.list_subscriptions(topic)) == []
    client.create_subscription(topic, "s")
    assert [rule.name for rule in client.list_rules(topic, "s")] == ["$Default"]


@pytest.mark.covers(
    "ServiceBusAdministrationClient.update_queue",
    "aio.ServiceBusAdministrationClient.update_queue",
)
def test_update_changes_the_properties_that_can_change(client, name):
    client.create_queue(name + "-target")
    queue = client.create_queue(name)
    changes = {
        key: value
        for key, value in QUEUE.items()
        if key not in ("requires_session", "requires_duplicate_detection", "enable_partitioning")
    } | {
        "status": EntityStatus.SEND_DISABLED,
        "forward_to": name + "-target",
        "authorization_rules": [rule()],
    }
    for key, value in changes.items():
        queue[key] = value
    client.update_queue(queue)
    found = client.get_queue(name)
    for key in set(changes) - {"forward_to", "authorization_rules"}:
        assert found[key] == changes[key], key
    assert found.forward_to.endswith(name + "-target")
    assert found.authorization_rules[0].key_name == "reader"


@pytest.mark.covers(
    "ServiceBusAdministrationClient.delete_subscription",
    "aio.ServiceBusAdministrationClient.delete_subscription",
)
def test_subscription_is_deleted_and_its_topic_stays(client, topic):
    client.create_subscription(topic, "s")
    client.create_subscription(topic, "stays")
    client.delete_subscription(topic, "S")
    assert [s.name for s in client.list_subscriptions(topic)] == ["stays"]


def test_update_by_keyword_changes_that_alone(client, name):
    queue = client.create_queue(name, user_metadata="kept")
    client.update_queue(queue, max_delivery_count=3, status=EntityStatus.DISABLED)
    found = client.get_queue(name)
    assert (found.max_delivery_count, found.status, found.user_metadata) == (3, "Disabled", "kept")


def test_longest_durations_survive_an_update(client, name):
    queue = client.create_queue(name)
    client.update_queue(queue)
    found = client.get_queue(name)
    assert found.default_message_time_to_live == LONGEST
    assert found.auto_delete_on_idle == LONGEST


@pytest.mark.covers(
    "ServiceBusAdministrationClient.update_topic",
    "aio.ServiceBusAdministrationClient.update_topic",
    "ServiceBusAdministrationClient.update_subscription",
    "aio.ServiceBusAdministrationClient.update_subscription",
)
def test_update_of_topic_and_subscription(client, topic):
    properties = client.get_topic(topic)
    properties.user_metadata = "new"
    properties.max_size_in_megabytes = 4096
    properties.status = "SendDisabled"
    client.update_topic(properties)
    found = client.get_topic(topic)
    assert (found.user_metadata, found.max_size_in_megabytes) == ("new", 4096)
    assert found.status == "SendDisabled"
    subscription = client.create_subscription(topic, "s")
    subscription.lock_duration = timedelta(seconds=20)
    subscription.status = EntityStatus.RECEIVE_DISABLED
    client.update_subscription(topic, subscription)
    changed = client.get_subscription(topic, "s")
    assert (changed.lock_duration, changed.status) == (timedelta(seconds=20), "ReceiveDisabled")


@pytest.mark.parametrize(
    "option", ["requires_session", "requires_duplicate_detection", "enable_partitioning"]
)
def test_what_is_fixed_at_creation_cannot_be_updated(client, name, option):
    queue = client.create_queue(name)
    queue[option] = True
    with pytest.raises(HttpResponseError, match="cannot be changed") as caught:
        client.update_queue(queue)
    assert caught.value.status_code == 400
    assert client.get_queue(name)[option] is False


def test_update_of_what_does_not_exist_is_not_found(client, name):
    queue = client.create_queue(name)
    topic = client.create_topic(name + "-t")
    subscription = client.create_subscription(name + "-t", "s")
    rule_ = client.create_rule(name + "-t", "s", "r")
    client.delete_queue(name)
    client.delete_rule(name + "-t", "s", "r")
    for call in (
        lambda: client.update_queue(queue),
        lambda: client.update_rule(name + "-t", "s", rule_),
    ):
        with pytest.raises(ResourceNotFoundError):
            call()
    client.delete_topic(name + "-t")
    for call in (
        lambda: client.update_topic(topic),
        lambda: client.update_subscription(name + "-t", subscription),
    ):
        with pytest.raises(ResourceNotFoundError):
            call()
