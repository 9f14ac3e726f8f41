"""Credentials of every kind stay in the application's clients: TLS, tokens, keys, signatures."""

import sys
import time

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from pairbus import events
from tests.sas import make_token

pytestmark = [pytest.mark.sdk, pytest.mark.slow]

KEY = ("RootManageSharedAccessKey", "SAS_KEY_VALUE")


class Token:
    """As the credentials of azure-identity; it knows who looked at it."""

    def __init__(self, host):
        self.host = host
        self.lookers = set()

    def __getattribute__(self, name):
        looker = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 - finds the module that reads the attribute
        object.__getattribute__(self, "__dict__").get("lookers", set()).add(looker)
        return object.__getattribute__(self, name)

    async def get_token(self, *scopes, **options):
        assert scopes == ("https://servicebus.azure.net//.default",)
        return AccessToken(signature(self.host), int(time.time()) + 3600)

    async def close(self):
        pass

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        pass


def signature(host):
    return make_token(f"sb://{host}", *KEY, expires_at=time.time() + 3600)


KINDS = {
    "token": Token,
    "signature": lambda host: AzureSasCredential(signature(host)),
    "key": lambda host: AzureNamedKeyCredential(*KEY),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_pair_works_with_credentials_and_never_looks_at_them(world, kind):
    made = []

    def client(namespace, name):
        host = f"{name}.servicebus.windows.net"
        made.append(KINDS[kind](host))
        return ServiceBusClient(
            host,
            made[-1],
            custom_endpoint_address=f"sb://127.0.0.1:{namespace.port}",
            transport_type=TransportType.Amqp,
            connection_verify=str(namespace.certificate),
            retry_total=0,
        )

    pair = await world.pair(
        client(world.primary, "contoso"), client(world.secondary, "backup"), primary_namespace=None
    )
    sender = world.keep(pair.get_queue_sender("orders"))
    await sender.send_messages(ServiceBusMessage("a", message_id="1"))
    world.primary.kill()
    await sender.send_messages(ServiceBusMessage("b", message_id="2"))
    world.primary.restart()
    await world.seen.wait(events.Restored)
    await sender.send_messages(ServiceBusMessage("c", message_id="3"))

    assert [m.properties.message_id for m in world.backlog()] == ["2"]
    assert [m.properties.message_id for m in world.messages(world.primary, "orders")][-1] == "3"
    lookers = {looker for one in made if isinstance(one, Token) for looker in one.lookers}
    assert not {looker for looker in lookers if looker.startswith("pairbus.")}, lookers
    assert bool(lookers) == (kind == "token")
    text = f"{pair!r} {pair.secondary!r} {sender!r} {pair.status().as_dict()} {world.seen.events}"
    assert "SharedAccessSignature" not in text
    assert KEY[1] not in text


async def test_a_send_with_a_wrong_key_raises_the_answer_of_the_token_service(world):
    text = world.primary.connection_string.replace("SAS_KEY_VALUE", "d3Jvbmc=")
    client = await world.pair(world.primary_client(text))
    with pytest.raises(ServiceBusAuthenticationError) as caught:
        await client.get_queue_sender("orders").send_messages(ServiceBusMessage("an umbrella"))

    assert "of the primary 127.0.0.1" in str(caught.value)
    assert "InvalidSignature" in str(caught.value)
    assert "d3Jvbmc=" not in str(caught.value)
