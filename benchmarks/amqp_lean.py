"""The lean client and the broker in processes of their own: rates, and CPU µs per message of each.

Messages of 1 KB over loopback: sends in batches and one by one (pipelined), receives, settles, and
a pump between two queues.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from benchmarks.amqp_codec import sample
from pairbus.client import BulkConnection

COUNT = int(os.environ.get("PAIRBUS_BENCH_MESSAGES", "20000"))


@contextmanager
def broker(*options, python=None):
    """A broker process of this version, or of the one that *python* has; connection string, pid."""
    entities = {"UserConfig": {"Namespaces": [{"Name": "bench", "Queues": [
        {"Name": name, "Properties": {"LockDuration": "PT5M"}} for name in ("in", "out")
    ]}]}}  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(entities, file)
        file.flush()
        process = subprocess.Popen(
            [python or sys.executable, "-m", "pairbus", "broker", "run", "--namespace", "bench",
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
    def __init__(self, name, pid):
        self.name, self.pid, self.lines = name, pid, []

    def measure(self, what, function, count):
        broker_before, own_before, start = (
            cpu_of(self.pid),
            time.process_time(),
            time.perf_counter(),
        )
        function()
        elapsed = time.perf_counter() - start
        own = time.process_time() - own_before
        theirs = cpu_of(self.pid) - broker_before
        prefix = f"lean_{self.name}_{what}"
        yield f"{prefix}_rate {count / elapsed:.0f} msg/s"
        yield f"{prefix}_client_cpu {own / count * 1e6:.1f} us"
        yield f"{prefix}_broker_cpu {theirs / count * 1e6:.1f} us"


def scenario(name, options, count):
    messages = [sample() for _ in range(count)]
    with broker(*options) as (string, pid), BulkConnection(string) as connection:
        meter = Meter(name, pid)
        sender = connection.sender("in")
        receiver = connection.receiver("in")
        received = []

        def send_batches():
            assert all(outcome.is_accepted for outcome in sender.send_batch(messages))

        yield from meter.measure("send_batched", send_batches, count)

        def receive():
            while len(received) < count:
                received.extend(receiver.receive_now(min(2000, count - len(received))))

        yield from meter.measure("receive", receive, count)

        def settle():
            management = connection.management("in")
            management.settle([one.lock_token for one in received], "completed")

        yield from meter.measure("settle_by_token", settle, count)

        def send_single():
            for start in range(0, count, 1000):
                outcomes = sender.send_each(messages[start : start + 1000])
                assert all(outcome.is_accepted for outcome in outcomes)

        yield from meter.measure("send_single_pipelined", send_single, count)

        def receive_and_settle():
            left = count
            while left:
                got = receiver.receive_now(1000)
                receiver.complete(got)
                left -= len(got)

        yield from meter.measure("receive_settle_on_link", receive_and_settle, count)
        sender.send_batch(messages)
        destination = connection.sender("out")

        def pump():
            left = count
            while left:
                got = receiver.receive_now(1000)
                outcomes = destination.send_batch([one.message.bare for one in got])
                assert all(outcome.is_accepted for outcome in outcomes)
                receiver.complete(got)
                left -= len(got)

        yield from meter.measure("pump", pump, count)


def run():
    yield from scenario("memory", ["--memory"], COUNT)
    with tempfile.TemporaryDirectory() as folder:
        yield from scenario("durable", ["--data", folder], COUNT)
