"""Shared access signatures: what opens a namespace and what does not."""

import pytest
from azure.servicebus._pyamqp.utils import generate_sas_token
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.auth.sas import ALL_RIGHTS, KeyRing, verify_signature
from pairbus.broker.entities.errors import UnauthorizedError
from pairbus.broker.entities.model import AccessRight, AuthorizationRule
from tests.sas import make_token

ROOT = AuthorizationRule("Root", ALL_RIGHTS, "first-key", "second-key")
SENDER = AuthorizationRule("Sender of orders", (AccessRight.SEND,), "send-key", "other-send-key")
KEYS = KeyRing((ROOT,), lambda path: (SENDER,) if path == "orders" else ())
NOW = 1_000_000.0
HOST = "sb://127.0.0.1:5672"


def token(resource=HOST, name="Root", key="first-key", expires_at=NOW + 60):
    return make_token(resource, name, key, expires_at=expires_at)


def refused(given, audience=HOST + "/orders"):
    with pytest.raises(UnauthorizedError) as caught:
        verify_signature(given, audience, KEYS, NOW)
    text = str(caught.value)
    assert "key" not in text.lower()
    return text


@pytest.mark.parametrize("key", ["first-key", "second-key"])
def test_primary_and_secondary_key_open_the_namespace(key):
    claims = verify_signature(token(key=key), HOST + "/orders", KEYS, NOW)
    assert claims.rights == set(AccessRight)
    assert claims.expires_at == NOW + 60
    claims.require(AccessRight.MANAGE, "Orders")


@pytest.mark.parametrize(
    "resource",
    [
        "sb://127.0.0.1:5672",
        "sb://127.0.0.1",
        "sb://127.0.0.1/",
        "http://127.0.0.1:5672/orders",
        "https://127.0.0.1:9999/Orders/",
        "amqps://127.0.0.1/ORDERS",
        "amqp://127.0.0.1:5672/orders",
        "orders",
    ],
)
@pytest.mark.parametrize(
    "audience", ["sb://127.0.0.1:5672/orders", "amqps://127.0.0.1/Orders/$management", "orders"]
)
def test_forms_of_the_same_resource_are_the_same(resource, audience):
    verify_signature(token(resource), audience, KEYS, NOW)


@pytest.mark.parametrize(
    ("resource", "audience"),
    [
        (HOST + "/orders", HOST + "/invoices"),
        (HOST + "/orders", HOST + "/orders2"),
        (HOST + "/orders", HOST),
        (HOST + "/orders/sub", HOST + "/orders"),
        ("sb://elsewhere/orders", HOST + "/orders"),
    ],
)
def test_token_for_something_else_is_refused(resource, audience):
    assert refused(token(resource), audience).startswith("InvalidAudience")


def test_expired_token_is_refused():
    assert refused(token(expires_at=NOW)).startswith("ExpiredToken")


def test_wrong_key_unknown_name_and_changed_token_sound_the_same():
    right = token(expires_at=NOW - 5)
    answers = {
        refused(token(key="wrong")),
        refused(token(key="")),
        refused(token(name="Nobody")),
        refused(token(name="Nobody", key="unknown")),
        refused(right.replace("se=999995", "se=2000000")),
        refused(token(HOST + "/invoices").replace("invoices", "orders")),
        refused(token().replace("sig=", "sig=%%%")),
        refused(token("sb://[bad")),
    }
    assert answers == {"InvalidSignature: The token has an invalid signature."}


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer abc",
        "SharedAccessSignature ",
        "SharedAccessSignature sr=a&sig=b&se=1",
        token() + "&skn=Root",
        "SharedAccessSignature " + "x" * 10_000,
    ],
)
def test_malformed_token_is_refused(given):
    assert refused(given).startswith("MalformedToken")


@given(st.text(max_size=200))
def test_noise_is_refused_and_nothing_else(noise):
    for text in (noise, "SharedAccessSignature " + noise):
        with pytest.raises(UnauthorizedError):
            verify_signature(text, HOST, KEYS, NOW)


def test_key_of_an_entity_opens_that_entity_only():
    name, key = "Sender of orders", "send-key"
    claims = verify_signature(token(HOST + "/orders", name, key), HOST + "/orders", KEYS, NOW)
    assert claims.allows(AccessRight.SEND, "orders/$management")
    assert not claims.allows(AccessRight.LISTEN, "orders")
    assert not claims.allows(AccessRight.SEND, "invoices")
    with pytest.raises(UnauthorizedError, match="'Manage' claim"):
        claims.require(AccessRight.MANAGE, "orders")
    refused(token(HOST, name, key))
    refused(token(HOST + "/invoices", name, key), HOST + "/invoices")


def test_key_of_a_topic_opens_its_subscriptions():
    keys = KeyRing((), lambda path: (SENDER,) if path == "news" else ())
    resource = HOST + "/news/Subscriptions/mine"
    given = token(resource, SENDER.key_name, "send-key")
    assert verify_signature(given, resource, keys, NOW).covers("News/subscriptions/MINE")


def test_rule_without_a_secondary_key_has_one_key():
    keys = KeyRing((AuthorizationRule("Root", ALL_RIGHTS, "first-key", ""),))
    with pytest.raises(UnauthorizedError):
        verify_signature(token(key=""), HOST, keys, NOW)


@pytest.mark.parametrize("name", ["Root", "Sender of orders"])
def test_token_made_by_the_sdk_is_accepted(name):
    key = "first-key" if name == "Root" else "send-key"
    given = generate_sas_token(HOST + "/orders", name, key, int(NOW) + 60)
    assert verify_signature(given, HOST + "/orders", KEYS, NOW).key_name == name


def test_token_that_never_expires_and_a_path_without_end_do_no_harm():
    assert verify_signature(token(expires_at=10**400), HOST, KEYS, NOW).expires_at == 1e12
    refused(token(HOST + "/a" * 2000, SENDER.key_name, "send-key"))


def test_keys_stay_out_of_the_repr():
    assert "first-key" not in repr(KEYS)
