"""From the command to the first message home, beside a bare PySpark streaming query.

The query has one micro-batch from a Python data source to a Python sink. Bar: at most 1.3 times its
time. Then `pairbus reconcile` and `pairbus cost report` on a ledger of a million rows, beside a
PySpark session that counts one row; bar: at most 1.5 times its time.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.ledger_jobs import generate
from benchmarks.syphon_drain import fill, pair

RUNS = 3
ROWS = 1_000_000


def bare(folder: Path) -> float:
    """Seconds until the sink of a bare query has its row."""
    file = folder / f"bare-{time.monotonic_ns()}"
    began = time.time()
    subprocess.run([sys.executable, "-m", "benchmarks.bare_stream", str(file)], check=True)
    return float(file.read_text()) - began


def syphon() -> float:
    """Seconds until the first message of a backlog is in the primary."""
    from pairbus.client import BulkConnection

    with pair(1, durable=False) as brokers:
        fill(brokers.secondary, 1, 100)
        with BulkConnection(brokers.primary) as connection:
            receiver = connection.receiver("orders")
            began = time.time()
            process = subprocess.Popen(
                [sys.executable, "-m", "pairbus", "syphon", "run", "--queues", "1", "--until-empty",
                 "--master", "local[2]", "--checkpoint", str(brokers.folder / "checkpoint"),
                 "--ledger", str(brokers.folder / "ledger")],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**os.environ, "PAIRBUS_PRIMARY": brokers.primary,
                     "PAIRBUS_SECONDARY": brokers.secondary,
                     "PAIRBUS_PRIMARY_NAMESPACE": "contoso"},
            )  # fmt: skip
            while not receiver.receive(1, max_wait=1.0):
                assert process.poll() is None
            seconds = time.time() - began
            process.wait(300)
    return seconds


def timed(*command: str) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", *command], stdout=subprocess.DEVNULL, check=False)
    return time.monotonic() - began


def run() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = [(bare(folder), syphon()) for _ in range(RUNS)]
        least, first = min(b for b, _ in pairs), min(s for _, s in pairs)
        yield f"cold_start.bare {least:.1f} s"
        yield f"cold_start.syphon {first:.1f} s"
        yield f"cold_start.ratio {first / least:.2f} x"
        ledger = str(folder / "ledger")
        generate(ledger, ROWS)
        one = min(timed("benchmarks.bare_stream", "count") for _ in range(RUNS))
        yield f"cold_start.count_one_row {one:.1f} s"
        for job in (("reconcile", ledger), ("cost", "report", ledger)):
            took = min(timed("pairbus", *job, "--json") for _ in range(RUNS))
            yield f"cold_start.{job[0]} {took:.1f} s"
            yield f"cold_start.{job[0]}.ratio {took / one:.2f} x"
