"""Token credentials: code that takes one from azure-identity works against the broker."""

import base64
import json
import time

import azure.servicebus
import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.exceptions import ServiceBusAuthorizationError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus import broker
from pairbus.broker.auth.jwt import make_jwt, verify_jwt
from pairbus.broker.auth.sas import ALL_RIGHTS
from pairbus.broker.entities.errors import UnauthorizedError
from pairbus.broker.entities.model import AuthorizationRule
from pairbus.testing import OWNER, RECEIVER, SENDER, BrokerCredential

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


@pytest.fixture(scope="module")
def ns():
    with broker.run("contoso", key="a key of our own") as ns:
        ns.create_queue("q")
        yield ns


def client_of(ns, credential, kind=ServiceBusClient):
    return kind(
        "contoso.servicebus.windows.net",
        credential,
        custom_endpoint_address=f"sb://localhost:{ns.port}",
        transport_type=TransportType.Amqp,
        connection_verify=str(ns.certificate),
        retry_total=0,
    )


def test_a_token_credential_sends_and_receives(ns):
    credential = ns.credential()
    with client_of(ns, credential) as client, client.get_queue_sender("q") as sender:
        sender.send_messages(ServiceBusMessage("hello"))
        with client.get_queue_receiver("q", max_wait_time=5) as receiver:
            (message,) = receiver.receive_messages()
            receiver.complete_message(message)
    assert str(message) == "hello"
    assert credential.calls > 0


@pytest.mark.skipif(
    azure.servicebus.__version__ < "7.15", reason="this azure-servicebus.aio cannot do this TLS"
)
async def test_an_asynchronous_token_credential_sends(ns):
    async with (
        ns.aio_credential(OWNER) as credential,
        client_of(ns, credential, AioClient) as client,
        client.get_queue_sender("q") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("hello"))
    assert "OWNER" not in repr(credential)


def test_roles_say_what_a_token_allows(ns):
    with client_of(ns, ns.credential(SENDER)) as client:
        with client.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with pytest.raises(ServiceBusAuthorizationError):
            client.get_queue_receiver("q").__enter__()
    with client_of(ns, ns.credential(RECEIVER)) as client:
        with pytest.raises(ServiceBusAuthorizationError):
            client.get_queue_sender("q").__enter__()
        with client.get_queue_receiver("q", max_wait_time=5) as receiver:
            for message in receiver.receive_messages():
                receiver.complete_message(message)


def test_a_credential_of_another_key_is_refused(ns):
    other = ns.connection_string.replace("a key of our own", "another key")
    with (
        client_of(ns, BrokerCredential(other)) as client,
        pytest.raises(ServiceBusError),  # the SDK says no more, though it was told 401
    ):
        client.get_queue_sender("q").__enter__()
    with pytest.raises(ValueError, match="SharedAccessKey"):
        BrokerCredential("Endpoint=sb://127.0.0.1:1")


def test_the_administration_client_takes_a_token_credential(ns, monkeypatch):
    # azure-servicebus 7.14.3 does not hand `connection_verify` on.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ns.certificate))

    def admin(credential):
        return ServiceBusAdministrationClient(
            f"localhost:{ns.port}",
            credential,
            connection_verify=str(ns.certificate),
            retry_total=0,
        )

    with admin(ns.credential()) as client:
        client.create_queue("made")
        assert client.get_queue("made").name == "made"
    with (
        admin(ns.credential(SENDER)) as client,
        pytest.raises((ClientAuthenticationError, HttpResponseError)),
    ):
        client.get_queue("made")


def encoded(value) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_a_token_that_was_tampered_with_is_refused():
    now = time.time()
    rules = [AuthorizationRule("root", ALL_RIGHTS, "key")]
    good = make_jwt("key", roles=[SENDER], expires_at=now + 60)
    assert verify_jwt(good, rules, now).rights == {"Send"}
    head, payload, signature = good.split(".")
    owner = encoded({"aud": "https://servicebus.azure.net", "roles": [OWNER], "exp": now + 60})
    for bad in (
        f"{head}.{owner}.{signature}",
        f"{encoded({'alg': 'none'})}.{owner}.",
        f"{encoded({'alg': 'none'})}.{payload}.{signature}",
        f"{encoded([])}.{payload}.{signature}",
        f"{head}.{payload}.{signature[:-2]}",
        f"{head}.{payload}.*",
        "eyJ..",
        "eyJ" + "." * 2 + "x" * 10_000,
        make_jwt("", expires_at=now + 60),
        make_jwt("other", expires_at=now + 60),
        make_jwt("key", expires_at=now),
    ):
        with pytest.raises(UnauthorizedError):
            verify_jwt(bad, rules, now)
    weak = [AuthorizationRule("listen", ALL_RIGHTS[2:], "key", "")]
    with pytest.raises(UnauthorizedError):
        verify_jwt(good, weak, now)
