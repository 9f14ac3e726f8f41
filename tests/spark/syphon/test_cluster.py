"""A standalone cluster of a master and two workers on loopback, from the pip package."""

import datetime as dt
import json
import os
import re
import subprocess
import sys
import time

import psutil
import pytest

from pairbus import broker
from pairbus.client import BulkConnection
from tests.syphon.conftest import PREFIX, Pair, backlog_message, order_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(900),
]
EACH = 2000


def wait_for_line(path, pattern, process, timeout=90):
    """Wait until a daemon's log says it."""
    deadline = time.monotonic() + timeout
    while True:
        found = re.search(pattern, path.read_text())
        if found:
            return found
        assert process.poll() is None, path.read_text()
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.2)


class Cluster:
    def __init__(self, folder):
        import pyspark

        from pairbus.spark.session import prepare_environment

        prepare_environment()
        self.folder = folder
        self.home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
        conf = folder / "conf"
        conf.mkdir()
        # The daemons' log is how we know that they are up; the quiet configuration would hide it.
        (conf / "log4j2.properties").write_text(
            "rootLogger.level = info\nrootLogger.appenderRef.stdout.ref = console\n"
            "appender.console.type = Console\nappender.console.name = console\n"
            "appender.console.target = SYSTEM_ERR\nappender.console.layout.type = PatternLayout\n"
            "appender.console.layout.pattern = %m%n\n"
        )
        self.processes = []
        self.master, log = self.daemon("master.Master", "--port", "0", "--webui-port", "0")
        self.url = wait_for_line(log, r"Starting Spark master at (spark://\S+)", self.master)[1]
        started = [
            self.daemon(
                "worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0",
                "--work-dir", str(folder / f"w{number}"), self.url,
            )
            for number in range(2)
        ]  # fmt: skip
        for worker, log in started:
            wait_for_line(log, "Successfully registered with master", worker)
        self.workers = [worker for worker, _ in started]

    def daemon(self, name, *arguments):
        log = self.folder / f"{name}-{len(self.processes)}.log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [f"{self.home}/bin/spark-class", f"org.apache.spark.deploy.{name}",
                 "--host", "127.0.0.1", *arguments],
                stderr=errors, stdout=subprocess.DEVNULL,
                env={**os.environ, "SPARK_HOME": self.home, "SPARK_LOCAL_IP": "127.0.0.1",
                     "SPARK_CONF_DIR": str(self.folder / "conf"),
                     "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", ""),
                     "PYSPARK_PYTHON": sys.executable},
            )  # fmt: skip
        self.processes.append(process)
        return process, log

    def close(self):
        for process in reversed(self.processes):
            kill_tree(process)


def kill_tree(process):
    if process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                pass
    process.wait()


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_a_cluster_drains_and_goes_on_when_a_worker_is_killed(cluster, tmp_path):
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        primary.create_queue("orders")
        for number in range(2):
            secondary.create_queue(
                f"{PREFIX}/{number}",
                lock_duration=dt.timedelta(seconds=30),
                max_delivery_count=2147483647,
            )
        pair = Pair(primary, secondary, 2, tmp_path)
        for number in range(2):
            messages = [backlog_message("orders", n, more={"q": number}) for n in range(EACH)]
            pair.fill(messages, index=number)
        with (tmp_path / "errors").open("wb") as errors:
            syphon = subprocess.Popen(
                [sys.executable, "-m", "pairbus", "syphon", "run", "--master", cluster.url,
                 "--primary-namespace", "contoso", "--queues", "2", "--until-empty", "--json",
                 "--checkpoint", str(tmp_path / "checkpoint"),
                 "--ledger", str(tmp_path / "ledger"), "--max-messages-per-second", "600"],
                stdout=subprocess.PIPE, stderr=errors,
                env={**os.environ, "PAIRBUS_PRIMARY": primary.connection_string,
                     "PAIRBUS_SECONDARY": secondary.connection_string},
            )  # fmt: skip
        try:
            deadline = time.monotonic() + 300
            progress = tmp_path / "checkpoint" / "progress.json"
            while not progress.exists() or json.loads(progress.read_text())["forwarded"] < 500:
                assert syphon.poll() is None, (tmp_path / "errors").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            kill_tree(cluster.workers[0])
            assert syphon.wait(300) == 0, (tmp_path / "errors").read_text()
            status = json.loads(syphon.stdout.read())
        finally:
            kill_tree(syphon)
            syphon.stdout.close()
        assert status["state"] == "stopped"
        with BulkConnection(primary.connection_string) as connection:
            receiver = connection.receiver("orders")
            got = []
            while some := receiver.receive_now(1000):
                got += some
        ids = [str(one.message.properties.message_id) for one in got]
        assert len(set(ids)) == 2 * EACH
        for number in range(2):
            assert order_of(got, number) == list(range(EACH)), f"order of queue {number}"
        pair.close()
