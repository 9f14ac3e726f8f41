"""Drain through a standalone cluster with round trips of 60 ms to both namespaces.

The pair has its usual ten queues. A worker has one core and so runs one task at a time, which waits
for most of its time; bar: two workers drain at least 1.7 times as fast. The rate is that of the
second half of the messages, when Java has compiled its code and each Python process is connected.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.syphon_drain import fill, pair
from pairbus.testing import FaultProxy
from tests.spark.cluster import Cluster, kill_tree

MESSAGES = int(os.environ.get("CLUSTER_MESSAGES", "100000"))
QUEUES = 10
PER_QUEUE = 500  # messages of a micro-batch
ROUND_TRIP = 0.06


def drain(workers: int) -> float:
    """Messages a second."""
    with ExitStack() as stack:
        brokers = stack.enter_context(pair(QUEUES, durable=False))
        fill(brokers.secondary, QUEUES, MESSAGES)
        far = []
        for namespace in (brokers.primary, brokers.secondary):
            proxy = stack.enter_context(FaultProxy(namespace, latency=ROUND_TRIP / 2))
            proxy.mode = "slow"
            far.append(proxy.connection_string)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = Cluster(folder, workers=workers)
        stack.callback(cluster.close)
        syphon = subprocess.Popen(
            [sys.executable, "-m", "pairbus", "syphon", "run", "--master", cluster.url,
             "--queues", str(QUEUES), "--until-empty", "--credits-per-second", "0",
             "--max-messages-per-trigger", str(PER_QUEUE),
             "--checkpoint", str(folder / "checkpoint"), "--ledger", str(folder / "ledger")],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PAIRBUS_PRIMARY": far[0], "PAIRBUS_SECONDARY": far[1],
                 "PAIRBUS_PRIMARY_NAMESPACE": "contoso"},
        )  # fmt: skip
        stack.callback(kill_tree, syphon)
        progress = folder / "checkpoint" / "progress.json"
        first: tuple[float, int] | None = None
        while True:
            done = json.loads(progress.read_text())["forwarded"] if progress.exists() else 0
            now = time.monotonic()
            if first is None and done >= MESSAGES / 2:
                first = (now, done)
            if first is not None and done >= MESSAGES * 0.95:
                return (done - first[1]) / (now - first[0])
            assert syphon.poll() is None
            time.sleep(0.05)


def run() -> Iterator[str]:
    rates = {}
    for workers in (1, 2):
        rates[workers] = drain(workers)
        yield f"cluster_drain.workers.{workers} {rates[workers]:.0f} messages/s"
    yield f"cluster_drain.ratio {rates[2] / rates[1]:.2f} x"
