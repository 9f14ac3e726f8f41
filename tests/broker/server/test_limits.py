"""Each limit on what one client may take is kept."""

import contextlib
import time

import pytest

from pairbus.amqp.connection import Connection, Role
from pairbus.amqp.errors import AmqpError
from pairbus.amqp.events import Attached, Begun, Closed, Flowed, Opened
from pairbus.amqp.message import Message, Properties, join_batch
from pairbus.amqp.performatives import Source, Target
from pairbus.broker import Limits, run
from pairbus.broker.auth.sas import ALL_RIGHTS, KeyRing
from pairbus.broker.entities.errors import UnauthorizedError
from pairbus.broker.entities.model import AuthorizationRule
from pairbus.broker.server.cbs import Tokens
from pairbus.broker.server.incoming import read_batch
from pairbus.broker.settings import DEFAULT_KEY_NAME, WELL_KNOWN_KEY
from pairbus.client import BulkConnection
from tests.broker.server.test_hardening import RawClient, ends, plain
from tests.sas import make_token


@pytest.fixture(scope="module")
def ns():
    with run(limits=Limits(message_size=100_000)) as ns:
        ns.create_queue("q")
        yield ns


@pytest.fixture
def client(ns):
    with contextlib.closing(RawClient(ns.port)) as client:
        client.until(Opened)
        yield client


def test_a_message_larger_than_the_broker_takes_is_refused(ns) -> None:
    with BulkConnection(ns.connection_string) as connection:
        sender = connection.sender("q")
        large, small = (Message.build(data=b"x" * size).encode() for size in (150_000, 10))
        (refused,) = sender.send_each([large])
        assert refused.error is not None
        assert refused.error.condition == "amqp:link:message-size-exceeded"
        assert all(outcome.is_accepted for outcome in sender.send_each([small]))


def test_a_client_that_falls_silent_is_given_up() -> None:
    with (
        run(limits=Limits(idle_timeout=3.0)) as ns,
        contextlib.closing(RawClient(ns.port)) as client,
    ):
        client.until(Opened)
        assert client.until(Closed).error.condition == "amqp:resource-limit-exceeded"
        assert ends(client.socket)


@pytest.mark.long
def test_client_with_a_token_has_5000_channels(ns) -> None:
    with contextlib.closing(RawClient(ns.port)) as client:
        key = plain(DEFAULT_KEY_NAME, WELL_KNOWN_KEY)
        client.engine = Connection(Role.CLIENT, sasl=key, channel_max=0xFFFF)
        client.engine.open()
        for _ in range(5000):
            client.engine.begin()
        for _ in range(5000):
            client.until(Begun)
        with pytest.raises(AmqpError, match="all channels are in use"):
            client.engine.begin()


def test_client_without_a_token_has_few_channels(client) -> None:
    assert client.engine.remote_open.channel_max == 4999  # as the service
    for _ in range(20):
        client.engine.begin()
    assert client.until(Closed).error.condition == "amqp:resource-limit-exceeded"


def test_answers_that_nobody_takes_end_the_connection(client, monkeypatch) -> None:
    monkeypatch.setattr("pairbus.broker.server.request_link.MAX_PENDING_REPLIES", 3)
    engine, session = client.engine, client.session
    engine.attach_receiver(session, "in", source=Source("$cbs"), target=Target("me"))
    link = engine.attach_sender(session, "out", source=Source("me"), target=Target("$cbs"))
    client.until(Attached)
    client.until(Attached)
    while not link.credit:
        client.until(Flowed)
    for n in range(5):
        request = Message.build(
            properties=Properties(message_id=str(n), reply_to="me"),
            application_properties={"operation": "put-token", "name": "q"},
            value="no token",
        )
        engine.transfer(link, request.encode(), b"%d" % n)
    assert client.until(Closed).error.condition == "amqp:resource-limit-exceeded"


def test_a_connection_shows_so_many_tokens_and_no_more(monkeypatch) -> None:
    monkeypatch.setattr("pairbus.broker.server.cbs.MAX_TOKENS", 2)
    tokens = Tokens(KeyRing((AuthorizationRule("root", ALL_RIGHTS, "key"),)), time.time)
    for n in range(2):
        for _ in range(2):  # one that is renewed is no new one
            tokens.put(f"q{n}", make_token(f"q{n}", "root", "key", expires_at=time.time() + 60))
    with pytest.raises(UnauthorizedError, match="too many tokens"):
        tokens.put("q2", make_token("q2", "root", "key", expires_at=time.time() + 60))


def test_a_batch_has_so_many_messages_and_no_more(monkeypatch) -> None:
    monkeypatch.setattr("pairbus.broker.server.incoming.MAX_BATCH", 2)
    one = Message.build(data=b"x").encode()
    assert len(read_batch(join_batch([one] * 2))) == 2
    with pytest.raises(AmqpError, match="too many messages"):
        read_batch(join_batch([one] * 3))
