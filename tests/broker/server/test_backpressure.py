"""A client that asks for everything and reads nothing holds a bounded part of it in memory."""

import contextlib
import time

import pytest

from pairbus.amqp.message import Message
from pairbus.broker import Limits, run
from pairbus.broker.incoming import read_message
from pairbus.lean import LeanConnection, Mode

COUNT = 20_000


@pytest.mark.slow
def test_a_client_that_does_not_read_gets_no_more_than_its_share() -> None:
    message = read_message(Message.build(data=b"x" * 1000).encode())
    with run(limits=Limits(write_buffer=256 * 1024)) as ns:
        ns.create_queue("q")
        ns.do(lambda n: n.send("q", [message] * COUNT))
        with LeanConnection(ns.connection_string) as connection:
            receiver = connection.receiver("q")
            assert receiver.link is not None
            with connection.lock:
                connection.engine.flow(receiver.link, COUNT)  # and nobody reads
                connection.flush()
            held = lent(ns)
            deadline = time.monotonic() + 10
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


def lent(ns) -> int:
    return ns.do(lambda n: len(n.queue_at("q").locks))


def test_credit_that_is_taken_back_while_messages_are_removed_harms_nobody(tmp_path) -> None:
    message = read_message(Message.build(data=b"x").encode())
    with run(data=tmp_path) as ns:
        ns.create_queue("q")
        ns.do(lambda n: n.send("q", [message] * 100))
        with LeanConnection(ns.connection_string) as connection:
            receiver = connection.receiver("q", mode=Mode.RECEIVE_AND_DELETE)
            assert receiver.link is not None
            with connection.lock:
                connection.engine.flow(receiver.link, 50)
                connection.engine.flow(receiver.link, 0)
                connection.flush()
            sender = connection.sender("q")
            assert all(
                o.is_accepted for o in sender.send_batch([Message.build(data=b"y").encode()])
            )
