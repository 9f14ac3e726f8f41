"""A hundred tasks or threads on one sender: the paired sender against the SDK's own behind a lock.

The primary is behind a proxy that holds each piece of data for 20 ms, and does not throttle. The
SDK's sender must not be shared, so the tasks take turns with a lock, which is what an application
would do. After each run the queue is read: the messages of each task must be there, in order.
`one_task` is a single task, where there is nothing to coalesce: the two senders take turns.
"""

import asyncio
import multiprocessing
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, aio

from benchmarks.pairing_send import PAIRING, Turns, ratio, served
from pairbus import SendAvailabilityPairedNamespaceOptions, pair_namespace
from pairbus.administration import admin_client, aio_admin_client
from pairbus.aio import pair_namespace as aio_pair_namespace

TASKS = 100
LATENCY = 0.02  # seconds, in each direction
PAIRED_EACH = 20  # messages of each of the hundred tasks
RAW_TOTAL = 100  # messages of all tasks together: each costs a round trip
ALONE = 40  # messages that the single task sends with each sender


def _serve(pipe) -> None:
    from pairbus import broker
    from pairbus.testing import FaultProxy

    with broker.run(namespace="contoso", credits_per_second=0) as running:
        running.create_queue("orders")
        with FaultProxy(running.connection_string, latency=LATENCY) as proxy:
            proxy.mode = "slow"
            pipe.send((running.connection_string, proxy.connection_string))
            pipe.recv()


@contextmanager
def far_away() -> Iterator[tuple[str, str]]:
    """A primary in a process of its own: its connection string, and the one through the proxy."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        here.send("stop")
        process.join(10)


def check(primary: str, tasks: int, each: int) -> None:
    """Read the queue empty; every task's messages must be there, in order."""
    found: dict[str, list[int]] = {}
    with (
        ServiceBusClient.from_connection_string(primary) as client,
        client.get_queue_receiver(
            "orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver,
    ):
        left = tasks * each
        while left:
            batch = receiver.receive_messages(max_message_count=500, max_wait_time=10)
            assert batch, f"{left} messages are missing"
            for message in batch:
                task, number = str(message).split()
                found.setdefault(task, []).append(int(number))
            left -= len(batch)
    assert all(numbers == list(range(each)) for numbers in found.values()), "order was not kept"


def threads(send, tasks: int, each: int) -> float:
    """How many messages a second so many threads send."""

    def work(task: int) -> None:
        for number in range(each):
            send(ServiceBusMessage(f"{task} {number}"))

    started = [threading.Thread(target=work, args=(task,)) for task in range(tasks)]
    begun = time.perf_counter()
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return tasks * each / (time.perf_counter() - begun)


async def coroutines(send, tasks: int, each: int) -> float:
    """How many messages a second so many tasks send."""

    async def work(task: int) -> None:
        for number in range(each):
            await send(ServiceBusMessage(f"{task} {number}"))

    begun = time.perf_counter()
    await asyncio.gather(*(work(task) for task in range(tasks)))
    return tasks * each / (time.perf_counter() - begun)


def run_sync(near: str, far: str, secondary: str) -> Iterator[str]:
    """The figures of the sync twin."""
    options = SendAvailabilityPairedNamespaceOptions(
        secondary=ServiceBusClient.from_connection_string(secondary),
        secondary_admin=admin_client(secondary),
        **PAIRING,
    )
    with (
        ServiceBusClient.from_connection_string(far) as raw_client,
        raw_client.get_queue_sender("orders") as raw,
        pair_namespace(ServiceBusClient.from_connection_string(far), options) as client,
        client.get_queue_sender("orders") as paired,
    ):
        lock = threading.Lock()

        def locked(message) -> None:
            with lock:
                raw.send_messages(message)

        rates = {}
        for name, send, tasks, each in plan(locked, paired.send_messages):
            rates[name] = threads(send, tasks, each)
            check(near, tasks, each)
        alone = Turns(["paired", "raw"], ALONE, 1)
        for name in alone:
            {"raw": raw, "paired": paired}[name].send_messages(ServiceBusMessage("alone"))
        yield from lines("coalesce", rates, alone)


async def run_aio(near: str, far: str, secondary: str) -> AsyncIterator[str]:
    """The figures of the async twin."""
    async with aio_admin_client(secondary) as admin:
        options = SendAvailabilityPairedNamespaceOptions(
            secondary=aio.ServiceBusClient.from_connection_string(secondary),
            secondary_admin=admin,
            **PAIRING,
        )
        primary = aio.ServiceBusClient.from_connection_string(far)
        async with (
            aio.ServiceBusClient.from_connection_string(far) as raw_client,
            raw_client.get_queue_sender("orders") as raw,
            await aio_pair_namespace(primary, options) as client,
            client.get_queue_sender("orders") as paired,
        ):
            lock = asyncio.Lock()

            async def locked(message) -> None:
                async with lock:
                    await raw.send_messages(message)

            rates = {}
            for name, send, tasks, each in plan(locked, paired.send_messages):
                rates[name] = await coroutines(send, tasks, each)
                await asyncio.to_thread(check, near, tasks, each)
            alone = Turns(["paired", "raw"], ALONE, 1)
            for name in alone:
                sender = {"raw": raw, "paired": paired}[name]
                await sender.send_messages(ServiceBusMessage("alone"))
            for line in lines("coalesce.aio", rates, alone):
                yield line


def plan(raw, paired):
    """What is measured: its name, the send, how many tasks, and how many messages of each."""
    return (
        ("raw", raw, TASKS, RAW_TOTAL // TASKS),
        ("paired", paired, TASKS, PAIRED_EACH),
    )


def lines(prefix: str, rates: dict[str, float], alone: Turns) -> Iterator[str]:
    """The figures, one line each."""
    for name, rate in rates.items():
        yield f"{prefix}.{name} {rate:.0f} msg/s"
    yield f"{prefix}.paired_over_raw {rates['paired'] / rates['raw']:.1f} ratio"
    value, off = ratio(alone.wall, *alone.names)
    yield f"{prefix}.one_task.paired_over_raw {value:.3f} ratio ±{off:.3f}"


def _empty(primary: str) -> None:
    with (
        ServiceBusClient.from_connection_string(primary) as client,
        client.get_queue_receiver(
            "orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver,
    ):
        while receiver.receive_messages(max_message_count=500, max_wait_time=1):
            pass


async def _collected(found: AsyncIterator[str]) -> list[str]:
    return [line async for line in found]


def run() -> Iterator[str]:
    """The figures, one line each."""
    with far_away() as (near, far), served("backup") as secondary:
        yield from run_sync(near, far, secondary)
        _empty(near)
        yield from asyncio.run(_collected(run_aio(near, far, secondary)))
