"""Links that the broker refuses, or detaches before it has answered them."""

import contextlib
import math
import time
from types import SimpleNamespace
from typing import Any

import pytest

from pairbus.amqp.events import Attached, Begun, Detached
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.types import Described, Symbol
from pairbus.broker import run
from pairbus.broker.server.session_request import SESSION_FILTER, SESSION_WAIT, session_timeout
from pairbus.broker.settings import DEFAULT_KEY_NAME, WELL_KNOWN_KEY
from pairbus.testing import FakeClock
from tests.broker.server.test_hardening import RawClient, ends, plain


@pytest.fixture
def clock():
    return FakeClock(1_800_000_000.0)


@pytest.fixture
def ns(clock):
    with run(clock=clock) as ns:
        ns.create_queue("q", requires_session=True)
        yield ns


def connected(ns):
    return contextlib.closing(RawClient(ns.port, plain(DEFAULT_KEY_NAME, WELL_KNOWN_KEY)))


@pytest.fixture
def client(ns):
    with connected(ns) as client:
        yield client


def accept_session(client, name: str | None, wait: int = 60_000) -> None:
    """Ask for a session of the queue; None: the next available one, within `wait` milliseconds."""
    client.engine.attach_receiver(
        client.session,
        "r",
        source=Source("q", filter={Symbol(SESSION_FILTER): Described(Symbol("s"), name)}),
        target=Target("me"),
        properties={"com.microsoft:timeout": wait},
    )


def test_link_that_found_no_session_is_not_watched_any_more(clock, client) -> None:
    accept_session(client, None, wait=1)
    assert client.until(Detached).error.condition == "com.microsoft:timeout"
    clock.advance(601)
    assert ends(client.socket)  # a connection without links is closed


@pytest.mark.parametrize("wait", [math.nan, math.inf, "5"])
def test_wait_for_a_session_that_is_no_time_becomes_that_of_the_service(wait) -> None:
    link: Any = SimpleNamespace(attach=SimpleNamespace(properties={"com.microsoft:timeout": wait}))
    assert session_timeout(link) == SESSION_WAIT


def test_link_that_waits_for_a_session_of_a_deleted_queue_is_answered(ns, client) -> None:
    accept_session(client, None)
    client.until(Begun)
    while not ns.do(lambda n: n.catalog.queue_at("q").pending):
        pass
    ns.do(lambda n: n.admin.delete_queue("q"))
    assert client.until(Detached).error.condition == "amqp:not-found"
    assert client.until(Attached).attach.source is None


def test_session_is_not_held_for_a_client_that_left_before_its_attach_was_answered(ns) -> None:
    with ns.faults.delay(0.2, "q", on="attach") as fault:
        with connected(ns) as first:
            accept_session(first, "a")
            first.until(Begun)
            while not fault.hits:
                time.sleep(0.001)
        with connected(ns) as second:
            accept_session(second, "b")
            second.until(Attached)  # so the first one would have been answered before
            receivers = ns.do(lambda n: list(n.catalog.queue_at("q").receivers))
            assert [receiver.session.session_id for receiver in receivers] == ["b"]
