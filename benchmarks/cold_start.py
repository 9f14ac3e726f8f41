"""From the command to the first message home, beside a bare PySpark streaming query.

The query has one micro-batch from a Python data source to a Python sink. Bar: at most 1.3 times its
time. Then `pairbus reconcile` and `pairbus cost report` on a ledger of a million rows, beside a
PySpark session that counts one row; bar: at most 1.5 times its time. Each is measured without and
with (`archived`) the archive of `pairbus spark class-archive`, which is written first.
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
from pairbus.spark.archive import base_of
from pairbus.spark.java import ensure_java, find_java

RUNS = 3
ROWS = 1_000_000


def bare(folder: Path) -> float:
    """Seconds until the sink of a bare query has its row."""
    file = folder / f"bare-{time.monotonic_ns()}"
    began = time.time()
    subprocess.run([sys.executable, "-m", "benchmarks.bare_stream", str(file)], check=True)
    return float(file.read_text()) - began


def without_archive() -> dict[str, str]:
    """Variables of a process that uses no archive of ours."""
    base = base_of(find_java(), Path(ensure_java()))
    return {"SPARK_SUBMIT_OPTS": f"-XX:SharedArchiveFile={base}"}


def syphon(**environment: str) -> float:
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
                env={**os.environ, **environment, "PAIRBUS_PRIMARY": brokers.primary,
                     "PAIRBUS_SECONDARY": brokers.secondary,
                     "PAIRBUS_PRIMARY_NAMESPACE": "contoso"},
            )  # fmt: skip
            while not receiver.receive(1, max_wait=1.0):
                assert process.poll() is None
            seconds = time.time() - began
            process.wait(300)
    return seconds


def timed(*command: str, **environment: str) -> float:
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", *command],
        stdout=subprocess.DEVNULL,
        env={**os.environ, **environment},
        check=False,
    )
    return time.monotonic() - began


def run() -> Iterator[str]:
    yield f"cold_start.write_archive {timed('pairbus', 'spark', 'class-archive'):.0f} s"
    ways = {"": without_archive(), ".archived": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rounds = [(bare(folder), *(syphon(**way) for way in ways.values())) for _ in range(RUNS)]
        least, *found = (min(column) for column in zip(*rounds, strict=True))
        yield f"cold_start.bare {least:.1f} s"
        for way, first in zip(ways, found, strict=True):
            yield f"cold_start.syphon{way} {first:.1f} s"
            yield f"cold_start.ratio{way} {first / least:.2f} x"
        ledger = str(folder / "ledger")
        generate(ledger, ROWS)
        one = min(timed("benchmarks.bare_stream", "count") for _ in range(RUNS))
        yield f"cold_start.count_one_row {one:.1f} s"
        for job in (("reconcile", ledger), ("cost", "report", ledger)):
            for way, environment in ways.items():
                took = min(timed("pairbus", *job, "--json", **environment) for _ in range(RUNS))
                yield f"cold_start.{job[0]}{way} {took:.1f} s"
                yield f"cold_start.{job[0]}{way}.ratio {took / one:.2f} x"
