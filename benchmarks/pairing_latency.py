"""How long sends take through an outage: paired and bare SDK, side by side, in an open loop.

A send is started at each of its planned times, whether or not the sends before it have ended, and
its latency is counted from the planned time: a sender that is stuck delays the sends behind it, and
that is in the figures (no coordinated omission). All is well for two seconds, then the primary
fails for twelve seconds, then it works again. Counted are the sends planned from the failure
on; one that raised counts with the time until it raised, and is in `failed`.

The paired client has `failover_interval=0`, all else is at its default. The bare SDK's senders are
used behind a lock, since they must not be shared, and with `timeout=30`: without one, a send to a
silent host waits for ever. The output of this benchmark, as a file, is the source of the table in
the documentation: `python -m benchmarks pairing_latency > docs/topics/latency-figures.txt`.
"""

import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack

from azure.servicebus import ServiceBusClient, ServiceBusMessage, aio

from benchmarks.pairing_outage import options_for, world
from pairbus import pair_namespace
from pairbus.aio import pair_namespace as aio_pair_namespace

RATE = 20  # sends a second, of each of the two
HEALTHY, FAILING, AFTER = 2.0, 12.0, 3.0  # seconds
RAW_TIMEOUT = 30.0
SENDERS = (1, 50)
KINDS: dict[str, Callable] = {
    "refused": lambda faults: faults.refuse(),
    "silent": lambda faults: faults.silent(),
    "reset": lambda faults: faults.reset(),
    "throttled": lambda faults: faults.throttle("orders"),
}
PLANNED = [number / RATE for number in range(int((HEALTHY + FAILING + AFTER) * RATE))]


class Latencies:
    """What the sends of one side took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.failed = 0

    def note(self, planned: float, begun: float, *, failed: bool) -> None:
        """A send that was planned for `planned` seconds after the beginning has ended."""
        if planned >= HEALTHY:
            self.seconds.append(time.perf_counter() - begun - planned)
            self.failed += failed

    def lines(self, name: str) -> Iterator[str]:
        """The figures, one line each."""
        ordered = sorted(self.seconds)
        yield f"{name}.p50 {statistics.median(ordered):.3f} s"
        yield f"{name}.p99 {ordered[int(0.99 * (len(ordered) - 1))]:.3f} s"
        yield f"{name}.max {ordered[-1]:.3f} s"
        yield f"{name}.failed {100 * self.failed / len(ordered):.0f} %"


def run_sync(kind: str, count: int) -> dict[str, Latencies]:
    """One outage, with so many sync senders on each side."""
    found = {"paired": Latencies(), "raw": Latencies()}
    with world() as (primary, secondary), ExitStack() as stack:
        text = primary.connection_string
        raw = stack.enter_context(ServiceBusClient.from_connection_string(text))
        sdk = ServiceBusClient.from_connection_string(text)
        paired = stack.enter_context(pair_namespace(sdk, options_for(secondary)))
        ours = [stack.enter_context(paired.get_queue_sender("orders")) for _ in range(count)]
        theirs = [stack.enter_context(raw.get_queue_sender("orders")) for _ in range(count)]
        locks = [threading.Lock() for _ in range(count)]

        def send(side: str, number: int, planned: float) -> None:
            failed = False
            try:
                if side == "paired":
                    ours[number].send_messages(ServiceBusMessage("a"))
                else:
                    with locks[number]:
                        theirs[number].send_messages(ServiceBusMessage("a"), timeout=RAW_TIMEOUT)
            except Exception:
                failed = True
            found[side].note(planned, begun, failed=failed)

        threads = []
        timers = [
            threading.Timer(HEALTHY, KINDS[kind], (primary.faults,)),
            threading.Timer(HEALTHY + FAILING, primary.faults.clear),
        ]
        begun = time.perf_counter()
        for timer in timers:
            timer.start()
        for position, planned in enumerate(PLANNED):
            time.sleep(max(0.0, begun + planned - time.perf_counter()))
            for side in found:
                thread = threading.Thread(target=send, args=(side, position % count, planned))
                thread.start()
                threads.append(thread)
        for thread in (*timers, *threads):
            thread.join()
    return found


async def run_aio(kind: str, count: int) -> dict[str, Latencies]:
    """One outage, with so many async senders on each side."""
    found = {"paired": Latencies(), "raw": Latencies()}
    with world() as (primary, secondary):
        async with AsyncExitStack() as stack:
            text = primary.connection_string
            admin = await stack.enter_async_context(secondary.aio_admin_client())
            raw = await stack.enter_async_context(aio.ServiceBusClient.from_connection_string(text))
            paired = await aio_pair_namespace(
                aio.ServiceBusClient.from_connection_string(text),
                options_for(secondary, aio.ServiceBusClient, admin=admin),
            )
            await stack.enter_async_context(paired)
            ours = [paired.get_queue_sender("orders") for _ in range(count)]
            theirs = [raw.get_queue_sender("orders") for _ in range(count)]
            for sender in (*ours, *theirs):
                await stack.enter_async_context(sender)
            locks = [asyncio.Lock() for _ in range(count)]

            async def send(side: str, number: int, planned: float) -> None:
                failed = False
                try:
                    if side == "paired":
                        await ours[number].send_messages(ServiceBusMessage("a"))
                    else:
                        async with locks[number]:
                            await theirs[number].send_messages(
                                ServiceBusMessage("a"), timeout=RAW_TIMEOUT
                            )
                except Exception:
                    failed = True
                found[side].note(planned, begun, failed=failed)

            timers = [
                threading.Timer(HEALTHY, KINDS[kind], (primary.faults,)),
                threading.Timer(HEALTHY + FAILING, primary.faults.clear),
            ]
            begun = time.perf_counter()
            for timer in timers:
                timer.start()
            tasks = []
            for position, planned in enumerate(PLANNED):
                await asyncio.sleep(max(0.0, begun + planned - time.perf_counter()))
                tasks += [
                    asyncio.create_task(send(side, position % count, planned)) for side in found
                ]
            await asyncio.gather(*tasks)
    return found


def run() -> Iterator[str]:
    """The figures, one line each."""
    for client, outage in (("sync", run_sync), ("aio", run_aio)):
        for kind in KINDS:
            for count in SENDERS:
                found = outage(kind, count)
                sides = asyncio.run(found) if asyncio.iscoroutine(found) else found
                for side, latencies in sides.items():
                    yield from latencies.lines(f"pairing_latency.{kind}.{client}.{count}.{side}")
