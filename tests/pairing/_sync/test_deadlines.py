# generated from tests/pairing/_async/test_deadlines.py by tools/gen_unasync.py; edit that one
"""Every attempt ends: through a proxy that refuses, resets, stalls, goes deaf, slows and cuts."""

import gc
import socket
import threading
import warnings
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from pairbus import events
from pairbus.classify import Verdict, classify
from pairbus.exceptions import PairUnavailableError
from pairbus.pairing._sync.host_probe import HostProbe
from pairbus.pairing.core import health
from pairbus.pairing.runtime import sleep, spawn
from pairbus.testing import FaultProxy

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


@pytest.fixture
def proxy(world):
    with FaultProxy(world.primary.connection_string) as made:
        yield made


def ids(messages):
    return {message.properties.message_id for message in messages}


@pytest.mark.parametrize(
    ("mode", "is_open"),
    [
        ("refuse", True),
        ("reset", True),
        ("stall", True),
        ("deaf", True),
        ("cut", True),
        ("stall", False),
        ("deaf", False),
    ],
)
def test_send_survives_what_the_network_does(world, proxy, mode, is_open):
    """With a client at the SDK's own defaults: no timeout anywhere but ours."""
    primary = world.primary_client(proxy.connection_string, retry_total=3)
    client = world.pair(primary)
    sender = world.keep(client.get_queue_sender("orders"))
    world.open_backlog_link(sender)
    if is_open:
        sender.send_messages(ServiceBusMessage("opens", message_id="0"))
    proxy.mode = mode

    started = monotonic()
    sender.send_messages(ServiceBusMessage("a", message_id="1"), timeout=3)
    sender.send_messages([ServiceBusMessage("b", message_id="2")])
    took = monotonic() - started

    assert took < 60, "one deadline on the primary, then the backlog"
    assert {"1", "2"} <= ids(world.backlog()) | ids(world.messages(world.primary, "orders"))
    assert "2" in ids(world.backlog())
    assert client.status().entity("orders").phase == "failed_over"

    proxy.mode = "pass"
    world.seen.wait(events.Restored)
    sender.send_messages(ServiceBusMessage("c", message_id="3"))
    assert "3" in ids(world.messages(world.primary, "orders"))


def test_host_that_answers_no_second_connection_either_is_silent(world, proxy):
    """A link that was open goes silent: the send does not wait for its deadline."""
    client = world.pair(
        world.primary_client(proxy.connection_string, retry_total=3),
        open_timeout=4,
        send_timeout=600,
    )
    sender = world.keep(client.get_queue_sender("orders"))
    sender.send_messages(ServiceBusMessage("opens"))
    proxy.mode = "stall"

    started = monotonic()
    sender.send_messages(ServiceBusMessage("a"))

    assert monotonic() - started < 55
    assert [m.body for m in world.backlog()] == [b"a"]
    assert "did not answer" in world.seen.of(events.FailedOver)[0].reason
    [stored] = world.seen.of(events.MessageBacklogged)
    assert stored.is_uncertain  # the primary may have taken it before it went silent


def test_any_answer_to_a_second_connection_shows_that_the_host_is_there(world, proxy):
    probe = HostProbe("the primary", 10.0, lambda error: classify(error) is Verdict.OUTAGE)
    client = world.primary_client(proxy.connection_string)

    assert probe.failure(lambda: client.get_queue_sender("orders")) is None
    assert probe.failure(lambda: client.get_queue_sender("no such queue")) is None
    proxy.mode = "refuse"
    assert probe.failure(lambda: client.get_queue_sender("orders")) is not None
    client.close()


def test_links_that_ask_for_a_host_together_share_one_connection(world):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        text = world.primary.connection_string.replace(f":{world.primary.port}", f":{port}")
        client = world.primary_client(text)
        probe = HostProbe("the primary", 1.0, lambda error: True)
        found = []

        def ask():
            found.append(probe.failure(lambda: client.get_queue_sender("orders")))

        tasks = [spawn(ask) for _ in range(5)]
        assert all([task.join(30) for task in tasks])
        client.close()

        assert connections(silent) < 5
        assert all(isinstance(error, OperationTimeoutError) for error in found)
        assert len({id(error) for error in found}) == 5


@pytest.mark.long
def test_host_that_answers_a_second_connection_is_not_silent(world, proxy):
    """One entity takes its time: the send goes on waiting, and is not repeated."""
    client = world.pair(
        world.primary_client(proxy.connection_string), open_timeout=4, send_timeout=60
    )
    sender = world.keep(client.get_queue_sender("orders"))
    sender.send_messages(ServiceBusMessage("opens"))
    world.primary.faults.delay(10.0, "orders")
    seen = []

    def count():
        while proxy.connections < 2:
            sleep(0.01)
        seen.append(proxy.connections)

    counting = spawn(count)
    sender.send_messages(ServiceBusMessage("a"))

    assert counting.join(30), "there was a second connection"
    assert world.bodies(world.primary, "orders") == [b"opens", b"a"]
    assert client.status().entity("orders").phase == "healthy"


def test_slow_primary_is_no_outage(world, proxy):
    primary = world.primary_client(proxy.connection_string)
    client = world.pair(primary)
    sender = world.keep(client.get_queue_sender("orders"))
    proxy.latency = 0.1
    proxy.mode = "slow"

    sender.send_messages(ServiceBusMessage("a"))

    assert client.status().entity("orders").phase == "healthy"
    assert world.bodies(world.primary, "orders") == [b"a"]


def test_cancelling_is_retried_as_the_application_wants_it(world, proxy):
    """The service closes idle connections; the SDK alone would open a new one and go on."""
    primary = world.primary_client(proxy.connection_string, retry_total=3)
    client = world.pair(primary, failover_interval=3600)
    sender = world.keep(client.get_queue_sender("orders"))
    later = datetime.now(UTC) + timedelta(hours=1)
    numbers = sender.schedule_messages(
        [ServiceBusMessage("a"), ServiceBusMessage("b")], later
    )
    proxy.mode = "reset"
    proxy.mode = "pass"

    sender.cancel_scheduled_messages(numbers)

    assert world.primary.do(lambda ns: ns.admin.runtime("orders")).scheduled_message_count == 0


def test_cancelling_tells_that_the_primary_is_down(world):
    client = world.pair()
    sender = world.keep(client.get_queue_sender("orders"))
    world.primary.kill()

    for _ in range(2):
        with pytest.raises(ServiceBusError):
            sender.cancel_scheduled_messages([1])
    assert client.status().entity("orders").phase == "failed_over"


def test_peer_that_accepts_and_says_nothing_does_not_hold_anyone(world):
    """The sync SDK's handshake reads with no timeout: the bare SDK would stay here for ever."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        text = world.primary.connection_string.replace(f":{world.primary.port}", f":{port}")
        client = world.pair(
            world.primary_client(text, retry_total=3), failover_interval=3600, send_timeout=4
        )
        sender = world.keep(client.get_queue_sender("orders"))
        done = []

        def send():
            with pytest.raises(OperationTimeoutError):
                sender.send_messages(ServiceBusMessage("a"), timeout=1)
            done.append(1)

        tasks = [spawn(send) for _ in range(3)]
        assert all([task.join(60) for task in tasks])
        assert len(done) == 3
        assert client.status().entity("orders").phase == "suspect"
        started = monotonic()
        with client.get_queue_sender("orders") as other:
            client.force_failover("orders")
            other.send_messages(ServiceBusMessage("b"))
        assert monotonic() - started < 60
        assert [m.body for m in world.backlog()] == [b"b"]


@contextmanager
def hangs_up_in_the_handshake():
    """A port where somebody says hello and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(8)
                        connection.sendall(b"AMQP\x03\x01\x00\x00")

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def test_peer_that_hangs_up_in_the_handshake_leaves_no_connection_behind(world):
    """The SDK itself drops such a connection without closing it."""
    with hangs_up_in_the_handshake() as port, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        text = world.primary.connection_string.replace(f":{world.primary.port}", f":{port}")
        client = world.pair(world.primary_client(text))
        sender = client.get_queue_sender("orders")

        for _ in range(2):
            with pytest.raises(ServiceBusError):
                sender.cancel_scheduled_messages([1])
        sender.send_messages(ServiceBusMessage("a"))
        client.close()
        sleep(0.05)
        del sender
        gc.collect()

    left = [w for w in caught if w.category is ResourceWarning and f"{port})" in str(w.message)]
    left += [w for w in caught if "unclosed transport" in str(w.message)]
    assert [str(warning.message) for warning in left] == []


def connections(server):
    """How many have connected to a server that never answers."""
    server.setblocking(False)
    count = 0
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            count += 1
    return count


def test_both_silent_is_reported_after_one_deadline_on_each_side(world, monkeypatch):
    monkeypatch.setattr(health, "first_gap", lambda timing: 3600.0)  # no ping
    with (
        socket.create_server(("127.0.0.1", 0)) as primary,
        socket.create_server(("127.0.0.1", 0)) as secondary,
    ):
        texts = [
            namespace.connection_string.replace(f":{namespace.port}", f":{deaf.getsockname()[1]}")
            for namespace, deaf in ((world.primary, primary), (world.secondary, secondary))
        ]
        client = world.pair(
            world.primary_client(texts[0], retry_total=3),
            secondary=world.secondary_client(texts[1]),
            send_timeout=1,
            ping_primary_interval=60,
            backlog_queue_count=5,
            require_secondary=False,
        )
        sender = world.keep(client.get_queue_sender("orders"))

        started = monotonic()
        with pytest.raises(PairUnavailableError) as caught:
            sender.send_messages(ServiceBusMessage("a"))

        assert monotonic() - started >= 2
        assert isinstance(caught.value.primary, OperationTimeoutError)
        assert isinstance(caught.value.secondary, OperationTimeoutError)
        assert connections(primary) == 1
        # One for the send, and up to two for the background check of the backlog queues: none for
        # the other four queues.
        assert 1 <= connections(secondary) <= 3
