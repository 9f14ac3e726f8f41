"""The broker process is killed with SIGKILL under load, many times; its promises hold.

A message whose send was acknowledged is there at the next start. A message whose completion was
acknowledged never comes back. Only what was in flight at the moment of the kill may go either way.
"""

import contextlib
import json
import multiprocessing
import random
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from pairbus.amqp.message import Message
from pairbus.broker import run
from pairbus.client import BulkConnection, ClientError

pytestmark = [pytest.mark.crash, pytest.mark.slow]

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pairbus.broker.run", "pairbus.broker.server.server"])


def serve(ready: Connection, data: Path, options: dict[str, Any]) -> None:
    with run(data=data, **options) as ns:
        ready.send(ns.connection_string)
        threading.Event().wait()


class Process:
    """A broker process on one data folder."""

    def __init__(self, data: Path, **options: Any) -> None:
        self.data = data
        self.options = options

    def __enter__(self) -> str:
        ready, theirs = FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(
            target=serve, args=(theirs, self.data, self.options), daemon=True
        )
        self._process.start()
        theirs.close()
        with ready:
            return ready.recv()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def __exit__(self, *_: object) -> None:
        self.kill()


class Account:
    """What the clients were promised."""

    def __init__(self) -> None:
        self.sent: set[int] = set()
        self.completing: set[int] = set()
        self.completed: set[int] = set()
        self.next_id = 0
        self.came_back: list[int] = []

    def note_delivery(self, number: int) -> None:
        if number in self.completed:
            self.came_back.append(number)


def send_until_killed(text: str, account: Account, stop: threading.Event) -> None:
    with contextlib.suppress(ClientError, OSError), BulkConnection(text) as connection:
        sender = connection.sender("q")
        while not stop.is_set():
            numbers = range(account.next_id, account.next_id + random.choice((1, 3, 20)))
            account.next_id = numbers.stop
            # Large ones fill the log, so that it is emptied now and then.
            rest = b" " * random.choice((0, 0, 100_000))
            payloads = [Message.build(data=b"%d" % n + rest).encode() for n in numbers]
            outcomes = sender.send_batch(payloads)
            if all(outcome.is_accepted for outcome in outcomes):
                account.sent.update(numbers)


def receive_until_killed(text: str, account: Account, stop: threading.Event) -> None:
    with contextlib.suppress(ClientError, OSError), BulkConnection(text) as connection:
        receiver = connection.receiver("q")
        while not stop.is_set():
            received = receiver.receive_now(10)
            if not received:
                receiver.wait(0.2)
                continue
            numbers = [int(one.message.body) for one in received]
            for number in numbers:
                account.note_delivery(number)
            account.completing.update(numbers)
            receiver.complete(received)
            account.completed.update(numbers)


@pytest.mark.parametrize(
    ("durability", "kills"),
    [("normal", 4), ("full", 3), pytest.param("normal", 20, marks=pytest.mark.long)],
)
def test_acknowledged_messages_survive_and_completed_ones_never_return(
    tmp_path: Path, durability: str, kills: int
) -> None:
    random.seed(7)
    account = Account()
    entities = tmp_path / "entities.json"
    entities.write_text(json.dumps({"Namespaces": [{"Name": "n", "Queues": [{"Name": "q"}]}]}))
    broker = Process(tmp_path / "data", durability=durability, entities=entities)
    for _ in range(kills):
        with broker as text:
            stop = threading.Event()
            threads = [
                threading.Thread(target=work, args=(text, account, stop))
                for work in (send_until_killed, receive_until_killed)
            ]
            before = len(account.sent)
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + 60
            while len(account.sent) < before + 50 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(random.uniform(0.0, 0.3))  # any moment will do
            broker.kill()
            stop.set()
            for thread in threads:
                thread.join()
    with broker as text, BulkConnection(text) as connection:
        receiver = connection.receiver("q")
        left: set[int] = set()
        while received := receiver.receive_now(500):
            for one in received:
                number = int(one.message.body)
                account.note_delivery(number)
                assert number not in left, "a message is there twice"
                left.add(number)
            receiver.complete(received)
    assert len(account.sent) >= 50 * kills
    assert account.completed
    assert account.came_back == []
    lost = account.sent - left - account.completing
    assert lost == set()
