"""The drain with round trips of 0, 1, 20 and 60 ms to both namespaces, through the same proxy.

Each namespace is reached through a proxy that delays every piece of data in both directions. The
figures are the messages a second of a warm syphon, and their share of the figure at 0 ms, of which
at least 0.5 is wanted at 20 ms.

    python -m benchmarks syphon_round_trips
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.syphon_drain import pair
from pairbus.testing import FaultProxy

ROUND_TRIPS = (0, 1, 20, 60)  # milliseconds
WANTED = {20: 0.5}
QUEUES = 10


def run(messages: int = 60_000, warm_up: int = 20_000) -> Iterator[str]:
    """Two lines for each round trip."""
    base = None
    for milliseconds in ROUND_TRIPS:
        rate = measure(milliseconds / 1000, messages, warm_up)
        base = base or rate
        name = f"syphon_round_trips_{milliseconds}_ms"
        yield f"{name} {rate:.0f} msg/s"
        wanted = WANTED.get(milliseconds)
        mark = "" if wanted is None else f" (wanted: {wanted:g})"
        yield f"{name}_share {rate / base:.2f} ratio{mark}"


def measure(round_trip: float, messages: int, warm_up: int) -> float:
    """Messages a second that a warm syphon forwards."""
    with pair(QUEUES, durable=False) as brokers, ExitStack() as stack:
        proxies = [
            stack.enter_context(FaultProxy(target, latency=round_trip / 2))
            for target in (brokers.primary, brokers.secondary)
        ]
        far = replace(
            brokers,
            primary=proxies[0].connection_string,
            secondary=proxies[1].connection_string,
        )
        handle = far.start_syphon(QUEUES, 20_000)
        try:
            brokers.fill(QUEUES, warm_up)
            assert handle.wait_until_empty(600)
            handle.pause()
            time.sleep(2)
            before = handle.status()["forwarded"]
            brokers.fill(QUEUES, messages)
            for proxy in proxies:
                proxy.mode = "slow" if round_trip else "pass"
            started = time.monotonic()
            handle.resume()
            while handle.status()["forwarded"] - before < messages:
                time.sleep(0.05)
            return messages / (time.monotonic() - started)
        finally:
            for proxy in proxies:
                proxy.mode = "pass"
            handle.stop()
