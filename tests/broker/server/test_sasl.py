"""SASL: the mechanisms of the service, and clients that leave SASL out."""

import contextlib
import socket

import pytest
from azure.servicebus.management import AccessRights, AuthorizationRule

from pairbus.amqp import sasl
from pairbus.amqp.errors import ProtocolError
from pairbus.amqp.events import Attached, Detached, Flowed, Opened
from pairbus.amqp.frames import AMQP_HEADER, SASL_HEADER, sasl_frame
from pairbus.amqp.performatives import Source, Target
from pairbus.broker import run
from pairbus.broker.settings import DEFAULT_KEY_NAME, WELL_KNOWN_KEY
from tests.broker.server.test_hardening import RawClient, plain

PLAIN = plain(DEFAULT_KEY_NAME, WELL_KNOWN_KEY)


@pytest.fixture(scope="module")
def ns():
    with run() as ns:
        ns.create_queue("q")
        yield ns


def can_send(client, path: str = "q") -> bool:
    """Whether a sender is served without a token."""
    client.engine.attach_sender(client.session, path, source=Source("me"), target=Target(path))
    client.until(Attached)
    return isinstance(client.until((Flowed, Detached)), Flowed)


@pytest.mark.parametrize(
    ("mechanism", "is_authorized"),
    [
        (PLAIN, True),
        (sasl.ANONYMOUS, False),
        (sasl.Mechanism("EXTERNAL", b""), False),
        (sasl.Mechanism("MSSBCBS", b""), False),
        (None, False),
    ],
    ids=["PLAIN", "ANONYMOUS", "EXTERNAL", "MSSBCBS", "no SASL"],
)
def test_client_is_admitted_and_only_a_key_gives_claims(ns, mechanism, is_authorized) -> None:
    with contextlib.closing(RawClient(ns.port, mechanism)) as client:
        client.until(Opened)
        assert can_send(client) == is_authorized


def test_key_of_an_entity_gives_claims_on_that_entity(ns) -> None:
    with ns.admin_client() as admin:
        rule = AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            rights=[AccessRights.SEND],
            key_name="shovel",
            primary_key="c2hvdmVs",
            secondary_key="c2Vjb25k",
        )
        admin.create_queue("from-rabbitmq", authorization_rules=[rule])
    with contextlib.closing(RawClient(ns.port, plain("shovel", "c2hvdmVs"))) as client:
        client.until(Opened)
        assert can_send(client, "from-rabbitmq")
        assert not can_send(client, "q")
    with (
        contextlib.closing(RawClient(ns.port, plain("shovel", "wrong"))) as client,
        pytest.raises(ProtocolError, match="SASL failed with code 1"),
    ):
        client.until(Opened)


@pytest.mark.parametrize(
    "mechanism",
    [
        plain(DEFAULT_KEY_NAME, "wrong"),
        plain("Nobody", WELL_KNOWN_KEY),
        plain("", ""),
        sasl.Mechanism("PLAIN", b"no parts"),
        sasl.Mechanism("PLAIN", None),
    ],
    ids=["wrong key", "wrong name", "empty", "malformed", "none"],
)
def test_client_with_a_wrong_key_is_refused(ns, mechanism) -> None:
    with contextlib.closing(RawClient(ns.port, mechanism)) as client:
        with pytest.raises(ProtocolError, match="SASL failed with code 1"):
            client.until(Opened)
        assert client.socket.recv(1) == b""


def test_mechanisms_are_offered_in_the_order_of_the_service(ns) -> None:
    with socket.create_connection(("127.0.0.1", ns.port), timeout=10) as plain:
        plain.sendall(SASL_HEADER)
        data = b""
        while b"EXTERNAL" not in data:
            data += plain.recv(1000)
    names = [b"MSSBCBS", b"PLAIN", b"ANONYMOUS", b"EXTERNAL"]
    assert [data.index(name) for name in names] == sorted(data.index(name) for name in names)


def test_client_may_send_its_header_before_it_has_the_outcome(ns) -> None:
    init = sasl.SaslInit("PLAIN", PLAIN.initial_response, "127.0.0.1")
    with socket.create_connection(("127.0.0.1", ns.port), timeout=10) as plain:
        plain.sendall(SASL_HEADER + sasl_frame(init.encode()) + AMQP_HEADER)
        data = b""
        while not data.endswith(AMQP_HEADER):
            data += plain.recv(1000)
