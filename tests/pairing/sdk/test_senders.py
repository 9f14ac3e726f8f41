"""What the adapter sets on an SDK sender."""

import asyncio
import ssl
import threading
import time
import types

import pytest
from aiohttp import WSMsgType
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    TransportType,
    _servicebus_sender,
    aio,
)
from azure.servicebus.aio import _servicebus_sender_async
from azure.servicebus.exceptions import ServiceBusError

from pairbus.pairing._async.link import Link as AsyncLink
from pairbus.pairing._sync.link import Link
from pairbus.pairing.sdk.contract import CLOSE_HANDLER, CONNECTION, HANDLER, TRANSPORT
from pairbus.pairing.sdk.deadlines import AWatch, Watch
from pairbus.pairing.sdk.senders import disable_retries, host_to_resolve, share_tls_context
from pairbus.pairing.sdk.wire import Opening, cut, wire_of

KEY = AzureNamedKeyCredential("name", "key")


@pytest.mark.parametrize(
    ("options", "host"),
    [
        ({}, "contoso.servicebus.windows.net"),
        ({"custom_endpoint_address": "sb://gateway.example:5671"}, "gateway.example"),
        ({"custom_endpoint_address": "gateway.example"}, "gateway.example"),
        ({"custom_endpoint_address": "sb://127.0.0.1:5671"}, None),
        (
            {"http_proxy": {"proxy_hostname": "proxy.example", "proxy_port": 3128}},
            "proxy.example",
        ),
    ],
)
def test_the_name_that_the_sdk_will_look_up_is_known(options, host):
    client = aio.ServiceBusClient("contoso.servicebus.windows.net", KEY, **options)

    assert host_to_resolve(client.get_queue_sender("orders")) == host


@pytest.mark.parametrize("use_tls", [True, False])  # the async SDK reads it without TLS too
@pytest.mark.parametrize("client_class", [ServiceBusClient, aio.ServiceBusClient])
def test_the_bundle_of_authorities_is_read_once_for_all_senders(client_class, use_tls, monkeypatch):
    read = []
    load = ssl.SSLContext.load_verify_locations
    monkeypatch.setattr(
        ssl.SSLContext,
        "load_verify_locations",
        lambda self, *args: (read.append(args), load(self, *args)),
    )
    client = client_class("contoso.servicebus.windows.net", KEY, use_tls=use_tls)
    share_tls_context(client)
    read.clear()

    senders = [client.get_queue_sender("orders") for _ in range(20)]
    for sender in senders:
        share_tls_context(sender)

    assert read == []
    [context] = {sender._config.ssl_context for sender in senders}  # noqa: SLF001 - the SDK shows its context nowhere else
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_the_applications_own_context_is_left_as_it_is():
    own = ssl.create_default_context()
    client = ServiceBusClient("contoso.servicebus.windows.net", KEY, ssl_context=own)
    sender = client.get_queue_sender("orders")

    share_tls_context(sender)

    assert sender._config.ssl_context is own  # noqa: SLF001 - the SDK shows its context nowhere else


async def test_web_socket_of_the_async_sdk_is_cut_without_a_word_to_the_peer(servicebus):
    servicebus.create_queue("orders")
    client = aio.ServiceBusClient.from_connection_string(
        "Endpoint=sb://contoso.servicebus.windows.net/;"
        "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE",
        custom_endpoint_address=f"sb://localhost:{servicebus.port}",
        connection_verify=str(servicebus.certificate),
        transport_type=TransportType.AmqpOverWebsocket,
        retry_total=0,
    )
    async with client, client.get_queue_sender("orders") as sender:
        transport = TRANSPORT.of(CONNECTION.of(HANDLER.of(sender)))
        wire = wire_of(sender)
        cut(wire)
        cut(wire)  # twice is fine
        message = await transport.sock.receive(timeout=30)
        assert message.type in (WSMsgType.CLOSED, WSMsgType.ERROR, WSMsgType.CLOSE)
        async with asyncio.timeout(30):
            while not transport.session.closed:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("closer", ["sender", "client"])
def test_failed_send_leaves_its_connection_to_be_closed_later(servicebus, closer):
    servicebus.create_queue("orders")
    client = ServiceBusClient.from_connection_string(servicebus.connection_string)
    with client:
        sender = client.get_queue_sender("orders")
        keeping_open = disable_retries(sender)
        sender.send_messages(ServiceBusMessage("a"))
        handler = HANDLER.of(sender)
        cut(wire_of(sender))

        with pytest.raises(ServiceBusError):
            Watch().send(sender, ServiceBusMessage("b"), time.monotonic() + 60, 60.0, keeping_open)

        assert CONNECTION.of(handler) is not None  # closing it takes the SDK up to a second
        {"sender": sender, "client": client}[closer].close()
        assert CONNECTION.of(handler) is None


async def test_failed_send_of_the_async_sdk_leaves_its_connection_to_be_closed_later(servicebus):
    servicebus.create_queue("orders")
    async with aio.ServiceBusClient.from_connection_string(servicebus.connection_string) as client:
        sender = client.get_queue_sender("orders")
        keeping_open = disable_retries(sender)
        await sender.send_messages(ServiceBusMessage("a"))
        handler = HANDLER.of(sender)
        cut(wire_of(sender))

        message = ServiceBusMessage("b")

        with pytest.raises(ServiceBusError):
            await AWatch().send(sender, message, time.monotonic() + 60, 60.0, keeping_open)

        assert CONNECTION.of(handler) is not None
        await sender.close()
        assert CONNECTION.of(handler) is None


def test_sender_that_another_thread_closes_during_a_call_is_closed(servicebus):
    servicebus.create_queue("orders")
    client = ServiceBusClient.from_connection_string(servicebus.connection_string)
    with client:
        sender = client.get_queue_sender("orders")
        keeping_open = disable_retries(sender)
        sender.send_messages(ServiceBusMessage("a"))
        handler = HANDLER.of(sender)

        with keeping_open:
            closing = threading.Thread(target=client.close)
            closing.start()
            closing.join(60)
            assert CONNECTION.of(handler) is None


async def test_sender_that_another_task_closes_during_a_call_is_closed(servicebus):
    servicebus.create_queue("orders")
    async with aio.ServiceBusClient.from_connection_string(servicebus.connection_string) as client:
        sender = client.get_queue_sender("orders")
        keeping_open = disable_retries(sender)
        await sender.send_messages(ServiceBusMessage("a"))
        handler = HANDLER.of(sender)

        with keeping_open:
            await asyncio.create_task(sender.close())
            assert CONNECTION.of(handler) is None


def patches_of(thing):
    """What pairbus has put on an SDK object: callables that are neither its own nor its class's."""
    return [
        name
        for name, value in vars(thing).items()
        if callable(value) and getattr(value, "__module__", "").startswith("pairbus")
    ]


def test_nothing_of_ours_is_left_on_a_sender_between_calls(servicebus):
    servicebus.create_queue("orders")
    client = ServiceBusClient.from_connection_string(servicebus.connection_string)
    made = []

    def make():
        made.append(client.get_queue_sender("orders"))
        return made[-1]

    with client:
        link = Link(make, "orders")
        for _ in range(2):
            link.send(ServiceBusMessage("a"), deadline=time.monotonic() + 30)
            [sender] = made
            assert patches_of(sender) == patches_of(HANDLER.of(sender)) == []
            with disable_retries(sender):
                assert patches_of(sender) == [CLOSE_HANDLER.name]
        link.call(lambda s, _: s.cancel_scheduled_messages([]), deadline=time.monotonic() + 30)
        cut(wire_of(sender))
        with pytest.raises(ServiceBusError):
            link.send(ServiceBusMessage("b"), deadline=time.monotonic() + 30)
        assert patches_of(sender) == []
        link.close()


async def test_nothing_of_ours_is_left_on_a_sender_of_the_async_sdk_between_calls(servicebus):
    servicebus.create_queue("orders")
    made = []
    async with aio.ServiceBusClient.from_connection_string(servicebus.connection_string) as client:

        def make():
            made.append(client.get_queue_sender("orders"))
            return made[-1]

        link = AsyncLink(make, "orders")
        for _ in range(2):
            await link.send(ServiceBusMessage("a"), deadline=time.monotonic() + 30)
            [sender] = made
            assert patches_of(sender) == patches_of(HANDLER.of(sender)) == []
        cut(wire_of(sender))
        with pytest.raises(ServiceBusError):
            await link.send(ServiceBusMessage("b"), deadline=time.monotonic() + 30)
        assert patches_of(sender) == []
        await link.close()


def test_a_link_opens_without_a_pause_after_each_frame(servicebus, monkeypatch):
    servicebus.create_queue("orders")
    slept = []
    clock = types.SimpleNamespace(sleep=slept.append, monotonic=time.monotonic, time=time.time)
    monkeypatch.setattr(_servicebus_sender, "time", clock)
    with ServiceBusClient.from_connection_string(servicebus.connection_string) as client:
        sender = client.get_queue_sender("orders")
        opening = Opening(sender)
        with sender:
            opening.end()
            sender.send_messages(ServiceBusMessage("a"))

    assert slept == []


async def test_a_link_of_the_async_sdk_opens_without_a_pause_after_each_frame(
    servicebus, monkeypatch
):
    servicebus.create_queue("orders")
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(_servicebus_sender_async, "asyncio", types.SimpleNamespace(sleep=sleep))
    async with aio.ServiceBusClient.from_connection_string(servicebus.connection_string) as client:
        sender = client.get_queue_sender("orders")
        opening = Opening(sender)
        async with sender:
            opening.end()
            await sender.send_messages(ServiceBusMessage("a"))

    assert slept == []
