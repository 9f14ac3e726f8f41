"""Drain a backlog of 1 KB messages, by the syphon and by a pump written with the SDK.

Both brokers are processes of their own on this machine, in memory and durable. CPU is counted by
kind of process: the brokers, Spark's Java, and Python (driver, coordinator, workers). Java compiles
code while it runs, so a drain of `--warm-up` messages goes before the one that is measured;
the clock starts when the syphon is resumed, and stops when the last message is settled.

Idle, a syphon holds one long poll per backlog queue: counted at the broker with a poll of two
seconds, and converted to polls of the usual fifteen minutes. Then single messages wake it: the time
from just before one is sent to the backlog until the primary has it, the median and the longest.

    python -m benchmarks.syphon_drain [--messages 200000] [--queues 10] [--cap 20000]
                                      [--only memory|durable|pump|idle]
"""

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.processes import Watch

PREFIX = "contoso/x-servicebus-transfer"
WARM_UP = 50_000
LONG_POLL = 900.0  # seconds, the default
WAKES = 9  # messages that wake an idle syphon, one by one


@dataclass
class Pair:
    """Two brokers that run."""

    primary: str
    secondary: str
    processes: dict[str, psutil.Process]
    folder: Path

    def watch(self) -> Watch:
        return Watch(self.processes)

    def start_syphon(self, queues: int, cap: int, **more: Any) -> Any:
        from pairbus.options import SyphonOptions
        from pairbus.spark.syphon import start_syphon

        return start_syphon(
            SyphonOptions(
                primary=self.primary, secondary=self.secondary, primary_namespace="contoso",
                backlog_queue_count=queues, checkpoint=str(self.folder / "checkpoint"),
                ledger=str(self.folder / "ledger"), max_messages_per_trigger=cap,
                master="local[2]", credits_per_second=None, **more,
            )
        )  # fmt: skip

    def fill(self, queues: int, messages: int) -> None:
        fill(self.secondary, queues, messages)


@contextmanager
def broker_process(name: str, data: Path | None) -> Iterator[tuple[str, psutil.Process]]:
    """A broker in a process of its own: its connection string and the process."""
    where = ["--data", str(data)] if data else ["--memory"]
    command = [sys.executable, "-m", "pairbus", "broker", "run", "--namespace", name, "--port", "0"]
    process = subprocess.Popen([*command, *where, "--json"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield ready["connection_string"], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def pair(queues: int, *, durable: bool) -> Iterator[Pair]:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        data = (base / "p", base / "s") if durable else (None, None)
        with (
            broker_process("contoso", data[0]) as (primary, one),
            broker_process("contoso-dr", data[1]) as (secondary, two),
        ):
            prepare(primary, secondary, queues)
            yield Pair(primary, secondary, {"primary": one, "secondary": two}, base)


def prepare(primary: str, secondary: str, queues: int) -> None:
    from pairbus.administration import admin_client

    with admin_client(primary) as admin:
        admin.create_queue("orders", max_size_in_megabytes=5120)
    with admin_client(secondary) as admin:
        for number in range(queues):
            admin.create_queue(
                f"{PREFIX}/{number}",
                lock_duration=dt.timedelta(minutes=1),
                max_delivery_count=2147483647,
                max_size_in_megabytes=5120,
            )


def fill(secondary: str, queues: int, messages: int, size: int = 1024) -> None:
    """The same number of messages in each queue; each carries its destination."""
    from pairbus.client import BulkConnection
    from pairbus.spark.encode import encode_message

    with BulkConnection(secondary) as connection:
        for number in range(queues):
            sender = connection.sender(f"{PREFIX}/{number}")
            total = messages // queues
            for start in range(0, total, 5000):
                some = [
                    encode_message(
                        {
                            "body": b"x" * size,
                            "messageId": f"{number}-{n}",
                            "applicationProperties": {"x-ms-path": "orders"},
                        }
                    )
                    for n in range(start, min(total, start + 5000))
                ]
                for outcome in sender.send_batch(some):
                    assert outcome.is_accepted, outcome.error


def drain(
    messages: int, queues: int, cap: int, *, durable: bool, warm_up: int = WARM_UP
) -> dict[str, float]:
    """By the syphon: a first drain warms Java up, the second one is measured."""
    with pair(queues, durable=durable) as brokers:
        handle = brokers.start_syphon(queues, cap)
        brokers.fill(queues, warm_up)
        assert handle.wait_until_empty(300)
        handle.pause()
        time.sleep(2)
        progress = Path(handle.checkpoint) / "progress.json"

        def forwarded() -> int:
            return int(json.loads(progress.read_text())["forwarded"])

        before = forwarded()
        brokers.fill(queues, messages)
        watch = brokers.watch()
        started = time.monotonic()
        handle.resume()
        while forwarded() - before < messages:
            time.sleep(0.05)
        seconds = time.monotonic() - started
        cpu, peak = watch.end()
        others = watch.others() / seconds
        handle.stop()
    figures = {"rate": messages / seconds}
    figures["cores"], figures["others_cores"] = sum(cpu.values()) / seconds, others
    figures.update(per_message(cpu, messages))
    figures.update({f"peak_{kind}_mb": value for kind, value in peak.items()})
    return figures


def per_message(cpu: dict[str, float], messages: int) -> dict[str, float]:
    """CPU microseconds per message: brokers, Java, Python."""
    brokers = cpu.pop("primary", 0.0), cpu.pop("secondary", 0.0)
    cpu["brokers"] = sum(brokers)
    return {f"cpu_{kind}": seconds * 1e6 / messages for kind, seconds in sorted(cpu.items())}


def pump(messages: int, queues: int, *, durable: bool) -> dict[str, float]:
    """By hand with the SDK: receive 100, send them as a batch, complete each."""
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    with pair(queues, durable=durable) as brokers:
        brokers.fill(queues, messages)
        moved = 0
        with ExitStack() as stack:
            out = stack.enter_context(ServiceBusClient.from_connection_string(brokers.primary))
            back = stack.enter_context(ServiceBusClient.from_connection_string(brokers.secondary))
            sender = stack.enter_context(out.get_queue_sender("orders"))
            receivers = [
                # The SDK takes half a second to open one, and to close it: not part of the pace.
                stack.enter_context(back.get_queue_receiver(f"{PREFIX}/{number}"))
                for number in range(queues)
            ]
            watch = brokers.watch()
            started = time.monotonic()
            for receiver in receivers:
                left = messages // queues
                while left and (got := receiver.receive_messages(min(100, left), max_wait_time=5)):
                    batch = sender.create_message_batch()
                    for message in got:
                        batch.add_message(
                            ServiceBusMessage(b"".join(message.body), message_id=message.message_id)
                        )
                    sender.send_messages(batch)
                    for message in got:
                        receiver.complete_message(message)
                    left -= len(got)
                    moved += len(got)
            seconds = time.monotonic() - started
            cpu, _ = watch.end()
    return {"rate": moved / seconds, **per_message(cpu, moved)}


def idle(queues: int, *, poll: float = 2.0, seconds: float = 20.0) -> dict[str, float]:
    """Receives that the broker counts while there is nothing to do, and micro-batches."""
    with pair(queues, durable=False) as brokers:
        host = brokers.secondary.partition("://")[2].partition(";")[0].rstrip("/")

        def receives() -> int:
            with urllib.request.urlopen(f"http://{host}/$control/operations") as answer:
                counts = json.load(answer)
            return sum(
                kinds["receive-empty"]["calls"]
                for kinds in counts.values()
                if "receive-empty" in kinds
            )

        handle = brokers.start_syphon(queues, 20_000, long_poll=poll)
        brokers.fill(queues, 100)
        assert handle.wait_until_empty(120)
        time.sleep(2 * poll)
        offsets = Path(handle.checkpoint) / "spark" / "offsets"
        batches, before, watch = len(list(offsets.glob("[0-9]*"))), receives(), brokers.watch()
        time.sleep(seconds)
        counted = receives() - before
        cpu, _ = watch.end()
        ran = len(list(offsets.glob("[0-9]*"))) - batches
        wakes = sorted(wake(brokers, handle) for _ in range(WAKES))
        handle.stop()
    return {
        "receives_per_hour": counted * poll / seconds * 3600 / LONG_POLL,
        "micro_batches": ran,
        "cpu_share": sum(cpu.values()) / seconds * 100,
        "wake": wakes[len(wakes) // 2],
        "wake_longest": wakes[-1],
    }


def wake(brokers: Pair, handle: Any) -> float:
    """Seconds that one message takes through a syphon that was idle."""
    from pairbus.client import BulkConnection

    with BulkConnection(brokers.primary) as connection:
        receiver = connection.receiver("orders")
        while some := receiver.receive_now(1000):
            receiver.complete(some)
        while handle.status()["state"] != "idle":
            time.sleep(0.1)
        time.sleep(2)  # the last trigger that found something has ended
        started = time.time()
        brokers.fill(1, 1)
        (one,) = receiver.receive(1, max_wait=60)
        receiver.complete([one])
        return float(one.enqueued_time or 0) / 1000 - started


_UNITS = {
    "rate": "msg/s", "cores": "cores", "others_cores": "cores", "receives_per_hour": "1/h",
    "micro_batches": "batches", "cpu_share": "%", "ratio": "x",
    "wake": "s", "wake_longest": "s",
}  # fmt: skip


def lines(prefix: str, figures: dict[str, float]) -> Iterator[str]:
    """`name value unit`, one per figure."""
    for name, value in figures.items():
        unit = _UNITS.get(name) or ("MB" if name.endswith("_mb") else "us/msg")
        yield (
            f"{prefix}_{name} {value:.2f} {unit}"
            if value < 10
            else (f"{prefix}_{name} {value:.1f} {unit}")
        )


def run(
    messages: int = 200_000,
    queues: int = 10,
    cap: int = 20_000,
    *,
    pump_messages: int = 10_000,
    warm_up: int = WARM_UP,
    only: str | None = None,
) -> Iterator[str]:
    """The figures of `make bench`: the pump beside the syphon, in one run."""
    os.environ.setdefault("PYTHONHASHSEED", "0")
    os.environ.setdefault("PAIRBUS_BROKER_TIER", "premium")  # does not throttle
    if only in (None, "memory", "durable"):
        yield f"syphon_drain_warm_up {warm_up} messages"
    for kind in ("memory", "durable"):
        by_hand = None
        if only in (None, "pump"):
            by_hand = pump(pump_messages, queues, durable=kind == "durable")
            yield from lines(f"syphon_sdk_pump_{kind}", by_hand)
        if only in (None, kind):
            figures = drain(messages, queues, cap, durable=kind == "durable", warm_up=warm_up)
            if by_hand is not None:
                figures["ratio"] = figures["rate"] / by_hand["rate"]
            yield from lines(f"syphon_drain_{kind}", figures)
    if only in (None, "idle"):
        yield from lines("syphon_idle", idle(queues))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--pump-messages", type=int, default=10_000)
    parser.add_argument("--queues", type=int, default=10)
    parser.add_argument("--cap", type=int, default=20_000)
    parser.add_argument("--warm-up", type=int, default=WARM_UP)
    parser.add_argument("--only", choices=["memory", "durable", "pump", "idle"])
    given = parser.parse_args(argv)
    for line in run(
        given.messages, given.queues, given.cap,
        pump_messages=given.pump_messages, warm_up=given.warm_up, only=given.only,
    ):  # fmt: skip
        print(line, flush=True)


if __name__ == "__main__":
    main()
