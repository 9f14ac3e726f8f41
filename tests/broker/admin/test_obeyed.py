"""What the administration client sets is what senders and receivers then meet.

The broker's clock is the test's. Handlers of the SDK take half a second to open and to close, so
most tests look at what became of messages through the runtime properties.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusQuotaExceededError,
)
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    SqlRuleAction,
    SqlRuleFilter,
)

from pairbus import broker
from pairbus.testing import FakeClock

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


@pytest.fixture(scope="module")
def clock():
    return FakeClock()


@pytest.fixture(scope="module")
def ns(clock):
    with broker.run(clock=clock, idle_link_timeout=0, idle_connection_timeout=0) as running:
        yield running


@pytest.fixture(scope="module")
def admin(ns):
    with ns.admin_client() as client:
        yield client


@pytest.fixture(scope="module")
def opened(ns):
    """Opens handlers by name of the client's method, and closes them all at the end."""
    client = ServiceBusClient.from_connection_string(ns.connection_string, retry_total=0)
    handlers = []

    def open_(method, *args, **kwargs):
        handler = getattr(client, method)(*args, **kwargs)
        handlers.append(handler)
        return handler.__enter__()

    yield open_
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda handler: handler.close(), handlers))
    client.close()


def take(receiver, count=1):
    found = receiver.receive_messages(max_message_count=count, max_wait_time=30)
    assert len(found) == count
    return found


def counts(admin, topic, name="s"):
    runtime = admin.get_subscription_runtime_properties(topic, name)
    return runtime.active_message_count, runtime.dead_letter_message_count


# --- topics and subscriptions --------------------------------------------------------------------


@pytest.mark.covers(
    "TopicProperties.default_message_time_to_live",
    "SubscriptionProperties.default_message_time_to_live",
    "SubscriptionProperties.dead_lettering_on_message_expiration",
)
def test_time_to_live_of_topic_and_subscription(admin, opened, clock, name):
    admin.create_topic(name, default_message_time_to_live=timedelta(minutes=10))
    admin.create_subscription(name, "s", dead_lettering_on_message_expiration=True)
    admin.create_subscription(name, "short", default_message_time_to_live=timedelta(minutes=1))
    opened("get_topic_sender", name).send_messages(ServiceBusMessage("x"))
    assert counts(admin, name) == counts(admin, name, "short") == (1, 0)
    clock.advance(61)
    assert counts(admin, name) == (1, 0)
    assert counts(admin, name, "short") == (0, 0)
    clock.advance(600)
    assert counts(admin, name) == (0, 1)


@pytest.mark.covers(
    "TopicProperties.requires_duplicate_detection",
    "TopicProperties.duplicate_detection_history_time_window",
)
def test_topic_detects_duplicates_within_its_window(admin, opened, clock, name):
    admin.create_topic(
        name,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=2),
    )
    admin.create_subscription(name, "s")
    sender = opened("get_topic_sender", name)
    for _ in range(2):
        sender.send_messages(ServiceBusMessage("x", message_id="same"))
    assert counts(admin, name) == (1, 0)
    clock.advance(121)
    sender.send_messages(ServiceBusMessage("x", message_id="same"))
    assert counts(admin, name) == (2, 0)


@pytest.mark.covers("TopicProperties.status", "SubscriptionProperties.status")
def test_status_of_topic_and_subscription(admin, opened, name):
    topic = admin.create_topic(name)
    subscription = admin.create_subscription(name, "s")
    sender = opened("get_topic_sender", name)
    sender.send_messages(ServiceBusMessage("kept"))
    admin.update_topic(topic, status=EntityStatus.SEND_DISABLED)
    with pytest.raises(MessagingEntityDisabledError):
        sender.send_messages(ServiceBusMessage("refused"))
    admin.update_topic(topic, status=EntityStatus.ACTIVE)
    admin.update_subscription(name, subscription, status=EntityStatus.RECEIVE_DISABLED)
    with pytest.raises(MessagingEntityDisabledError):
        opened("get_subscription_receiver", name, "s")
    admin.update_subscription(name, subscription, status=EntityStatus.ACTIVE)
    receiver = opened("get_subscription_receiver", name, "s")
    assert str(take(receiver)[0]) == "kept"


@pytest.mark.covers(
    "SubscriptionProperties.lock_duration", "SubscriptionProperties.max_delivery_count"
)
def test_lock_and_deliveries_of_a_subscription_change_with_an_update(admin, opened, clock, name):
    admin.create_topic(name)
    subscription = admin.create_subscription(name, "s", lock_duration=timedelta(seconds=10))
    opened("get_topic_sender", name).send_messages(ServiceBusMessage("x"))
    receiver = opened("get_subscription_receiver", name, "s")
    (message,) = take(receiver)
    assert message.locked_until_utc.timestamp() - clock() == pytest.approx(10, abs=1)
    receiver.abandon_message(message)
    admin.update_subscription(
        name, subscription, lock_duration=timedelta(minutes=5), max_delivery_count=2
    )
    (message,) = take(receiver)
    assert message.locked_until_utc.timestamp() - clock() == pytest.approx(300, abs=1)
    receiver.abandon_message(message)
    assert counts(admin, name) == (0, 1)


@pytest.mark.covers("TopicProperties.max_size_in_megabytes")
def test_size_of_a_topic_is_that_of_its_subscriptions_together(admin, ns, opened, name):
    admin.create_topic(name, max_size_in_megabytes=1024)
    admin.create_subscription(name, "s")
    sender = opened("get_topic_sender", name)
    sender.send_messages(ServiceBusMessage("fits"))
    topic = ns.do(lambda namespace: namespace.catalog.entity(name))
    subscription = topic.subscriptions["s"].main.store
    size = subscription.size
    ns.do(lambda namespace: setattr(subscription, "size", 1024**3))  # as if it were full
    assert admin.get_topic_runtime_properties(name).size_in_bytes >= 1024**3
    with pytest.raises(ServiceBusQuotaExceededError):
        sender.send_messages(ServiceBusMessage("too much"))
    ns.do(lambda namespace: setattr(subscription, "size", size))
    sender.send_messages(ServiceBusMessage("fits again"))


@pytest.mark.covers("TopicProperties.max_message_size_in_kilobytes")
def test_message_size_of_a_topic(admin, opened, name):
    admin.create_topic(name)
    admin.create_topic(name + "-large", max_message_size_in_kilobytes=2048)
    large = ServiceBusMessage(b"x" * 1_500_000)
    with pytest.raises(MessageSizeExceededError):
        opened("get_topic_sender", name).send_messages(large)
    opened("get_topic_sender", name + "-large").send_messages(large)


@pytest.mark.covers(
    "TopicProperties.auto_delete_on_idle", "SubscriptionProperties.auto_delete_on_idle"
)
def test_idle_topic_and_subscription_are_deleted(admin, clock, name):
    admin.create_topic(name, auto_delete_on_idle=timedelta(minutes=10))
    admin.create_topic(name + "-stays")
    admin.create_subscription(name + "-stays", "s", auto_delete_on_idle=timedelta(minutes=5))
    clock.advance(301)
    admin.get_topic(name)
    with pytest.raises(ResourceNotFoundError):
        admin.get_subscription(name + "-stays", "s")
    clock.advance(601)
    with pytest.raises(ResourceNotFoundError):
        admin.get_topic(name)
    admin.get_topic(name + "-stays")


@pytest.mark.covers("SubscriptionProperties.forward_dead_lettered_messages_to")
def test_dead_letters_of_a_subscription_are_forwarded(admin, opened, name):
    admin.create_queue(name + "-target")
    admin.create_topic(name)
    admin.create_subscription(
        name,
        "s",
        max_delivery_count=1,
        forward_dead_lettered_messages_to=name + "-target",
    )
    opened("get_topic_sender", name).send_messages(ServiceBusMessage("x"))
    receiver = opened("get_subscription_receiver", name, "s")
    receiver.abandon_message(take(receiver)[0])
    assert counts(admin, name) == (0, 0)
    runtime = admin.get_queue_runtime_properties(name + "-target")
    assert runtime.active_message_count == 1


def test_message_that_is_forwarded_in_a_circle_ends_in_the_transfer_dead_letters(
    admin, opened, name
):
    queue = admin.create_queue(name)
    admin.update_queue(queue, forward_to=name)
    admin.create_topic(name + "-t")
    admin.create_subscription(name + "-t", "s", forward_to=name + "-t")
    for method, path in (("get_queue_sender", name), ("get_topic_sender", name + "-t")):
        opened(method, path).send_messages(ServiceBusMessage("round and round"))
    # Forwarding goes on after the send was acknowledged: wait until it has ended.
    ended = {"sub_queue": ServiceBusSubQueue.TRANSFER_DEAD_LETTER}
    take(opened("get_queue_receiver", name, **ended))
    take(opened("get_subscription_receiver", name + "-t", "s", **ended))
    for found in (
        admin.get_queue_runtime_properties(name),
        admin.get_subscription_runtime_properties(name + "-t", "s"),
    ):
        assert (found.active_message_count, found.transfer_dead_letter_message_count) == (0, 1)


def test_session_queue_can_forward(admin, opened, name):
    admin.create_queue(name + "-target")
    admin.create_queue(name, requires_session=True, forward_to=name + "-target")
    opened("get_queue_sender", name).send_messages(ServiceBusMessage("x", session_id="s"))
    assert admin.get_queue_runtime_properties(name + "-target").active_message_count == 1


def test_dead_letters_that_come_back_do_so_only_so_often(admin, opened, name):
    queue = admin.create_queue(name, max_delivery_count=1)
    admin.update_queue(queue, forward_dead_lettered_messages_to=name)
    opened("get_queue_sender", name).send_messages(ServiceBusMessage("x"))
    receiver = opened("get_queue_receiver", name)
    for _ in range(5):  # the first time, and after each of four forwards
        receiver.abandon_message(take(receiver)[0])
    while (found := admin.get_queue_runtime_properties(name)).active_message_count:
        pass
    assert (found.dead_letter_message_count, found.total_message_count) == (1, 1)


@pytest.mark.covers("SubscriptionProperties.dead_lettering_on_filter_evaluation_exceptions")
def test_filter_that_fails_on_a_message_dead_letters_it_or_drops_it(admin, opened, name):
    admin.create_topic(name)
    for subscription, is_kept in (("keeps", True), ("drops", False)):
        admin.create_subscription(
            name, subscription, dead_lettering_on_filter_evaluation_exceptions=is_kept
        )
        admin.create_rule(name, subscription, "r", filter=SqlRuleFilter("color > 5"))
        admin.delete_rule(name, subscription, "$Default")
    sender = opened("get_topic_sender", name)
    sender.send_messages(ServiceBusMessage("x", application_properties={"color": "red"}))
    assert counts(admin, name, "keeps") == (0, 1)
    assert counts(admin, name, "drops") == (0, 0)
    receiver = opened(
        "get_subscription_receiver", name, "keeps", sub_queue=ServiceBusSubQueue.DEAD_LETTER
    )
    (message,) = take(receiver)
    assert "Cannot order str and int" in message.dead_letter_error_description
    assert "red" not in message.dead_letter_error_description


@pytest.mark.covers("TopicProperties.authorization_rules")
def test_keys_of_a_topic_open_it_until_they_are_changed(admin, ns, name):
    def rule(key, *rights):
        return AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            rights=list(rights),
            key_name="app",
            primary_key=key,
        )

    topic = admin.create_topic(name, authorization_rules=[rule("first", AccessRights.SEND)])
    admin.create_subscription(name, "s")

    def client(key):
        text = ns.connection_string.replace("RootManageSharedAccessKey", "app")
        return ServiceBusClient.from_connection_string(
            text.replace("SAS_KEY_VALUE", key), retry_total=0
        )

    with client("first") as first:
        with first.get_topic_sender(name) as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusAuthorizationError):
            first.get_subscription_receiver(name, "s").__enter__()
        admin.update_topic(topic, authorization_rules=[rule("second", AccessRights.LISTEN)])
        with pytest.raises(ServiceBusAuthenticationError):
            first.get_topic_sender(name).__enter__()
    with (
        client("second") as second,
        second.get_subscription_receiver(name, "s") as receiver,
    ):
        assert str(take(receiver)[0]) == "x"


# --- runtime properties --------------------------------------------------------------------------


@pytest.mark.covers(
    "QueueRuntimeProperties.total_message_count",
    "QueueRuntimeProperties.active_message_count",
    "QueueRuntimeProperties.dead_letter_message_count",
    "QueueRuntimeProperties.scheduled_message_count",
    "QueueRuntimeProperties.size_in_bytes",
    "QueueRuntimeProperties.created_at_utc",
    "QueueRuntimeProperties.updated_at_utc",
    "QueueRuntimeProperties.accessed_at_utc",
    "QueueRuntimeProperties.transfer_message_count",
    "QueueRuntimeProperties.transfer_dead_letter_message_count",
)
def test_runtime_properties_of_a_queue_follow_its_messages(admin, opened, clock, name):
    queue = admin.create_queue(name)
    created = datetime.fromtimestamp(clock(), UTC)
    clock.advance(10)
    sender = opened("get_queue_sender", name)
    sender.send_messages([ServiceBusMessage("x" * 1000) for _ in range(4)])
    sender.schedule_messages(
        ServiceBusMessage("later"), datetime.fromtimestamp(clock() + 3600, UTC)
    )
    receiver = opened("get_queue_receiver", name)
    done, dead, kept = take(receiver, 3)
    receiver.complete_message(done)
    receiver.dead_letter_message(dead, reason="because")
    receiver.defer_message(kept)
    clock.advance(10)
    admin.update_queue(queue, user_metadata="new")
    found = admin.get_queue_runtime_properties(name)
    assert (found.active_message_count, found.dead_letter_message_count) == (2, 1)
    assert (found.scheduled_message_count, found.total_message_count) == (1, 4)
    assert (found.transfer_message_count, found.transfer_dead_letter_message_count) == (0, 0)
    assert 3000 < found.size_in_bytes < 5000
    assert abs(found.created_at_utc - created) < timedelta(seconds=1)
    assert found.created_at_utc < found.accessed_at_utc < found.updated_at_utc


@pytest.mark.covers(
    "QueueRuntimeProperties.transfer_message_count",
    "SubscriptionRuntimeProperties.transfer_message_count",
    "SubscriptionRuntimeProperties.transfer_dead_letter_message_count",
)
def test_messages_that_wait_to_be_forwarded_are_counted_as_in_transfer(admin, opened, clock, name):
    admin.create_queue(f"{name}-to", status=EntityStatus.SEND_DISABLED)
    admin.create_queue(name, forward_to=f"{name}-to")
    admin.create_topic(f"{name}-topic")
    admin.create_subscription(f"{name}-topic", "s", forward_to=f"{name}-to")
    opened("get_queue_sender", name).send_messages([ServiceBusMessage("x") for _ in range(3)])
    opened("get_topic_sender", f"{name}-topic").send_messages(ServiceBusMessage("y"))
    found = admin.get_queue_runtime_properties(name)
    assert (found.active_message_count, found.transfer_message_count) == (0, 3)
    below = admin.get_subscription_runtime_properties(f"{name}-topic", "s")
    assert (below.active_message_count, below.transfer_message_count) == (0, 1)
    admin.delete_queue(f"{name}-to")
    clock.advance(2)  # it is tried again
    below = admin.get_subscription_runtime_properties(f"{name}-topic", "s")
    assert (below.transfer_message_count, below.transfer_dead_letter_message_count) == (0, 1)


@pytest.mark.covers(
    "TopicRuntimeProperties.subscription_count",
    "TopicRuntimeProperties.scheduled_message_count",
    "SubscriptionRuntimeProperties.total_message_count",
    "SubscriptionRuntimeProperties.active_message_count",
    "SubscriptionRuntimeProperties.dead_letter_message_count",
)
def test_runtime_properties_of_topic_and_subscription_follow_their_messages(
    admin, opened, clock, name
):
    admin.create_topic(name)
    for subscription in ("s", "other"):
        admin.create_subscription(name, subscription)
    sender = opened("get_topic_sender", name)
    sender.send_messages([ServiceBusMessage("x"), ServiceBusMessage("y")])
    sender.schedule_messages(
        ServiceBusMessage("later"), datetime.fromtimestamp(clock() + 3600, UTC)
    )
    receiver = opened("get_subscription_receiver", name, "s")
    receiver.dead_letter_message(take(receiver)[0])
    topic = admin.get_topic_runtime_properties(name)
    assert (topic.subscription_count, topic.scheduled_message_count) == (2, 1)
    found = admin.get_subscription_runtime_properties(name, "s")
    assert (found.total_message_count, found.active_message_count) == (2, 1)
    assert found.dead_letter_message_count == 1
    clock.advance(3601)
    assert counts(admin, name, "other") == (3, 0)


# --- rules ---------------------------------------------------------------------------------------

GUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
NEWYEAR = datetime(2026, 1, 1, tzinfo=UTC)
FILTERS = {
    "text": SqlRuleFilter("color = 'red'"),
    "int": SqlRuleFilter("quantity = 7 AND quantity + 0.5 > 7"),
    "float": SqlRuleFilter("price < 3"),
    "bool": SqlRuleFilter("urgent = TRUE"),
    "guid": SqlRuleFilter(f"guid = '{GUID}'"),
    "time": SqlRuleFilter("due = @due", parameters={"@due": NEWYEAR}),
    "null": SqlRuleFilter("nothing IS NULL AND EXISTS(color) AND NOT EXISTS(missing)"),
    "like": SqlRuleFilter("color LIKE 'r_d' AND sys.Label LIKE '%eet%'"),
    "in": SqlRuleFilter("quantity IN (1, 7) AND color NOT IN ('blue')"),
    "sys": SqlRuleFilter(
        "sys.MessageId = 'm' AND sys.CorrelationId = 'c' AND sys.To = 'to' AND "
        "sys.ReplyTo = 'back' AND sys.SessionId = 's' AND sys.ReplyToSessionId = 'rs' AND "
        "sys.ContentType = 'text/plain' AND sys.Subject = 'greeting'"
    ),
    "enqueued": SqlRuleFilter("sys.EnqueuedTimeUtc > @then", parameters={"@then": NEWYEAR}),
    "ttl": SqlRuleFilter("sys.TimeToLive = @ttl", parameters={"@ttl": timedelta(minutes=5)}),
    "property": SqlRuleFilter("property('col' + 'or') = 'red'"),
    "correlation": CorrelationRuleFilter(
        correlation_id="c",
        message_id="m",
        to="to",
        reply_to="back",
        label="greeting",
        session_id="s",
        reply_to_session_id="rs",
        content_type="text/plain",
        properties={"color": "red", "quantity": 7, "urgent": True, "due": NEWYEAR, "price": 2.5},
    ),
}
OTHERS = {
    "false": SqlRuleFilter("color = 'blue'"),
    "unknown": SqlRuleFilter("missing = 1 OR NOT missing = 1"),
    "case": CorrelationRuleFilter(label="Greeting"),
    "type": CorrelationRuleFilter(properties={"quantity": "7"}),
}


@pytest.mark.covers("RuleProperties.filter")
def test_filters_choose_messages_of_the_sdk(admin, opened, name):
    admin.create_topic(name)
    for subscription, filter_ in (FILTERS | OTHERS).items():
        admin.create_subscription(name, subscription)
        admin.create_rule(name, subscription, "r", filter=filter_)
        admin.delete_rule(name, subscription, "$Default")
    message = ServiceBusMessage(
        "x",
        application_properties={
            "color": "red",
            "quantity": 7,
            "price": 2.5,
            "urgent": True,
            "guid": GUID,
            "due": NEWYEAR,
            "nothing": None,
        },
        message_id="m",
        correlation_id="c",
        to="to",
        reply_to="back",
        session_id="s",
        reply_to_session_id="rs",
        content_type="text/plain",
        subject="greeting",
        time_to_live=timedelta(minutes=5),
    )
    opened("get_topic_sender", name).send_messages(message)
    found = {s: counts(admin, name, s) for s in FILTERS | OTHERS}
    assert found == dict.fromkeys(FILTERS, (1, 0)) | dict.fromkeys(OTHERS, (0, 0))


@pytest.mark.covers("RuleProperties.action")
def test_action_changes_the_copy_that_its_rule_lets_in(admin, opened, name):
    admin.create_topic(name)
    admin.create_subscription(name, "s")
    admin.create_rule(
        name,
        "s",
        "r",
        filter=SqlRuleFilter("quantity > @least", parameters={"@least": 5}),
        action=SqlRuleAction(
            "SET quantity = quantity + @more; SET color = color + '-ish'; REMOVE secret;"
            "SET added = TRUE; SET due = @due; SET copy = guid;"
            "SET sys.Label = 'was ' + sys.Label; SET sys.To = color; REMOVE sys.ReplyTo",
            parameters={"@more": 3, "@due": NEWYEAR},
        ),
    )
    admin.delete_rule(name, "s", "$Default")
    opened("get_topic_sender", name).send_messages(
        ServiceBusMessage(
            b"body",
            application_properties={
                "quantity": 7,
                "color": "red",
                "secret": "x",
                "guid": GUID,
                "price": 2.5,
            },
            subject="greeting",
            reply_to="back",
            message_id="m",
        )
    )
    (message,) = take(opened("get_subscription_receiver", name, "s"))
    properties = {
        (key.decode() if isinstance(key, bytes) else key): (
            value.decode() if isinstance(value, bytes) else value
        )
        for key, value in message.application_properties.items()
    }
    due = properties.pop("due")
    assert due in (NEWYEAR, int(NEWYEAR.timestamp() * 1000))
    assert properties == {
        "quantity": 10,
        "color": "red-ish",
        "added": True,
        "guid": GUID,
        "copy": GUID,
        "price": 2.5,
    }
    assert (message.subject, message.to, message.reply_to) == ("was greeting", "red-ish", None)
    assert (message.message_id, b"".join(message.body)) == ("m", b"body")


def test_rule_that_is_updated_holds_for_the_next_message(admin, opened, name):
    admin.create_topic(name)
    admin.create_subscription(name, "s")
    rule = admin.get_rule(name, "s", "$Default")
    sender = opened("get_topic_sender", name)
    sender.send_messages(ServiceBusMessage("in"))
    admin.update_rule(name, "s", rule, filter=SqlRuleFilter("1 = 0"))
    sender.send_messages(ServiceBusMessage("out"))
    assert counts(admin, name) == (1, 0)
