"""kill -9, under load: nothing is lost, and what is doubled is known by its message id.

Brokers and syphon are processes of their own, started by the command line.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from pairbus.broker.clients import admin_client
from pairbus.lean.connection import LeanConnection
from tests.spark.syphon.conftest import PREFIX, backlog_message

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]
KEY = "S3cr3tKeyOfTheCrashTest"
QUEUES, EACH = 2, 3000
RATE = 1500


class BrokerProcess:
    """A broker that keeps its data, and comes back where it was."""

    def __init__(self, name, data):
        self.name, self.data, self.port, self.process = name, data, 0, None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pairbus", "broker", "run", "--namespace", self.name, "--json",
             "--port", str(self.port), "--data", str(self.data)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PAIRBUS_BROKER_KEY": KEY},
        )  # fmt: skip
        ready = json.loads(self.process.stdout.readline())
        self.port = ready["port"]
        self.connection_string = ready["connection_string"]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def kill_and_restart(self):
        self.kill()
        self.start()


class Crash:
    """Two brokers with a full backlog, and a syphon that can be killed in many ways."""

    def __init__(self, folder):
        self.folder = folder
        self.primary = BrokerProcess("contoso", folder / "primary")
        self.secondary = BrokerProcess("contoso-dr", folder / "secondary")
        self.syphon = None
        self.output = b""
        self.errors = (folder / "errors").open("ab")
        with admin_client(self.primary.connection_string) as admin:
            admin.create_queue("plain")
            admin.create_queue("unique", requires_duplicate_detection=True)
        with admin_client(self.secondary.connection_string) as admin:
            for number in range(QUEUES):
                admin.create_queue(
                    f"{PREFIX}/{number}", lock_duration="PT20S", max_delivery_count=2147483647
                )
        self.sent = Counter()

    def fill(self):
        with LeanConnection(self.secondary.connection_string) as connection:
            for number in range(QUEUES):
                sender = connection.sender(f"{PREFIX}/{number}")
                messages = [
                    backlog_message(("plain", "unique")[n % 2], n, more={"q": number})
                    for n in range(EACH)
                ]
                for outcome in sender.send_batch(messages):
                    assert outcome.is_accepted
        self.sent.update(plain=EACH * QUEUES // 2, unique=EACH * QUEUES // 2)

    def start(self, *arguments):
        if self.syphon is not None and not self.syphon.stdout.closed:
            self.finish_output()
        (self.folder / "checkpoint" / "status.json").unlink(missing_ok=True)
        self.syphon = subprocess.Popen(
            [sys.executable, "-m", "pairbus", "syphon", "run", "--primary-namespace", "contoso",
             "--queues", str(QUEUES), "--checkpoint", str(self.folder / "checkpoint"),
             "--ledger", str(self.folder / "ledger"), "--master", "local[2]",
             "--max-messages-per-second", str(RATE), "--json", *arguments],
            stdout=subprocess.PIPE, stderr=self.errors,
            env={
                **os.environ,
                "PAIRBUS_PRIMARY": self.primary.connection_string,
                "PAIRBUS_SECONDARY": self.secondary.connection_string,
            },
        )  # fmt: skip

    def forwarded(self):
        try:
            progress = json.loads((self.folder / "checkpoint" / "progress.json").read_text())
        except (OSError, ValueError):
            return 0
        return progress["forwarded"]

    def wait_for(self, forwarded, timeout=240):
        deadline = time.monotonic() + timeout
        while self.forwarded() < forwarded:
            assert time.monotonic() < deadline, (self.forwarded(), forwarded)
            assert self.syphon.poll() is None, self.told()
            time.sleep(0.05)
        time.sleep(random.random() / 2)

    def finish_output(self):
        """What the last syphon printed, when it has ended."""
        with self.syphon.stdout:
            printed = self.syphon.stdout.read().decode()
        self.output += printed.encode()
        return printed

    def told(self):
        return (self.folder / "errors").read_text()

    def child(self, pattern, timeout=30):
        """A process below the syphon."""
        deadline = time.monotonic() + timeout
        while True:
            children = psutil.Process(self.syphon.pid).children(recursive=True)
            for process in children:
                with contextlib.suppress(psutil.NoSuchProcess):  # helpers come and go
                    if pattern(process):
                        return process
            assert time.monotonic() < deadline, children
            time.sleep(0.1)

    def received(self, queue):
        with LeanConnection(self.primary.connection_string) as connection:
            receiver = connection.receiver(queue)
            got = []
            while some := receiver.receive_now(1000):
                receiver.complete(some)
                got += some
            return got

    def check(self, *, kills, per_kill):
        """0 lost; doubled at most what was in flight; a receipt for each; order kept."""
        receipts = {
            row["message_id"]
            for path in (self.folder / "ledger" / "messages").glob("*.parquet")
            for row in pq.read_table(path).to_pylist()
            if row["event"] == "forwarded"
        }
        for queue in ("plain", "unique"):
            got = self.received(queue)
            ids = Counter(str(one.message.properties.message_id) for one in got)
            assert len(ids) == self.sent[queue], f"{queue}: {self.sent[queue] - len(ids)} lost"
            doubled = sum(ids.values()) - len(ids)
            assert doubled <= kills * per_kill
            if queue == "unique":
                assert doubled == 0
            assert not ids.keys() - receipts
            for number in range(QUEUES):
                seen, order = set(), []
                for one in got:
                    properties = one.message.application_properties
                    if properties["q"] == number and properties["n"] not in seen:
                        seen.add(properties["n"])
                        order.append(properties["n"])
                assert order == sorted(order), f"{queue}: order of queue {number}"

    def close(self):
        for process in (self.syphon, self.primary.process, self.secondary.process):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
            if process is not None and process.stdout and not process.stdout.closed:
                process.stdout.close()
        self.errors.close()


@pytest.fixture
def crash(tmp_path):
    made = Crash(tmp_path)
    yield made
    made.close()


def is_worker(process):
    return "pyspark.daemon" in " ".join(process.cmdline()) and not process.children()


def test_kill_of_worker_secondary_and_primary_loses_nothing(crash):
    crash.fill()
    crash.start("--until-empty")
    crash.wait_for(500)
    crash.child(is_worker).kill()
    crash.wait_for(1500)
    crash.secondary.kill_and_restart()
    crash.wait_for(3000)
    crash.primary.kill_and_restart()
    assert crash.syphon.wait(300) == 0, crash.told()
    crash.check(kills=3, per_kill=3000)
    status = json.loads(crash.finish_output())
    assert status["state"] == "stopped"


def test_kill_of_driver_and_jvm_loses_nothing_and_a_signal_ends_cleanly(crash):
    crash.fill()
    crash.start()
    crash.wait_for(800)
    os.kill(crash.syphon.pid, signal.SIGKILL)
    crash.syphon.wait()
    crash.fill()  # so that there is load when the next one is killed
    crash.start()
    crash.wait_for(crash.forwarded() + 500)
    crash.child(lambda process: process.name() == "java").kill()
    assert crash.syphon.wait(60) != 0
    crash.fill()
    crash.start()
    crash.wait_for(crash.forwarded() + 500)
    crash.syphon.terminate()
    assert crash.syphon.wait(60) == 0
    assert json.loads(crash.finish_output())["state"] == "stopped"
    crash.start("--until-empty")
    assert crash.syphon.wait(300) == 0, crash.told()
    crash.finish_output()
    crash.check(kills=2, per_kill=3000)
    # No secret anywhere: output, checkpoint, ledger.
    assert KEY.encode() not in crash.output
    assert KEY not in crash.told()
    for root in ("checkpoint", "ledger"):
        for path in Path(crash.folder / root).rglob("*"):
            assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
