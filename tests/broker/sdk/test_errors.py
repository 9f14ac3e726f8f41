"""What goes wrong reaches the user as the exception that the real service would cause."""

import contextlib
import time
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from pairbus.broker.entities.model import AccessRight, AuthorizationRule, EntityStatus
from tests.sas import make_token


@pytest.fixture(scope="module")
def queue(bus) -> str:
    return bus.queue()


@pytest.mark.parametrize(
    ("condition", "error"),
    [
        ("com.microsoft:server-busy", ServiceBusServerBusyError),
        ("com.microsoft:timeout", OperationTimeoutError),
        ("com.microsoft:entity-disabled", MessagingEntityDisabledError),
        ("amqp:internal-error", ServiceBusError),
        ("com.microsoft:operation-cancelled", ServiceBusError),
        ("amqp:link:detach-forced", ServiceBusConnectionError),
        ("com.microsoft:auth-failed", ServiceBusAuthorizationError),
        ("amqp:resource-limit-exceeded", ServiceBusQuotaExceededError),
        ("amqp:unauthorized-access", ServiceBusAuthorizationError),
        ("amqp:not-found", MessagingEntityNotFoundError),
        ("amqp:not-allowed", ServiceBusError),
        ("com.microsoft:argument-error", ServiceBusError),
        ("amqp:link:message-size-exceeded", MessageSizeExceededError),
    ],
)
def test_a_rejected_send_raises_what_its_condition_says(bus, queue, condition, error) -> None:
    sender = bus.sender(queue)
    with bus.ns.faults.reject(condition, queue), pytest.raises(error):
        sender.send_messages(ServiceBusMessage("x"))
    with contextlib.suppress(ServiceBusError):  # a forced detach made the SDK drop its link
        sender.send_messages(ServiceBusMessage("after"))


@pytest.mark.parametrize("kind", ["get_queue_sender", "get_queue_receiver"])
def test_an_entity_that_is_not_there(bus, kind) -> None:
    with pytest.raises(MessagingEntityNotFoundError):
        getattr(bus.client, kind)("nowhere").__enter__()


@pytest.mark.covers("QueueProperties.status")
def test_a_disabled_entity(bus) -> None:
    disabled = bus.queue(status=EntityStatus.DISABLED)
    with pytest.raises(MessagingEntityDisabledError):
        bus.client.get_queue_sender(disabled).__enter__()
    with pytest.raises(MessagingEntityDisabledError):
        bus.client.get_queue_receiver(disabled).__enter__()


def test_an_entity_that_is_disabled_while_links_are_open(bus) -> None:
    name = bus.queue()
    sender, receiver = bus.sender(name), bus.receiver(name)
    sender.send_messages(ServiceBusMessage("before"))
    with bus.ns.admin_client() as admin:
        properties = admin.get_queue(name)
        properties.status = "SendDisabled"
        admin.update_queue(properties)
        with pytest.raises(MessagingEntityDisabledError):
            sender.send_messages(ServiceBusMessage("after"))
        [message] = bus.take(receiver)
        receiver.complete_message(message)


@pytest.mark.covers("QueueProperties.max_size_in_megabytes")
def test_a_queue_that_is_full(bus) -> None:
    name = bus.queue(max_size_in_megabytes=1024)
    entity = bus.ns.do(lambda ns: ns.catalog.entity(name))
    bus.ns.do(lambda ns: setattr(entity.main.store, "size", 1024 * 1024 * 1024))  # as if it were
    with pytest.raises(ServiceBusQuotaExceededError):
        bus.sender(name).send_messages(ServiceBusMessage("x"))


@pytest.mark.covers("QueueProperties.max_message_size_in_kilobytes")
def test_a_message_beyond_the_limit_of_its_queue(bus) -> None:
    name = bus.queue(max_message_size_in_kilobytes=2048)
    bus.sender(name).send_messages(ServiceBusMessage(b"x" * (1500 * 1024)))
    receiver = bus.receiver(name, receive_mode="receiveanddelete")
    [message] = bus.take(receiver)
    assert len(b"".join(message.body)) == 1500 * 1024


def test_a_deleted_entity_detaches_its_links(bus) -> None:
    name = bus.queue()
    sender = bus.sender(name)
    receiver = bus.receiver(name)
    bus.ns.do(lambda ns: ns.admin.delete_queue(name))
    with pytest.raises(MessagingEntityNotFoundError):
        sender.send_messages(ServiceBusMessage("x"))
    with pytest.raises(ServiceBusError):
        receiver.receive_messages(max_wait_time=5)


def test_a_wrong_key_opens_nothing(namespace, queue) -> None:
    wrong = namespace.connection_string.replace("SAS_KEY_VALUE", "wrong")
    with (
        ServiceBusClient.from_connection_string(wrong, retry_total=0) as client,
        pytest.raises(ServiceBusAuthenticationError),
    ):
        client.get_queue_sender(queue).__enter__()


@pytest.mark.covers("QueueProperties.authorization_rules")
def test_a_key_of_an_entity_opens_that_entity_with_its_claims_only(bus, queue) -> None:
    rule = AuthorizationRule("sends", (AccessRight.SEND,), "entity-key", "other-key")
    name = bus.queue(authorization_rules=(rule,))
    text = bus.ns.connection_string.replace("RootManageSharedAccessKey", "sends")
    text = text.replace("SAS_KEY_VALUE", "entity-key")
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        bus.keep(client.get_queue_sender(name)).send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusAuthorizationError):
            client.get_queue_receiver(name).__enter__()
        with pytest.raises(ServiceBusAuthenticationError):
            client.get_queue_sender(queue).__enter__()


def test_a_token_that_expires_detaches_its_link(bus, queue) -> None:
    host = f"127.0.0.1:{bus.ns.port}"
    token = make_token(
        f"sb://{host}/{queue}",
        "RootManageSharedAccessKey",
        "SAS_KEY_VALUE",
        expires_at=time.time() + 300,
    )
    text = f"Endpoint=sb://{host};SharedAccessSignature={token};UseDevelopmentEmulator=true"
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        sender = bus.keep(client.get_queue_sender(queue))
        sender.send_messages(ServiceBusMessage("in time"))
        bus.ns._call(lambda: let_time_pass(bus.ns._broker, 301))  # noqa: SLF001 - tokens expire by the real time
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("late"), timeout=10)


def let_time_pass(broker, seconds: float) -> None:
    """Move the clock by which tokens expire; the others in this module last an hour."""
    for connection in list(broker.connections):
        connection.tokens._now = lambda: time.time() + seconds  # noqa: SLF001 - tokens expire by the real time
        connection._check_tokens()  # noqa: SLF001 - tokens expire by the real time


def test_a_lock_duration_out_of_range_is_refused(bus) -> None:
    from azure.core.exceptions import HttpResponseError

    with bus.ns.admin_client() as admin, pytest.raises(HttpResponseError) as caught:
        admin.create_queue("bad", lock_duration=timedelta(minutes=6))
    assert caught.value.status_code == 400
