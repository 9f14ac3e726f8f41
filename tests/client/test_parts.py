"""The parts that wait for nobody."""

import ast
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.client import (
    AuthenticationError,
    BulkConnection,
    ConnectionLostError,
    OperationTimeoutError,
    RejectedError,
    SasKey,
    SasToken,
)
from pairbus.client.auth import TokenCredential, provider_of
from pairbus.client.batches import pack
from pairbus.client.endpoint import endpoint_of
from pairbus.client.settlement import Settlements, ranges


@pytest.mark.parametrize(
    ("string", "missing"),
    [("SharedAccessKey=secret", "Endpoint"), ("Endpoint=sb://h;x", "'='"),
     ("Endpoint=sb://h/;SharedAccessKeyName=n", "SharedAccessKey")],
)  # fmt: skip
def test_incomplete_connection_string_is_told_without_its_secret(string, missing):
    with pytest.raises(ValueError, match=missing) as caught:
        BulkConnection(string)
    assert "secret" not in str(caught.value)


def test_emulator_mode_is_exactly_true():
    string = "Endpoint=sb://h:5/;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator="
    emulated = BulkConnection(string + "true").endpoint
    assert (emulated.port, emulated.tls, emulated.authority) == (5, False, "h:5")
    real = BulkConnection(string + "True").endpoint
    assert (real.port, real.tls, real.authority) == (5671, True, "h")


def test_ready_signatures_are_used_until_they_expire():
    token = SasToken("SharedAccessSignature sr=a&sig=s3cret&se=1700000000&skn=n")
    assert token.expires_on == 1700000000
    assert "s3cret" in token.token("x", 0).text
    assert "s3cret" not in f"{token!r}{token.token('x', 0)!r}"
    _, provider, entity = endpoint_of(
        "Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sr=a&sig=b&se=5;EntityPath=q"
    )
    assert isinstance(provider, SasToken)
    assert entity == "q"


def test_credentials_are_recognised():
    key = SasKey("n", "secret")
    assert provider_of(key) is key
    assert "secret" not in repr(key)

    class Azure:
        def get_token(self, scope): ...

    assert isinstance(provider_of(Azure()), TokenCredential)
    with pytest.raises(TypeError, match="get_token"):
        provider_of(object())
    with pytest.raises(ValueError, match="host and credential"):
        BulkConnection()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("Contoso.example", ("contoso.example", 5671, "contoso.example")),
        ("contoso.example:5671", ("contoso.example", 5671, "contoso.example")),
        ("contoso.example:99", ("contoso.example", 99, "contoso.example:99")),
        ("[::1]:99", ("::1", 99, "[::1]:99")),
    ],
)
def test_a_host_may_have_a_port(host, expected):
    endpoint = BulkConnection(host=host, credential=SasKey("n", "k")).endpoint

    assert (endpoint.host, endpoint.port, endpoint.authority) == expected


KEY = "SharedAccessKeyName=n;SharedAccessKey=k"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Endpoint=contoso.servicebus.windows.net;{KEY}",
         ("contoso.servicebus.windows.net", 5671, True, "contoso.servicebus.windows.net")),
        (f"Endpoint=sb://Contoso.example:99/;{KEY}",
         ("contoso.example", 5671, True, "contoso.example")),
        (f"Endpoint=sb://127.0.0.1;{KEY};UseDevelopmentEmulator=true",
         ("127.0.0.1", 5672, False, "127.0.0.1")),
        (f"Endpoint=sb://[::1]:5999/;{KEY};UseDevelopmentEmulator=true",
         ("::1", 5999, False, "[::1]:5999")),
        (f"Endpoint=sb://[::1]/;{KEY}", ("::1", 5671, True, "[::1]")),
    ],
)  # fmt: skip
def test_endpoint_is_read_from_a_connection_string(text, expected):
    endpoint, provider, entity = endpoint_of(text)
    assert (endpoint.host, endpoint.port, endpoint.tls, endpoint.authority) == expected
    assert isinstance(provider, SasKey)
    assert entity is None


def test_errors_survive_pickling():
    for error in (
        AuthenticationError("amqp:unauthorized-access", "no", 401),
        OperationTimeoutError("sending"),
        ConnectionLostError("amqp:socket-error", "gone", {"a": 1}),
        RejectedError("amqp:not-found"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert again.__dict__ == error.__dict__
        assert str(again) == str(error)


CLIENT = Path(__file__).parents[2] / "src" / "pairbus" / "client"
OUTSIDE = {"asyncio", "threading", "time", "socket", "select", "random", "os", "tempfile"}


@pytest.mark.parametrize("path", sorted(CLIENT.rglob("*.py")), ids=lambda p: p.name)
def test_client_reaches_the_operating_system_through_its_runtime_only(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module != "uuid":
            imported.add(node.module)
        elif isinstance(node, ast.ImportFrom):
            assert [alias.name for alias in node.names] == ["UUID"]
    assert not imported & (OUTSIDE | {"uuid"})


def test_numbers_are_joined_to_ranges():
    assert ranges([]) == []
    assert ranges([3, 4, 5, 9, 11, 12]) == [(3, 5), (9, 9), (11, 12)]


def test_each_settlement_gets_its_own_answers():
    settlements = Settlements()
    one, other = settlements.begin([1, 2, 3]), settlements.begin([4, 5])
    lost = RejectedError("com.microsoft:message-lock-lost")
    settlements.answer(2, 4, lost)
    assert (one.unanswered, other.unanswered) == (1, 1)
    settlements.answer(0, 100, None)
    assert one.answers() == [None, lost, lost]
    assert other.answers() == [lost, None]


def test_abandoned_settlement_is_not_mixed_up_with_the_next():
    settlements = Settlements()
    old = settlements.begin([1, 2])
    settlements.abandon(old)
    new = settlements.begin([2])
    settlements.abandon(old)
    settlements.answer(1, 2, None)
    assert (old.unanswered, new.unanswered) == (2, 0)


@given(
    st.lists(st.integers(1, 3000), max_size=200),
    st.integers(100, 5000),
    st.integers(1, 50),
)
def test_batches_keep_the_order_and_the_limits(sizes, max_bytes, max_messages):
    batches = list(pack(sizes, max_bytes, max_messages))
    assert [i for batch in batches for i in batch] == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) <= max_messages
        assert len(batch) == 1 or sum(sizes[i] + 8 for i in batch) <= max_bytes
