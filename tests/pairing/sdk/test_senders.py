"""What the adapter sets on an SDK sender."""

import ssl

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusClient, aio

from pairbus.pairing.sdk.senders import share_tls_context

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
