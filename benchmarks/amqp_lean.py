"""The lean client and the broker in processes of their own: rates, and CPU µs per message of each.

Messages of 1 KB over loopback: sends in batches and one by one (pipelined), receives, settles, and
a pump between two queues.
"""

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

from benchmarks.amqp_codec import sample
from pairbus.client import BulkConnection

COUNT = int(os.environ.get("PAIRBUS_BENCH_MESSAGES", "20000"))
ROUNDS = int(os.environ.get("PAIRBUS_BENCH_ROUNDS", "5"))


@contextmanager
def broker(*options):
    """A broker process; its connection string and process id."""
    entities = {"UserConfig": {"Namespaces": [{"Name": "bench", "Queues": [
        {"Name": name, "Properties": {"LockDuration": "PT5M"}} for name in ("in", "out")
    ]}]}}  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(entities, file)
        file.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", "pairbus", "broker", "run", "--namespace", "bench",
             "--port", "0", "--entities", file.name, "--json", *options],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            ready = json.loads(process.stdout.readline())
            yield ready["connection_string"], process.pid
        finally:
            process.terminate()
            process.wait(10)
            process.stdout.close()


def cpu_of(pid):
    """Seconds of CPU that the threads of a process have used."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


class Meter:
    """Adds up what each step takes in all rounds: SQLite's checkpoints fall into any of them."""

    def __init__(self, name, pid):
        self.name, self.pid = name, pid
        self.totals = defaultdict(lambda: [0, 0.0, 0.0, 0.0])  # messages, seconds, CPU of each

    @contextmanager
    def measure(self, what, count):
        gc.collect()  # what earlier steps left is not this step's
        broker_before, own_before = cpu_of(self.pid), time.process_time()
        start = time.perf_counter()
        yield
        elapsed = time.perf_counter() - start
        own = time.process_time() - own_before
        theirs = cpu_of(self.pid) - broker_before
        self.totals[what] = [
            total + more
            for total, more in zip(self.totals[what], (count, elapsed, own, theirs), strict=True)
        ]

    def lines(self):
        for what, (count, elapsed, own, theirs) in self.totals.items():
            prefix = f"lean_{self.name}_{what}"
            yield f"{prefix}_rate {count / elapsed:.0f} msg/s"
            yield f"{prefix}_client_cpu {own / count * 1e6:.1f} us"
            yield f"{prefix}_broker_cpu {theirs / count * 1e6:.1f} us"


def scenario(name, options, count):
    messages = [sample() for _ in range(count)]
    with broker(*options) as (string, pid), BulkConnection(string) as connection:
        meter = Meter(name, pid)
        for _ in range(ROUNDS):
            one_round(meter, connection, messages)
        yield from meter.lines()


def one_round(meter, connection, messages):
    count = len(messages)
    with (
        connection.sender("in") as sender,
        connection.receiver("in") as receiver,
        connection.sender("out") as destination,
    ):
        with meter.measure("send_batched", count):
            assert all(outcome.is_accepted for outcome in sender.send_batch(messages))
        received = []
        with meter.measure("receive", count):
            while len(received) < count:
                received.extend(receiver.receive_now(min(2000, count - len(received))))
        with meter.measure("settle_by_token", count):
            management = connection.management("in")
            tokens = [one.lock_token for one in received]
            groups = [tokens[start : start + 1000] for start in range(0, count, 1000)]
            assert management.settle_each(groups) == [None] * len(groups)
        received.clear()
        with meter.measure("send_single_pipelined", count):
            for start in range(0, count, 1000):
                outcomes = sender.send_each(messages[start : start + 1000])
                assert all(outcome.is_accepted for outcome in outcomes)
        with meter.measure("receive_settle_on_link", count):
            left = count
            while left:
                got = receiver.receive_now(1000)
                receiver.complete(got)
                left -= len(got)
        sender.send_batch(messages)
        with meter.measure("pump", count):
            left = count
            while left:
                got = receiver.receive_now(1000)
                outcomes = destination.send_batch([one.message.bare for one in got])
                assert all(outcome.is_accepted for outcome in outcomes)
                receiver.complete(got)
                left -= len(got)


def run():
    yield from scenario("memory", ["--memory"], COUNT)
    with tempfile.TemporaryDirectory() as folder:
        yield from scenario("durable", ["--data", folder], COUNT)
