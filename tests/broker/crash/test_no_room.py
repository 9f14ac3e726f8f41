"""A broker process that may write no further: refused means not taken, and then all goes on."""

import contextlib
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pairbus.amqp.message import Message
from pairbus.client import BulkConnection, ClientError

pytestmark = [
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux"),
]
ROOM = 3_000_000  # bytes of any one file


@contextlib.contextmanager
def running(data: Path, entities: Path):
    process = subprocess.Popen(
        [sys.executable, "-m", "pairbus", "broker", "run", "--port", "0", "--json",
         "--data", str(data), "--entities", str(entities)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process.pid, json.loads(process.stdout.readline())["connection_string"]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def leave_room(pid: int, size: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


class Client:
    """Sends and completes, over a new connection after each refusal."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.acknowledged: set[int] = set()
        self.completed: set[int] = set()
        self.refused = 0

    def send(self, numbers: range, size: int, together: int) -> None:
        with BulkConnection(self.text) as connection:
            sender = connection.sender("q")
            for start in range(numbers.start, numbers.stop, together):
                some = range(start, min(start + together, numbers.stop))
                payloads = [Message.build(data=b"%d " % n + b"x" * size).encode() for n in some]
                (outcome,) = sender.send_batch(payloads)
                if outcome.is_accepted:
                    self.acknowledged.update(some)
                else:
                    self.refused += 1

    def complete(self, count: int) -> None:
        with contextlib.suppress(ClientError), BulkConnection(self.text) as connection:
            receiver = connection.receiver("q")
            for _ in range(count):
                (one,) = receiver.receive(1, 10)
                receiver.complete([one])
                self.completed.add(number_of(one))


def number_of(one) -> int:
    return int(one.message.body.split()[0])


def test_with_no_room_to_write_nothing_is_promised_and_what_was_promised_is_kept(tmp_path):
    entities = tmp_path / "entities.json"
    entities.write_text(json.dumps({"Namespaces": [{"Name": "n", "Queues": [{"Name": "q"}]}]}))
    with running(tmp_path / "data", entities) as (pid, text):
        client = Client(text)
        client.send(range(500), 1000, 1)
        leave_room(pid, ROOM)
        client.send(range(500, 1500), 10_000, 1)  # one by one: by way of the log
        client.send(range(1500, 2000), 5_000, 100)  # many at once: transactions
        assert client.refused > 10
        client.complete(5)
        leave_room(pid, resource.RLIM_INFINITY)
        refused = client.refused
        while True:
            with contextlib.suppress(ClientError):
                client.send(range(2000, 2100), 1000, 1)
                break
        assert client.refused == refused
        client.complete(5)
    with running(tmp_path / "data", entities) as (_, text), BulkConnection(text) as connection:
        receiver = connection.receiver("q")
        found: list[int] = []
        while some := receiver.receive_now(1000):
            found += [number_of(one) for one in some]
    assert len(found) == len(set(found))
    assert not client.completed & set(found)
    assert client.acknowledged - client.completed <= set(found)
    # What was refused is not there; only an answer that was lost on the way leaves it open.
    assert set(found) <= client.acknowledged
