"""A standalone cluster of a master and two workers on loopback: drain under load, with kills."""

import datetime as dt
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from pairbus import broker
from pairbus.client import BulkConnection
from tests.spark.cluster import Cluster, kill_tree
from tests.syphon.conftest import PREFIX, Pair, backlog_message, order_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(900),
]
EACH = 4000
BATCH = 100


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.close()


class Load:
    """Fills both backlog queues batch by batch, while the syphon drains them."""

    def __init__(self, pair):
        self._pair = pair
        self._thread = threading.Thread(target=self._run)
        self._stop = threading.Event()
        self.error = None
        self._thread.start()

    def _run(self):
        try:
            for first in range(0, EACH, BATCH):
                for queue in range(2):
                    numbers = range(first, first + BATCH)
                    messages = [backlog_message("orders", n, more={"q": queue}) for n in numbers]
                    self._pair.fill(messages, index=queue)
                if self._stop.wait(0.5):
                    return
        except Exception as exc:
            self.error = exc

    def finish(self):
        self._thread.join(300)
        assert self.error is None

    def close(self):
        self._stop.set()
        self._thread.join()


class Driver:
    """`pairbus syphon run` on the cluster."""

    def __init__(self, cluster, pair, folder, *arguments):
        self.progress = folder / "checkpoint" / "progress.json"
        self.errors = folder / "errors"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pairbus", "syphon", "run", "--master", cluster.url,
                 "--primary-namespace", "contoso", "--queues", "2", "--json",
                 "--checkpoint", str(folder / "checkpoint"), "--ledger", str(folder / "ledger"),
                 "--max-messages-per-second", "600", *arguments],
                stdout=subprocess.PIPE, stderr=errors,
                env={**os.environ, "PAIRBUS_PRIMARY": pair.primary.connection_string,
                     "PAIRBUS_SECONDARY": pair.secondary.connection_string},
            )  # fmt: skip

    def forwarded(self):
        return json.loads(self.progress.read_text())["forwarded"] if self.progress.exists() else 0

    def wait_for(self, count):
        """Wait until so many more messages were forwarded."""
        wanted, deadline = self.forwarded() + count, time.monotonic() + 300
        while self.forwarded() < wanted:
            assert self.process.poll() is None, self.errors.read_text()
            assert time.monotonic() < deadline, self.errors.read_text()
            time.sleep(0.1)

    def kill(self):
        kill_tree(self.process)
        self.process.stdout.close()

    def result(self):
        try:
            assert self.process.wait(300) == 0, self.errors.read_text()
            return json.loads(self.process.stdout.read())
        finally:
            self.kill()


def test_a_cluster_drains_under_load_when_workers_come_and_go(cluster, tmp_path):
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        primary.create_queue("orders")
        for number in range(2):
            secondary.create_queue(
                f"{PREFIX}/{number}",
                lock_duration=dt.timedelta(seconds=30),
                max_delivery_count=2147483647,
            )
        pair = Pair(primary, secondary, 2, tmp_path)
        load = Load(pair)
        driver = Driver(cluster, pair, tmp_path)
        try:
            driver.wait_for(500)
            kill_tree(cluster.workers[0])
            driver.wait_for(500)
            cluster.add_workers()
            kill_tree(cluster.workers[1])  # only the new worker is left
            driver.wait_for(500)
            driver.kill()
            load.finish()
            driver = Driver(cluster, pair, tmp_path, "--until-empty")
            status = driver.result()
        finally:
            driver.kill()
            load.close()
        assert status["state"] == "stopped"
        with BulkConnection(primary.connection_string) as connection:
            receiver = connection.receiver("orders")
            got = []
            while some := receiver.receive_now(1000):
                got += some
        assert len({str(one.message.properties.message_id) for one in got}) == 2 * EACH
        for number in range(2):
            assert order_of(got, number) == list(range(EACH)), f"order of queue {number}"
        pair.close()
