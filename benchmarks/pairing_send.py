"""What pairing costs: the paired sender against the SDK's own, in one run, turn by turn.

Two senders take turns of a few milliseconds, in an order that changes, and each round gives one
ratio: what else the machine does hits both alike. Shown is the median over hundreds of rounds, and
how far off it may be (±, 95 %); for paired over raw the rounds go on until that is little. `cpu` is
the same of the processor time of the sending thread, which noise hardly touches. Both clients are
at the SDK's defaults and send new objects to one queue. The brokers run in processes of their own.
Both twins are measured; `aio` is the async one's.

A `dressed` message has what the SDK writes more slowly, and pairbus hands on to it as it is:
properties, a session, a time to live.
"""

import asyncio
import gc
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from datetime import timedelta

from azure.servicebus import ServiceBusClient, ServiceBusMessage, aio

from pairbus import SendAvailabilityPairedNamespaceOptions, pair_namespace
from pairbus.administration import admin_client, aio_admin_client
from pairbus.aio import SendAvailabilityPairedNamespaceOptions as AioOptions
from pairbus.aio import pair_namespace as aio_pair_namespace

SINGLES = 4  # sends in a turn
BATCH = 100  # messages in a batch; one batch is a turn
BODY = "x" * 1024
# What is compared, and how often the rounds may be extended to be more certain.
COMPARED = (
    ("paired_over_raw", 4, "paired", "raw"),
    ("ledger_on_over_off", 1, "ledger", "paired"),
    ("failed_over_over_healthy", 1, "over", "paired"),
)
# Messages in a turn, the fewest rounds, and how many of the figures above.
WORK = (("single", SINGLES, 600, 3), ("dressed", SINGLES, 600, 1), ("batch", BATCH, 150, 3))
ENOUGH = 0.004  # how far off, as part of the ratio, needs no more rounds


def _serve(namespace: str, pipe) -> None:
    from pairbus import broker

    with broker.run(namespace=namespace, credits_per_second=0) as running:
        running.create_queue("orders") if namespace == "contoso" else None
        pipe.send(running.connection_string)
        pipe.recv()


@contextmanager
def served(namespace: str) -> Iterator[str]:
    """A namespace in a process of its own; gives its connection string."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(namespace, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        here.send("stop")
        process.join(10)


def dressed() -> ServiceBusMessage:
    """A message with much to write besides its body."""
    return ServiceBusMessage(
        BODY,
        application_properties={"kind": "order", "attempt": 1},
        session_id="customer 4711",
        correlation_id="basket 815",
        content_type="application/json",
        subject="created",
        time_to_live=timedelta(days=1),
    )


def singles(sender) -> None:
    for _ in range(SINGLES):
        sender.send_messages(ServiceBusMessage(BODY))


def dressed_singles(sender) -> None:
    for _ in range(SINGLES):
        sender.send_messages(dressed())


def batches(sender) -> None:
    batch = sender.create_message_batch()
    for _ in range(BATCH):
        batch.add_message(ServiceBusMessage(BODY))
    sender.send_messages(batch)


async def aio_singles(sender) -> None:
    for _ in range(SINGLES):
        await sender.send_messages(ServiceBusMessage(BODY))


async def aio_dressed_singles(sender) -> None:
    for _ in range(SINGLES):
        await sender.send_messages(dressed())


async def aio_batches(sender) -> None:
    batch = await sender.create_message_batch()
    for _ in range(BATCH):
        batch.add_message(ServiceBusMessage(BODY))
    await sender.send_messages(batch)


class Turns:
    """How long each sender took for its turns, by its name."""

    def __init__(self, names: list[str], rounds: int, times: int) -> None:
        self.names = names
        self.rounds = rounds
        self.times = times
        self.wall: dict[str, list[float]] = {name: [] for name in names}
        self.cpu: dict[str, list[float]] = {name: [] for name in names}

    def __iter__(self) -> Iterator[str]:
        """Yield whose turn it is; the time until the next turn is measured."""
        gc.collect()
        gc.disable()
        warm_up = self.rounds // 20
        try:
            for number in range(self.times * self.rounds + warm_up):
                if number % 50 == 0 and number >= self.rounds + warm_up and self.is_enough():
                    break
                first = number % len(self.names)
                for name in self.names[first:] + self.names[:first]:
                    wall, cpu = time.perf_counter(), time.thread_time()
                    yield name
                    cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
                    if number >= warm_up:
                        self.wall[name].append(wall)
                        self.cpu[name].append(cpu)
                if number % 20 == 0:
                    gc.collect()
        finally:
            gc.enable()

    def is_enough(self) -> bool:
        """Whether more rounds would hardly change the figure."""
        value, off = ratio(self.wall, *self.names)
        return off <= ENOUGH * value

    def lines(self, prefix: str, what: str, kind: str, unit: int) -> Iterator[str]:
        """The figures, one line each."""
        one, other = self.names
        for name in self.names if what == "paired_over_raw" else [one]:
            cpu = statistics.median(self.cpu[name]) / unit * 1e6
            rate = unit / statistics.median(self.wall[name])
            yield f"{prefix}.{name}.{kind} {rate:.0f} msg/s"
            yield f"{prefix}.cpu.{name}.{kind} {cpu:.1f} us/msg"
        for label, taken in (("", self.wall), ("cpu.", self.cpu)):
            value, off = ratio(taken, one, other)
            yield f"{prefix}.{label}{what}.{kind} {value:.3f} ratio ±{off:.3f}"


def ratio(taken: dict[str, list[float]], one: str, other: str) -> tuple[float, float]:
    """How fast `one` is as a multiple of `other`, the median over the rounds; and its ±.

    With 95 % certainty the true median is between two of the values in their order.
    """
    pairs = zip(taken[other], taken[one], strict=True)
    ratios = sorted(theirs / ours for theirs, ours in pairs)
    middle, apart = len(ratios) / 2, 0.98 * math.sqrt(len(ratios))
    low, high = (
        ratios[max(0, int(middle - apart))],
        ratios[min(len(ratios) - 1, int(middle + apart))],
    )
    return statistics.median(ratios), (high - low) / 2


PAIRING = {
    "primary_namespace": "contoso",
    "backlog_queue_count": 2,
    "failover_interval": 0,
    "ping_primary_interval": 1800,
}


def run_sync(primary: str, secondary: str) -> Iterator[str]:
    """The figures of the sync twin."""
    with ExitStack() as stack:

        def paired(**options):
            client = pair_namespace(
                ServiceBusClient.from_connection_string(primary),
                SendAvailabilityPairedNamespaceOptions(
                    secondary=ServiceBusClient.from_connection_string(secondary),
                    secondary_admin=admin_client(secondary),
                    **PAIRING,
                    **options,
                ),
            )
            return stack.enter_context(client)

        raw_client = stack.enter_context(ServiceBusClient.from_connection_string(primary))
        ledger = stack.enter_context(tempfile.TemporaryDirectory())
        failing = paired()
        senders = {
            "raw": raw_client.get_queue_sender("orders"),
            "paired": paired().get_queue_sender("orders"),
            "ledger": paired(ledger=ledger).get_queue_sender("orders"),
            "over": failing.get_queue_sender("orders"),
        }
        for sender in senders.values():
            stack.enter_context(sender)
        started = time.perf_counter()
        failing.force_failover("orders")
        senders["over"].send_messages(ServiceBusMessage(BODY))
        seconds = time.perf_counter() - started
        yield f"pairing_send.engaged_to_first_backlog_send {seconds:.3f} s"
        works = (singles, dressed_singles, batches)
        for (kind, unit, rounds, figures), work in zip(WORK, works, strict=True):
            for what, times, *names in COMPARED[:figures]:
                turns = Turns(names, rounds, times)
                for name in turns:
                    work(senders[name])
                yield from turns.lines("pairing_send", what, kind, unit)


async def run_aio(primary: str, secondary: str) -> AsyncIterator[str]:
    """The figures of the async twin."""
    async with AsyncExitStack() as stack:

        async def paired(**options):
            admin = await stack.enter_async_context(aio_admin_client(secondary))
            client = await aio_pair_namespace(
                aio.ServiceBusClient.from_connection_string(primary),
                AioOptions(
                    secondary=aio.ServiceBusClient.from_connection_string(secondary),
                    secondary_admin=admin,
                    **PAIRING,
                    **options,
                ),
            )
            return await stack.enter_async_context(client)

        raw_client = aio.ServiceBusClient.from_connection_string(primary)
        await stack.enter_async_context(raw_client)
        ledger = stack.enter_context(tempfile.TemporaryDirectory())
        failing = await paired()
        await failing.force_failover("orders")
        senders = {
            "raw": raw_client.get_queue_sender("orders"),
            "paired": (await paired()).get_queue_sender("orders"),
            "ledger": (await paired(ledger=ledger)).get_queue_sender("orders"),
            "over": failing.get_queue_sender("orders"),
        }
        for sender in senders.values():
            await stack.enter_async_context(sender)
        works = (aio_singles, aio_dressed_singles, aio_batches)
        for (kind, unit, rounds, figures), work in zip(WORK, works, strict=True):
            for what, times, *names in COMPARED[:figures]:
                turns = Turns(names, rounds, times)
                for name in turns:
                    await work(senders[name])
                for line in turns.lines("pairing_send.aio", what, kind, unit):
                    yield line


async def _collected(lines: AsyncIterator[str]) -> list[str]:
    return [line async for line in lines]


def run() -> Iterator[str]:
    """The figures, one line each."""
    with served("contoso") as primary, served("backup") as secondary:
        yield from run_sync(primary, secondary)
        yield from asyncio.run(_collected(run_aio(primary, secondary)))
