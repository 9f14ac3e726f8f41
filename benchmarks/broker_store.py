"""CPU per message of the broker's rules and store, and how long it takes to start with many.

The messages go in and out through a namespace on an event loop, as links drive it; only AMQP is
missing. CPU time is that of the whole process, the writer thread included.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time

from pairbus.broker.entities.messages import Delivery, IncomingMessage, Outcome
from pairbus.broker.entities.model import QueueDescription
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.store.store import Store

COUNT = int(os.environ.get("PAIRBUS_BENCH_MESSAGES", "20000"))
STORED = int(os.environ.get("PAIRBUS_BENCH_STORED", "1000000"))
BODY = b"\x00\x53\x75\xb0\x00\x00\x04\x00" + bytes(1024)


def figure(name: str, value: float, unit: str) -> None:
    print(f"store_{name} {value:.3g} {unit}", flush=True)


class Link:
    """Completes what it gets, in batches, and gives the credit back."""

    def __init__(self, namespace: Namespace, total: int, credit: int) -> None:
        self.left = total
        self.done = asyncio.get_running_loop().create_future()
        self.namespace = namespace
        self.credit = credit
        self.receiver = namespace.receivers.open("q", self)

    def deliver(self, deliveries: list[Delivery]) -> None:
        asyncio.get_running_loop().call_soon(self.settle, [d.lock_token for d in deliveries])

    def settle(self, tokens: list[bytes]) -> None:
        assert not self.receiver.settle_many(tokens, Outcome.COMPLETE)
        self.namespace.committer.after_commit(lambda error: self.settled(len(tokens)))

    def settled(self, count: int) -> None:
        self.left -= count
        if self.left == 0:
            self.done.set_result(None)
        else:
            self.receiver.grant(self.credit)

    def drained(self) -> None: ...

    def closed(self, error: Exception) -> None: ...


async def sends(namespace: Namespace, total: int, batch: int, window: int) -> None:
    """Send in batches, *window* of them unacknowledged at a time."""
    slots = asyncio.Semaphore(window)
    for _ in range(total // batch):
        await slots.acquire()
        namespace.send("q", [IncomingMessage(BODY) for _ in range(batch)])
        namespace.committer.after_commit(lambda error: slots.release())
        await asyncio.sleep(0)
    for _ in range(window):
        await slots.acquire()


async def pass_through(name: str, store: Store | None, total: int, batch: int, window: int) -> None:
    namespace = Namespace("bench", store)
    namespace.admin.create(QueueDescription("q"))
    namespace.start(asyncio.get_running_loop())
    start, clock = time.process_time(), time.perf_counter()
    await sends(namespace, total, batch, window)
    sent, sent_clock = time.process_time(), time.perf_counter()
    link = Link(namespace, total, batch)
    link.receiver.grant(batch)
    await link.done
    end, end_clock = time.process_time(), time.perf_counter()
    figure(f"{name}_in", (sent - start) / total * 1e6, "us/message")
    figure(f"{name}_out", (end - sent) / total * 1e6, "us/message")
    figure(f"{name}_in_rate", total / (sent_clock - clock), "messages/s")
    figure(f"{name}_out_rate", total / (end_clock - sent_clock), "messages/s")
    namespace.close()


def start_up(directory: str, total: int) -> None:
    """Fill a store and open it again."""
    store = Store(directory)
    namespace = Namespace("bench", store)
    namespace.admin.create(QueueDescription("q", max_size_in_megabytes=5120))
    for _ in range(total // 1000):
        namespace.send("q", [IncomingMessage(BODY) for _ in range(1000)])
    namespace.close()
    store.close()
    del store, namespace
    # In a process of its own, so that its memory is its own.
    subprocess.run([sys.executable, __file__, "--open", directory], check=True)


def resident() -> float:
    """Megabytes of memory that this process has now."""
    import psutil

    return float(psutil.Process().memory_info().rss) / 1e6


def open_again(directory: str) -> None:
    before = resident()
    clock = time.perf_counter()
    store = Store(directory)
    namespace = Namespace("bench", store)
    took = time.perf_counter() - clock
    count = namespace.admin.runtime("q").active_message_count
    after = resident()
    figure(f"start_up_with_{count}", took, "s")
    figure(f"start_up_memory_with_{count}", after - before, "MB")
    store.close()


def run() -> None:
    asyncio.run(pass_through("memory_batch", None, COUNT, 100, 4))
    for durability in ("normal", "full"):
        with tempfile.TemporaryDirectory() as directory:
            store = Store(directory, durability)
            asyncio.run(pass_through(f"{durability}_batch", store, COUNT, 100, 4))
            store.close()
    with tempfile.TemporaryDirectory() as directory:
        store = Store(directory)
        asyncio.run(pass_through("normal_single", store, COUNT // 10, 1, 1))
        store.close()
    with tempfile.TemporaryDirectory() as directory:
        start_up(directory, STORED)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--open"]:
        open_again(sys.argv[2])
    else:
        run()
