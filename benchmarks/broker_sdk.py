"""The unmodified SDK against the broker in a process of its own: rate, p50, p99, CPU per message.

Messages of 1 KB over loopback, one connection; in memory and durable; the broker does not throttle.
And what a hundred idle connections cost.
"""

import os
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from benchmarks.amqp_lean import broker, cpu_of

COUNT = int(os.environ.get("PAIRBUS_BENCH_SDK_MESSAGES", "2000"))
BODY = b"x" * 1024
BATCH = 500  # messages of a send_messages call
CHUNK = 100  # messages that are received together and then completed one by one


def run():
    for name, value, unit in measure():
        yield f"{name} {value:.1f} {unit}"
    yield from idle()


def measure():
    yield from measure_store("sdk_memory", "--memory")
    with tempfile.TemporaryDirectory() as folder:
        yield from measure_store("sdk_durable", "--data", folder)


def measure_store(name, *options):
    with (
        broker(*options) as (text, pid),
        ServiceBusClient.from_connection_string(text) as client,
    ):
        with client.get_queue_sender("in") as sender:
            for _ in send_single(sender, 100):  # connect, and let both sides warm up
                pass
            yield from figures(f"{name}_send_single", pid, send_single(sender, COUNT))
            yield from figures(f"{name}_send_batched", pid, send_batched(sender, COUNT))
        with client.get_queue_receiver("in") as receiver:
            yield from figures(f"{name}_receive_complete", pid, receive_complete(receiver, COUNT))
        destructive = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with client.get_queue_receiver("in", receive_mode=destructive) as receiver:
            yield from figures(f"{name}_receive_and_delete", pid, receive(receiver, COUNT))


def figures(name, pid, calls):
    """Figures of an iterator that makes one call to the SDK at each step."""
    times, costs, own = [], [], 0.0
    tasks = [path.open() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    start = cpu_of(pid)
    before = used(tasks)
    mine, last = time.process_time(), time.perf_counter()
    for _ in calls:
        times.append(time.perf_counter() - last)
        own += time.process_time() - mine
        after = used(tasks)
        costs.append(after - before)
        before = after
        mine, last = time.process_time(), time.perf_counter()
    elapsed, theirs = sum(times), cpu_of(pid) - start
    for task in tasks:
        task.close()
    yield f"{name}_rate", COUNT / elapsed, "msg/s"
    yield f"{name}_p50", median(times) * 1e6, "us"
    yield f"{name}_p99", quantiles(times, n=100)[98] * 1e6, "us"
    yield f"{name}_client_cpu", own / COUNT * 1e6, "us"
    yield f"{name}_broker_cpu", theirs / COUNT * 1e6, "us"
    if len(times) == COUNT:
        # The tenth percentile of the calls: what a busy machine adds to the others is left out.
        yield f"{name}_broker_cpu_p10", quantiles(costs, n=10)[0] * 1e6, "us"


def used(tasks):
    """Seconds of CPU that these threads have used."""
    total = 0
    for task in tasks:
        task.seek(0)
        total += int(task.read().split()[0])
    return total / 1e9


def send_single(sender, count):
    for _ in range(count):
        yield sender.send_messages(ServiceBusMessage(BODY))


def send_batched(sender, count):
    for _ in range(0, count, BATCH):
        yield sender.send_messages([ServiceBusMessage(BODY) for _ in range(BATCH)])


def receive_complete(receiver, left):
    while left > 0:
        messages = receiver.receive_messages(max_message_count=min(CHUNK, left), max_wait_time=10)
        for message in messages:
            yield receiver.complete_message(message)
        left -= len(messages)


def receive(receiver, left):
    while left > 0:
        messages = receiver.receive_messages(max_message_count=min(BATCH, left), max_wait_time=10)
        yield messages
        left -= len(messages)


def idle(count=100, seconds=5.0):
    """The broker's CPU while this many authorized connections do nothing."""
    from pairbus.client import BulkConnection

    with broker("--memory") as (text, pid):
        connections = [BulkConnection(text).connect() for _ in range(count)]
        for connection in connections:
            connection.receiver("in")
        before, start = cpu_of(pid), time.monotonic()
        time.sleep(seconds)
        used = (cpu_of(pid) - before) / (time.monotonic() - start)
        for connection in connections:
            connection.close()
        yield f"broker_idle_100_connections_cpu {used * 100:.2f} %"
