"""A client that asks for everything and reads nothing holds a bounded part of it in memory."""

import contextlib
import socket
import time

import pytest

from pairbus.amqp.message import Message
from pairbus.amqp.types import Int, Long
from pairbus.broker import Limits, run
from pairbus.broker.server.incoming import read_message
from pairbus.client import BulkConnection, ClientError, Mode
from tests.sas import make_token

COUNT = 20_000


@pytest.mark.slow
def test_a_client_that_does_not_read_gets_no_more_than_its_share() -> None:
    message = read_message(Message.build(data=b"x" * 1000).encode())
    with run(limits=Limits(write_buffer=256 * 1024)) as ns:
        ns.create_queue("q")
        ns.do(lambda n: n.send("q", [message] * COUNT))
        with BulkConnection(ns.connection_string) as connection:
            receiver = connection.receiver("q")
            assert receiver.link is not None
            with connection.mux.condition:
                connection.mux.engine.flow(receiver.link, COUNT)  # and nobody reads
                connection.mux.flush()
            held = lent(ns)
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                time.sleep(0.1)
                if held == (held := lent(ns)) and held:
                    break
            # The sockets' own buffers take a few megabytes; the rest stays in the queue.
            assert 0 < held < COUNT * 0.8
            found = 0
            with contextlib.suppress(TimeoutError):
                while found < COUNT:
                    found += len(receiver.receive(min(5000, COUNT - found), 10))
            assert found == COUNT


@pytest.mark.slow
def test_a_client_that_asks_for_answers_and_reads_none_is_given_up(caplog) -> None:
    message = read_message(Message.build(data=b"x" * 900_000).encode())
    with run(limits=Limits(write_buffer=64 * 1024)) as ns:
        ns.create_queue("q")
        ns.do(lambda n: n.send("q", [message]))
        with contextlib.suppress(ClientError), BulkConnection(ns.connection_string) as connection:
            management = connection.management("q")
            assert len(management.peek(0, 1)) == 1
            links = management._links  # noqa: SLF001 - a request without reading the answer
            assert links is not None
            asked = {"operation": "com.microsoft:peek-message"}
            peek = {"from-sequence-number": Long(0), "message-count": Int(1)}
            with connection.mux.condition:
                for _ in range(100):
                    links.post(asked, peek)
                connection.mux.flush()
                deadline = time.monotonic() + 60
                while "does not read" not in caplog.text and time.monotonic() < deadline:
                    time.sleep(0.01)
        assert "does not read" in caplog.text


@pytest.mark.slow
def test_a_client_that_asks_over_http_and_reads_nothing_has_its_requests_wait() -> None:
    with run(limits=Limits(open_timeout=1.0)) as ns:
        for n in range(100):
            ns.create_queue(f"queue-{n}", user_metadata="x" * 1000)
        token = make_token("sb://127.0.0.1/", "RootManageSharedAccessKey", "SAS_KEY_VALUE",
                           expires_at=time.time() + 60)  # fmt: skip
        request = (
            "GET /$Resources/queues?$skip=0&$top=100&api-version=2021-05 HTTP/1.1\r\n"
            f"Host: 127.0.0.1\r\nAuthorization: {token}\r\n\r\n"
        ).encode()
        with socket.create_connection(("127.0.0.1", ns.port), timeout=10) as sock:
            sock.sendall(request * 1000)  # more than 200 MB of answers
            counts = [-1, 0]
            while counts[-1] == 0 or counts[-1] != counts[-2]:
                time.sleep(0.2)
                counts.append(sum(kinds["admin"]["calls"] for kinds in ns.operations.values()))
            assert 0 < counts[-1] < 500
            deadline = time.monotonic() + 60
            listener = ns._running().listener  # noqa: SLF001 - the control port has no client
            while listener.connections and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not listener.connections  # and it is shown out in the end


def lent(ns) -> int:
    return ns.do(lambda n: len(n.catalog.queue_at("q").locks))


def test_credit_that_is_taken_back_while_messages_are_removed_harms_nobody(tmp_path) -> None:
    message = read_message(Message.build(data=b"x").encode())
    with run(data=tmp_path) as ns:
        ns.create_queue("q")
        ns.do(lambda n: n.send("q", [message] * 100))
        with BulkConnection(ns.connection_string) as connection:
            receiver = connection.receiver("q", mode=Mode.RECEIVE_AND_DELETE)
            assert receiver.link is not None
            with connection.mux.condition:
                connection.mux.engine.flow(receiver.link, 50)
                connection.mux.engine.flow(receiver.link, 0)
                connection.mux.flush()
            sender = connection.sender("q")
            assert all(
                o.is_accepted for o in sender.send_batch([Message.build(data=b"y").encode()])
            )
