"""The unmodified SDK against the broker in a process of its own: rates, CPU µs per message of each.

Messages of 1 KB over loopback, one connection; in memory and durable. And what a hundred idle
connections cost.
"""

import os
import tempfile
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from benchmarks.amqp_lean import broker, cpu_of

COUNT = int(os.environ.get("PAIRBUS_BENCH_SDK_MESSAGES", "2000"))
BODY = b"x" * 1024


def run():
    yield from measure("sdk_memory", "--memory")
    with tempfile.TemporaryDirectory() as folder:
        yield from measure("sdk_durable", "--data", folder)
    yield from idle()


def measure(name, *options):
    with broker(*options) as (text, pid), ServiceBusClient.from_connection_string(text) as client:
        with client.get_queue_sender("in") as sender:
            yield from figures(f"{name}_send_single", pid, lambda: send_single(sender))
            yield from figures(f"{name}_send_batched", pid, lambda: send_batched(sender, COUNT))
        with client.get_queue_receiver("in") as receiver:
            yield from figures(f"{name}_receive_complete", pid, lambda: receive_complete(receiver))
        destructive = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with client.get_queue_receiver("in", receive_mode=destructive) as receiver:
            yield from figures(f"{name}_receive_and_delete", pid, lambda: receive(receiver))


def figures(name, pid, function):
    theirs, own, start = cpu_of(pid), time.process_time(), time.perf_counter()
    function()
    elapsed = time.perf_counter() - start
    own, theirs = time.process_time() - own, cpu_of(pid) - theirs
    yield f"{name}_rate {COUNT / elapsed:.0f} msg/s"
    yield f"{name}_client_cpu {own / COUNT * 1e6:.1f} us"
    yield f"{name}_broker_cpu {theirs / COUNT * 1e6:.1f} us"


def send_single(sender):
    for _ in range(COUNT):
        sender.send_messages(ServiceBusMessage(BODY))


def send_batched(sender, left, size=500):
    while left > 0:
        batch = [ServiceBusMessage(BODY) for _ in range(min(size, left))]
        sender.send_messages(batch)
        left -= len(batch)


def receive_complete(receiver):
    left = COUNT
    while left > 0:
        messages = receiver.receive_messages(max_message_count=min(100, left), max_wait_time=10)
        for message in messages:
            receiver.complete_message(message)
        left -= len(messages)


def receive(receiver):
    left = COUNT
    while left > 0:
        messages = receiver.receive_messages(max_message_count=min(500, left), max_wait_time=10)
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
