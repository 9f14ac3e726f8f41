"""Refusals: the exceptions that an application sees."""

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusError,
)
from azure.servicebus.management import EntityStatus


def client(bus, **options):
    text = options.pop("connection_string", bus.target.connection_string)
    return ServiceBusClient.from_connection_string(text, retry_total=0, **options)


def test_entity_that_does_not_exist(bus):
    with client(bus) as own, pytest.raises(MessagingEntityNotFoundError):
        own.get_queue_sender(bus.name()).__enter__()
    with client(bus) as own, pytest.raises(MessagingEntityNotFoundError):
        own.get_queue_receiver(bus.name()).__enter__()


def test_wrong_key(bus):
    parts = dict(part.split("=", 1) for part in bus.target.connection_string.split(";") if part)
    parts["SharedAccessKey"] = "wrong" * 8
    text = ";".join(f"{name}={value}" for name, value in parts.items())
    with client(bus, connection_string=text) as own, pytest.raises(ServiceBusAuthenticationError):
        own.get_queue_sender(bus.name()).__enter__()


def test_message_beyond_the_size_limit(bus):
    queue = bus.queue()
    with pytest.raises(MessageSizeExceededError):
        bus.send(queue, ServiceBusMessage(b"x" * 2_000_000))
    bus.send(queue, ServiceBusMessage("small"))


def test_disabled_queue(bus):
    queue = bus.queue()
    properties = bus.admin.get_queue(queue)
    properties.status = EntityStatus.SEND_DISABLED
    bus.admin.update_queue(properties)
    with (
        client(bus) as own,
        pytest.raises(MessagingEntityDisabledError),
        own.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


def test_sessions_where_they_are_required_and_where_they_are_not(bus):
    plain, sessions = bus.queue(), bus.queue(requires_session=True)
    with client(bus) as own, pytest.raises(ServiceBusError):
        own.get_queue_receiver(plain, session_id="s").__enter__()
    with client(bus) as own, pytest.raises(ServiceBusError):
        own.get_queue_receiver(sessions).__enter__()
    with pytest.raises(ServiceBusError):
        bus.send(sessions, ServiceBusMessage("x"))
