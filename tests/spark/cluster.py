"""A standalone Spark cluster on loopback, from the pip package, and a Python with little in it."""

import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path

import psutil
import py4j
import pyarrow
import pyspark

from pairbus.spark.session import prepare_environment

# The daemons' log is how we know that they are up; the quiet configuration would hide it.
LOG = """
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %m%n
"""


class Cluster:
    """A master, and workers of one core each."""

    def __init__(self, folder, workers=2, python=sys.executable):
        prepare_environment()
        self.folder, self.python = folder, str(python)
        self.home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
        (folder / "conf").mkdir()
        (folder / "conf" / "log4j2.properties").write_text(LOG)
        self.processes = []
        self.workers = []
        try:
            master, log = self._daemon("master.Master", "--port", "0", "--webui-port", "0")
            self.url = wait_for_line(log, r"Starting Spark master at (spark://\S+)", master)[1]
            self.add_workers(workers)
        except BaseException:
            self.close()
            raise

    def add_workers(self, count=1):
        """Start workers, and wait until the master knows them."""
        started = [
            self._daemon(
                "worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0",
                "--work-dir", str(self.folder / f"work{len(self.workers) + number}"), self.url,
            )
            for number in range(count)
        ]  # fmt: skip
        for worker, log in started:
            wait_for_line(log, "Successfully registered with master", worker)
            self.workers.append(worker)

    @property
    def environment(self):
        """Variables of a process that uses the cluster."""
        return {
            **os.environ, "SPARK_HOME": self.home, "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(self.folder / "conf"), "PYSPARK_PYTHON": self.python,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }  # fmt: skip

    def _daemon(self, name, *arguments):
        log = self.folder / f"{name}-{len(self.processes)}.log"
        options = os.environ.get("SPARK_SUBMIT_OPTS", "")
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [f"{self.home}/bin/spark-class", f"org.apache.spark.deploy.{name}",
                 "--host", "127.0.0.1", *arguments],
                stderr=errors, stdout=subprocess.DEVNULL,
                env={**self.environment, "SPARK_DAEMON_JAVA_OPTS": options},
            )  # fmt: skip
        self.processes.append(process)
        return process, log

    def close(self):
        for process in reversed(self.processes):
            kill_tree(process)


def wait_for_line(path, pattern, process, timeout=90):
    """Wait until a daemon's log has the pattern."""
    deadline = time.monotonic() + timeout
    while True:
        found = re.search(pattern, path.read_text())
        if found:
            return found
        assert process.poll() is None, path.read_text()
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.2)


def kill_tree(process):
    """Kill a process and what it started with SIGKILL."""
    if process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                pass
    process.wait()


def bare_python(folder):
    """A Python with pyspark and pyarrow and nothing else: no pairbus, no azure-servicebus."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = Path(folder).glob("lib/python*/site-packages")
    for module in (pyspark, py4j, pyarrow):
        source = Path(module.__file__).parent
        (packages / source.name).symlink_to(source)
        for libraries in source.parent.glob(f"{source.name}.libs"):
            (packages / libraries.name).symlink_to(libraries)
    return Path(folder) / "bin" / "python"
