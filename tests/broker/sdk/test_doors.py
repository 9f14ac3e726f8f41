"""One port, every way in: AMQP, TLS, WebSocket, HTTP, HTTPS, realistic host names, restarts."""

import socket
import ssl
import urllib.request

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType, aio
from azure.servicebus.exceptions import ServiceBusConnectionError
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.broker import run
from pairbus.testing import FaultProxy


def exchange(client: ServiceBusClient, queue: str) -> str:
    with client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("hello"))
        with client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver:
            [message] = receiver.receive_messages(max_wait_time=5)
            return str(message)


def test_amqp_over_tls_with_a_realistic_host_name(bus) -> None:
    queue = bus.queue()
    client = ServiceBusClient.from_connection_string(
        "Endpoint=sb://contoso.servicebus.windows.net/;"
        "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE",
        custom_endpoint_address=f"sb://localhost:{bus.ns.port}",
        connection_verify=str(bus.ns.certificate),
        transport_type=TransportType.Amqp,
        retry_total=0,
    )
    assert exchange(client, queue) == "hello"


def test_amqp_over_websocket(bus) -> None:
    pytest.importorskip("websocket", reason="the SDK needs websocket-client for this")
    queue = bus.queue()
    client = ServiceBusClient.from_connection_string(
        "Endpoint=sb://contoso.servicebus.windows.net/;"
        "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE",
        custom_endpoint_address=f"sb://localhost:{bus.ns.port}",
        connection_verify=str(bus.ns.certificate),
        transport_type=TransportType.AmqpOverWebsocket,
        retry_total=0,
    )
    assert exchange(client, queue) == "hello"


async def test_amqp_over_websocket_with_the_aio_client(bus) -> None:
    queue = bus.queue()
    async with (
        aio.ServiceBusClient.from_connection_string(
            "Endpoint=sb://contoso.servicebus.windows.net/;"
            "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE",
            custom_endpoint_address=f"sb://localhost:{bus.ns.port}",
            connection_verify=str(bus.ns.certificate),
            transport_type=TransportType.AmqpOverWebsocket,
            retry_total=0,
        ) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver,
    ):
        await sender.send_messages(ServiceBusMessage("x" * 200_000))
        [message] = await receiver.receive_messages(max_wait_time=5)
        assert str(message) == "x" * 200_000


def test_administration_over_https_with_the_certificate(bus, monkeypatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bus.ns.certificate))
    with ServiceBusAdministrationClient.from_connection_string(bus.ns.connection_string) as admin:
        admin.create_queue("over-https")
        assert admin.get_queue("over-https").name == "over-https"


@pytest.mark.covers("ServiceBusAdministrationClient.from_connection_string")
def test_administration_needs_no_certificate_with_the_helper(bus) -> None:
    with bus.ns.admin_client() as admin:
        admin.create_queue("over-http")
        assert "over-http" in [queue.name for queue in admin.list_queues()]


@pytest.mark.covers("aio.ServiceBusAdministrationClient.from_connection_string")
async def test_asynchronous_administration_too(bus) -> None:
    async with bus.ns.aio_admin_client() as admin:
        await admin.create_queue("over-aio")
        assert "over-aio" in [queue.name async for queue in admin.list_queues()]


def test_health_over_https(bus) -> None:
    context = ssl.create_default_context(cafile=str(bus.ns.certificate))
    with urllib.request.urlopen(
        f"https://localhost:{bus.ns.port}/$control/health", context=context, timeout=10
    ) as response:
        assert b"contoso" in response.read()


def test_a_stopped_namespace_comes_back_on_its_port_with_its_messages() -> None:
    with run() as ns:
        ns.create_queue("q")
        with ServiceBusClient.from_connection_string(ns.connection_string, retry_total=0) as client:
            with client.get_queue_sender("q") as sender:
                sender.send_messages(ServiceBusMessage("kept"))
                for end in (ns.stop, ns.kill):
                    end()
                    with pytest.raises(ServiceBusConnectionError):
                        sender.send_messages(ServiceBusMessage("lost"))
                    ns.start()
                    sender.send_messages(ServiceBusMessage("again"))
            with client.get_queue_receiver("q", receive_mode="receiveanddelete") as receiver:
                found = receiver.receive_messages(5, max_wait_time=5)
                assert [str(m) for m in found] == ["kept", "again", "again"]


def test_the_sdk_works_through_the_fault_proxy(bus) -> None:
    queue = bus.queue()
    with FaultProxy(bus.ns.connection_string) as proxy:
        client = ServiceBusClient.from_connection_string(proxy.connection_string, retry_total=0)
        with client, client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("through"))
            proxy.mode = "refuse"
            with pytest.raises(ServiceBusConnectionError):
                sender.send_messages(ServiceBusMessage("lost"))
            proxy.mode = "pass"
            sender.send_messages(ServiceBusMessage("through again"))
    assert bus.runtime(queue).active_message_count == 2


def test_the_certificate_is_made_when_a_client_asks_for_it(tmp_path):
    with run(data=tmp_path) as ns:
        ns.create_queue("q")
        with ns.client() as client, client.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        assert not list(tmp_path.glob("*.pem"))
        context = ssl.create_default_context(cafile=str(ns.certificate))
        with (
            socket.create_connection(("127.0.0.1", ns.port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            assert secure.version()
