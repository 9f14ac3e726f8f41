"""After an outage of the primary: how soon the first message moves.

A syphon runs with a backlog while the primary refuses connections, long enough for its back-off to
grow. Then the primary is back. The figure is the time until it has the first message of the
backlog; at most 2 s are wanted.

    python -m benchmarks syphon_recovery
"""

import time
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.syphon_drain import pair
from pairbus.client import BulkConnection
from pairbus.testing import FaultProxy

OUTAGES = (5.0, 30.0)  # seconds
MOST = 2.0


def run() -> Iterator[str]:
    """One line for each outage."""
    with pair(2, durable=False) as brokers, FaultProxy(brokers.primary) as proxy:
        handle = replace(brokers, primary=proxy.connection_string).start_syphon(2, 20_000)
        try:
            brokers.fill(2, 200)
            assert handle.wait_until_empty(300)
            for seconds in OUTAGES:
                taken = _first_after(brokers.primary, proxy, lambda: brokers.fill(2, 200), seconds)
                mark = "ok" if taken <= MOST else f"more than {MOST:g} s"
                yield f"syphon_recovery_after_{seconds:.0f}_s {taken:.2f} s ({mark})"
                assert handle.wait_until_empty(300)
        finally:
            handle.stop()


def _first_after(primary, proxy, fill, seconds: float) -> float:
    with BulkConnection(primary) as connection:
        receiver = connection.receiver("orders")
        while some := receiver.receive_now(1000):
            receiver.complete(some)
        proxy.mode = "refuse"
        fill()
        time.sleep(seconds)
        proxy.mode = "pass"
        back_at = time.time()
        (first,) = receiver.receive(1, max_wait=120)
        receiver.complete([first])
        return float(first.enqueued_time or 0) / 1000 - back_at
