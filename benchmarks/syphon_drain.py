"""Drain a backlog of 1 KB messages, by the syphon and by a pump written with the SDK.

Both brokers are processes of their own on this machine. CPU is counted by process: the brokers,
Spark's Java, and Python (driver, keeper, workers).

    python -m benchmarks.syphon_drain [--messages 200000] [--queues 10] [--durable] [--cap 10000]
"""

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

PREFIX = "contoso/x-servicebus-transfer"


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
        process.wait(20)


def prepare(primary: str, secondary: str, queues: int) -> None:
    from pairbus.broker.clients import admin_client

    with admin_client(primary) as admin:
        admin.create_queue("orders")
    with admin_client(secondary) as admin:
        for number in range(queues):
            admin.create_queue(
                f"{PREFIX}/{number}",
                lock_duration=dt.timedelta(minutes=1),
                max_delivery_count=2147483647,
            )


def fill(secondary: str, queues: int, messages: int, size: int = 1024) -> None:
    from pairbus.lean.connection import LeanConnection
    from pairbus.spark.encode import encode_message

    with LeanConnection(secondary) as connection:
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


class Cpu:
    """CPU seconds of kinds of processes, this one's children included."""

    def __init__(self, brokers: list[psutil.Process]) -> None:
        self._brokers = brokers
        self._seen: dict[int, tuple[str, float]] = {}
        self._stop = threading.Event()
        self._start = self._sums(self._look())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _look(self) -> dict[int, tuple[str, float]]:
        found = dict(self._seen)
        ids = {process.pid for process in self._brokers}
        for process in [*self._brokers, psutil.Process(), *psutil.Process().children(True)]:
            try:
                times, name = process.cpu_times(), process.name()
            except psutil.Error:
                continue
            kind = "brokers" if process.pid in ids else "jvm" if "java" in name else "python"
            found[process.pid] = (kind, times.user + times.system)
        self._seen = found
        return found

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            self._look()

    @staticmethod
    def _sums(found: dict[int, tuple[str, float]]) -> dict[str, float]:
        sums: dict[str, float] = {"brokers": 0.0, "jvm": 0.0, "python": 0.0}
        for kind, seconds in found.values():
            sums[kind] += seconds
        return sums

    def used(self) -> dict[str, float]:
        self._stop.set()
        self._thread.join()
        now = self._sums(self._look())
        return {kind: now[kind] - self._start[kind] for kind in now}


def drain(messages: int, queues: int, cap: int, *, durable: bool) -> dict[str, float]:
    """By the syphon: a first small drain warms Spark up, the second one is measured."""
    from pairbus.options import SyphonOptions
    from pairbus.spark.syphon import start_syphon

    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        data = (base / "p", base / "s") if durable else (None, None)
        with (
            broker_process("contoso", data[0]) as (primary, one),
            broker_process("contoso-dr", data[1]) as (secondary, two),
        ):
            prepare(primary, secondary, queues)
            options = SyphonOptions(
                primary=primary, secondary=secondary, primary_namespace="contoso",
                backlog_queue_count=queues, checkpoint=str(base / "checkpoint"),
                ledger=str(base / "ledger"), max_messages_per_trigger=cap, master="local[2]",
            )  # fmt: skip
            handle = start_syphon(options)
            fill(secondary, queues, 20 * queues)
            handle.wait_until_empty(120)
            handle.pause()
            time.sleep(2)
            before = handle.status()["forwarded"]
            fill(secondary, queues, messages)
            cpu = Cpu([one, two])
            started = time.monotonic()
            handle.resume()
            while handle.status()["forwarded"] - before < messages:
                time.sleep(0.05)
            seconds = time.monotonic() - started
            used = cpu.used()
            memory = max((p.memory_info().rss for p in psutil.Process().children(True)), default=0)
            handle.stop()
    figures = {"rate": messages / seconds, "largest_mb": memory / 1e6}
    figures.update({f"cpu_{k}": v * 1e6 / messages for k, v in used.items()})
    return figures


def pump(messages: int, queues: int, *, durable: bool) -> dict[str, float]:
    """By hand with the SDK: receive 100, send them as a batch, complete each."""
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        data = (base / "p", base / "s") if durable else (None, None)
        with (
            broker_process("contoso", data[0]) as (primary, one),
            broker_process("contoso-dr", data[1]) as (secondary, two),
        ):
            prepare(primary, secondary, queues)
            fill(secondary, queues, messages)
            cpu = Cpu([one, two])
            moved = 0
            with (
                ServiceBusClient.from_connection_string(primary) as out,
                ServiceBusClient.from_connection_string(secondary) as back,
                out.get_queue_sender("orders") as sender,
            ):
                started = time.monotonic()
                for number in range(queues):
                    with back.get_queue_receiver(f"{PREFIX}/{number}") as receiver:
                        while got := receiver.receive_messages(100, max_wait_time=0.5):
                            batch = sender.create_message_batch()
                            for message in got:
                                batch.add_message(
                                    ServiceBusMessage(
                                        b"".join(message.body), message_id=message.message_id
                                    )
                                )
                            sender.send_messages(batch)
                            for message in got:
                                receiver.complete_message(message)
                            moved += len(got)
                            if moved % (messages // queues) == 0:
                                break
                seconds = time.monotonic() - started
            used = cpu.used()
    figures = {"rate": moved / seconds}
    figures.update({f"cpu_{k}": v * 1e6 / moved for k, v in used.items()})
    return figures


def lines(prefix: str, figures: dict[str, float]) -> Iterator[str]:
    """`name value unit`, one per figure."""
    for name, value in figures.items():
        unit = "msg/s" if name == "rate" else "MB" if name.endswith("_mb") else "us/msg"
        yield f"{prefix}_{name} {value:.1f} {unit}"


def run(messages: int = 200_000, queues: int = 10, cap: int = 10_000) -> Iterator[str]:
    """The figures of `make bench`: the pump beside the syphon, in one run."""
    yield from lines("syphon_sdk_pump", pump(10_000, queues, durable=False))
    for kind in ("memory", "durable"):
        figures = drain(messages, queues, cap, durable=kind == "durable")
        yield from lines(f"syphon_drain_{kind}", figures)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--pump-messages", type=int, default=10_000)
    parser.add_argument("--queues", type=int, default=10)
    parser.add_argument("--cap", type=int, default=10_000)
    parser.add_argument("--only", choices=["memory", "durable", "pump"])
    given = parser.parse_args(argv)
    os.environ.setdefault("PYTHONHASHSEED", "0")
    if given.only in (None, "pump"):
        figures = pump(given.pump_messages, given.queues, durable=False)
        print(*lines("syphon_sdk_pump", figures), sep="\n", flush=True)
    for kind in ("memory", "durable"):
        if given.only in (None, kind):
            figures = drain(given.messages, given.queues, given.cap, durable=kind == "durable")
            print(*lines(f"syphon_drain_{kind}", figures), sep="\n", flush=True)


if __name__ == "__main__":
    main()
