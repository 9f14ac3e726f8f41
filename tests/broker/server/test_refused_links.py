"""Links that the broker refuses, or detaches before it has answered them."""

import contextlib

import pytest

from pairbus.amqp.events import Attached, Begun, Detached
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.types import Described, Symbol
from pairbus.broker import run
from pairbus.broker.settings import DEFAULT_KEY_NAME, WELL_KNOWN_KEY
from pairbus.testing import FakeClock
from tests.broker.server.test_hardening import RawClient, ends, plain

FILTER = "com.microsoft:session-filter"


@pytest.fixture
def clock():
    return FakeClock(1_800_000_000.0)


@pytest.fixture
def ns(clock):
    with run(clock=clock) as ns:
        ns.create_queue("q", requires_session=True)
        yield ns


@pytest.fixture
def client(ns):
    with contextlib.closing(RawClient(ns.port, plain(DEFAULT_KEY_NAME, WELL_KNOWN_KEY))) as client:
        yield client


def accept_next_session(client, wait: int) -> None:
    """Ask for the next available session of the queue; `wait` is in milliseconds."""
    client.engine.attach_receiver(
        client.session,
        "r",
        source=Source("q", filter={Symbol(FILTER): Described(Symbol(FILTER), None)}),
        target=Target("me"),
        properties={"com.microsoft:timeout": wait},
    )


def test_link_that_found_no_session_is_not_watched_any_more(clock, client) -> None:
    accept_next_session(client, wait=1)
    assert client.until(Detached).error.condition == "com.microsoft:timeout"
    clock.advance(601)
    assert ends(client.socket)  # a connection without links is closed


def test_link_that_waits_for_a_session_of_a_deleted_queue_is_answered(ns, client) -> None:
    accept_next_session(client, wait=60_000)
    client.until(Begun)
    while not ns.do(lambda n: n.catalog.queue_at("q").pending):
        pass
    ns.do(lambda n: n.admin.delete_queue("q"))
    assert client.until(Detached).error.condition == "amqp:not-found"
    assert client.until(Attached).attach.source is None
