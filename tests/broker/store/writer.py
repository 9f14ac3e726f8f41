"""A process to be killed: it sends and completes without end, and says what was acknowledged.

With a statement above 0 it kills itself before that SQL statement of the store; else it waits to be
killed. Each line is a letter and a number: ``s`` about to send, ``S`` sent and acknowledged, ``c``
about to complete, ``C`` completed and acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from functools import partial
from multiprocessing.connection import Connection

from pairbus.broker.entities.messages import IncomingMessage, Outcome
from pairbus.broker.entities.model import QueueDescription
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.store import store as store_module
from pairbus.broker.store.store import Store


def say(letter: str, numbers: list[int]) -> None:
    os.write(1, "".join(f"{letter}{n}\n" for n in numbers).encode())


class Sending:
    """Sends, and waits while much is not acknowledged: a slow disk makes no larger groups."""

    def __init__(self, namespace: Namespace, number: int) -> None:
        self.namespace = namespace
        self.number = number
        self.in_flight = 0
        self.room = asyncio.Event()

    async def send(self, count: int) -> None:
        batch = list(range(self.number, self.number + count))
        self.number += count
        say("s", batch)
        self.namespace.send("q", [IncomingMessage(b"%d" % n) for n in batch])
        self.namespace.committer.after_commit(partial(self.sent, batch))
        self.in_flight += count
        await asyncio.sleep(0)
        while self.in_flight > 1000:
            self.room.clear()
            await self.room.wait()

    def sent(self, batch: list[int], error: Exception | None) -> None:
        assert error is None
        say("S", batch)
        self.in_flight -= len(batch)
        self.room.set()


class Receiving:
    def __init__(self, namespace: Namespace, rng: random.Random) -> None:
        self.namespace = namespace
        self.rng = rng
        self.receiver = namespace.receivers.open("q", self)

    def deliver(self, deliveries):
        done = [d for d in deliveries if self.rng.random() < 0.7]
        rest = [d for d in deliveries if d not in done]
        numbers = [int(d.message.bare) for d in done]
        say("c", numbers)
        assert not self.receiver.settle_many([d.lock_token for d in done], Outcome.COMPLETE)
        assert not self.receiver.settle_many([d.lock_token for d in rest], Outcome.RELEASE)
        self.namespace.committer.after_commit(lambda error: say("C", numbers))

    def drained(self): ...

    def closed(self, error): ...


async def main(directory: str, statement: int, seed: int) -> None:
    rng = random.Random(seed)
    store_module.LIGHT_ROWS = 30  # so that both threads commit groups
    store_module.CHECKPOINT = 100
    store = Store(directory)
    namespace = Namespace("crash", store)
    if namespace.catalog.find("q") is None:
        namespace.admin.create(QueueDescription("q", max_delivery_count=2**31 - 1))
    namespace.start(asyncio.get_running_loop())
    if statement > 0:
        left = statement

        def before(sql: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        store._write.set_trace_callback(before)  # noqa: SLF001 - kills the process between two statements
    receiving = Receiving(namespace, rng)
    sending = Sending(namespace, seed * 1_000_000)
    while True:
        receiving.receiver.grant(rng.choice([1, 5, 50]), drain=True)
        await sending.send(rng.choice([1, 3, 40]))


def start(output: Connection, directory: str, statement: int, seed: int) -> None:
    """Run in a process of its own, with its lines on *output*."""
    os.dup2(output.fileno(), 1)
    output.close()
    asyncio.run(main(directory, statement, seed))
