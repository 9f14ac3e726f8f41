"""Clients that want to use up the broker's memory or time: others go on working."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading

import psutil
import pytest
from azure.servicebus import ServiceBusMessage

from pairbus.amqp.events import Attached, Begun, Closed, Opened
from pairbus.amqp.frames import frame
from pairbus.amqp.performatives import Flow, Source, Target
from pairbus.broker import run
from pairbus.broker.server import connection
from pairbus.broker.server.connection import LEAST_SHARE, UNAUTHORIZED_BYTES, AmqpConnection
from pairbus.broker.settings import DEFAULT_KEY_NAME, WELL_KNOWN_KEY
from tests.broker.server.test_hardening import RawClient, plain

pytestmark = pytest.mark.slow

HALF_A_HANDSHAKE = b"AMQP\x03\x01\x00\x00" + bytes.fromhex("0000001f02010000005341c0")


@pytest.fixture
def ns():
    with run() as ns:
        ns.create_queue("q")
        yield ns


def authorized(port: int) -> RawClient:
    client = RawClient(port, sasl=plain(DEFAULT_KEY_NAME, WELL_KNOWN_KEY))
    client.until(Opened)
    client.until(Begun)
    return client


def flood_with_attaches(port: int, wanted: int) -> tuple[int, RawClient]:
    """Attach links with large properties and no token; returns the bytes that were sent."""
    client = RawClient(port)
    client.until(Opened)
    client.until(Begun)
    properties = {f"property-{n}": [n] * 20 for n in range(60)}
    sent = 0
    with contextlib.suppress(OSError):
        for n in range(1000):
            client.engine.attach_sender(
                client.session, f"link-{n}", target=Target("q"), properties=properties
            )
            data = client.engine.data_to_send()
            client.socket.sendall(data)
            sent += len(data)
            if sent > wanted:
                break
    return sent, client


def test_a_client_without_a_token_cannot_make_the_broker_keep_much(ns):
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    clients = []
    for _ in range(10):
        _, client = flood_with_attaches(ns.port, 20 * UNAUTHORIZED_BYTES)
        clients.append(client)
    # Then each of them was closed, and told why, before it could send more than its share ...
    with contextlib.suppress(OSError, AssertionError):
        closed = clients[0].until(Closed)
        assert closed.error.condition == "amqp:resource-limit-exceeded"
    grown = process.memory_info().rss - before
    for client in clients:
        client.close()
    assert grown < 60_000_000
    # ... and an honest client is served.
    with ns.client(retry_total=0) as sb, sb.get_queue_sender("q") as sender:
        sender.send_messages(ServiceBusMessage("x"))
    assert len(ns.do(lambda n: n.peek("q", 0, 10))) == 1


def test_a_link_does_not_keep_the_decoded_frame_that_attached_it(ns):
    client = authorized(ns.port)
    client.engine.attach_receiver(client.session, "r", source=Source("q"), properties={"a": "b"})
    client.until(Attached)
    connections = ns.do(lambda n: list(ns._broker.connections))  # noqa: SLF001 - what the server keeps is not visible outside
    links = [
        link for c in connections for s in c.engine.sessions.values() for link in s.links.values()
    ]
    assert [link.name for link in links] == ["r"]
    assert links[0].attach is None
    client.close()


def test_a_flood_of_flow_frames_is_served_in_shares_between_which_others_work(ns, monkeypatch):
    served = []
    serve = AmqpConnection._serve  # noqa: SLF001 - how much one turn serves shows nowhere else

    def note(connection, data) -> None:
        served.append(len(data))
        serve(connection, data)

    monkeypatch.setattr(AmqpConnection, "_serve", note)
    monkeypatch.setattr(connection, "LONGEST_TURN", 0.0)  # every turn takes too long
    attacker = authorized(ns.port)
    link = attacker.engine.attach_receiver(attacker.session, "r", source=Source("q"))
    attacker.until(Attached)
    attacker.engine.data_to_send()
    flow = Flow(0, 1000, 0, 1000, handle=link.handle, link_credit=10, echo=True)
    flood = frame(0, flow.encode()) * 2000
    is_over = threading.Event()

    def attack() -> None:
        attacker.socket.settimeout(0.05)
        while not is_over.is_set():
            with contextlib.suppress(TimeoutError):
                attacker.socket.sendall(flood)
            with contextlib.suppress(TimeoutError):
                attacker.socket.recv(1 << 20)

    with ns.client(retry_total=0) as sb, sb.get_queue_sender("q") as sender:
        thread = threading.Thread(target=attack)
        thread.start()
        try:
            while sum(served) < 2 * len(flood):
                sender.send_messages(ServiceBusMessage("x"))
        finally:
            is_over.set()
            thread.join()
    attacker.close()
    assert max(served) == LEAST_SHARE


def test_half_open_handshakes_and_floods_of_channels_and_links_leave_others_working(ns):
    address = ("127.0.0.1", ns.port)
    crowd = [socket.create_connection(address, timeout=30) for _ in range(100)]
    flooder = authorized(ns.port)
    try:
        # Given clients that stop in the middle of the handshake, each at another byte ...
        for number, sock in enumerate(crowd):
            sock.sendall(HALF_A_HANDSHAKE[: number % len(HALF_A_HANDSHAKE)])
        # ... and one with a valid key that opens channels and links without end,
        for number in range(200):
            session = flooder.engine.begin()
            flooder.engine.attach_receiver(session, f"r{number}", source=Source("q"))
        flooder.flush()
        for _ in range(200):
            flooder.until(Attached)
        # then another client sends and receives as ever.
        with ns.client(retry_total=0) as sb:
            with sb.get_queue_sender("q") as sender:
                sender.send_messages([ServiceBusMessage(str(n)) for n in range(10)])
            with sb.get_queue_receiver("q") as receiver:
                left = 10
                while left:
                    messages = receiver.receive_messages(left, max_wait_time=30)
                    assert messages
                    for message in messages:
                        receiver.complete_message(message)
                    left -= len(messages)
    finally:
        flooder.close()
        for sock in crowd:
            sock.close()
