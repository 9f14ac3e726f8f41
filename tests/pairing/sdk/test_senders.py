"""What the adapter sets on an SDK sender."""

import asyncio
import ssl

import pytest
from aiohttp import WSMsgType
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusClient, TransportType, aio

from pairbus.pairing.sdk.contract import CONNECTION, HANDLER, TRANSPORT
from pairbus.pairing.sdk.senders import cut, share_tls_context, wire_of

KEY = AzureNamedKeyCredential("name", "key")


@pytest.mark.parametrize("client_class", [ServiceBusClient, aio.ServiceBusClient])
def test_the_bundle_of_authorities_is_read_once_for_all_senders(client_class, monkeypatch):
    read = []
    load = ssl.SSLContext.load_verify_locations
    monkeypatch.setattr(
        ssl.SSLContext,
        "load_verify_locations",
        lambda self, *args: (read.append(args), load(self, *args)),
    )
    client = client_class("contoso.servicebus.windows.net", KEY)
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


def test_a_connection_without_tls_gets_no_context():
    client = ServiceBusClient("127.0.0.1:5672", KEY, use_tls=False)
    sender = client.get_queue_sender("orders")

    share_tls_context(sender)

    assert sender._config.ssl_context is None  # noqa: SLF001 - the SDK shows its context nowhere else


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
