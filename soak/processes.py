"""Start and kill the processes of the soak; those of an interrupted soak are found and ended."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from soak.records import Journal, read_lines

READY = 120.0  # seconds for a process to become ready; the machine may be busy


class SoakError(Exception):
    """The soak itself cannot go on; one line says why."""


class Process:
    """One process and its log.

    Args:
        name: for messages, and the name of its log.
        folder: where logs go.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._pids = Journal(folder / "pids.jsonl")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """The exit code; None while it lives."""
        return self._process.poll() if self._process is not None else None

    def start(self, command: Sequence[str], **environment: str) -> None:
        """Start it."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
                start_new_session=True,
            )
        self._pids.add(pid=self.pid, created=psutil.Process(self.pid).create_time())

    def wait_for(self, pattern: str, *, after: int = 0) -> re.Match[str]:
        """Wait until its log matches, from position `after` on.

        Raises:
            SoakError: it ended, or the time is over.
        """
        deadline = time.monotonic() + READY
        while True:
            found = re.search(pattern, self.log.read_text(errors="replace")[after:])
            if found:
                return found
            if not self.is_running or time.monotonic() > deadline:
                raise SoakError(f"{self.name} is not ready: {self.last_line()}")
            time.sleep(0.1)

    def last_line(self) -> str:
        """The last line of its log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"

    def size_of_log(self) -> int:
        """Characters in the log so far."""
        return len(self.log.read_text(errors="replace")) if self.log.exists() else 0

    def terminate(self) -> None:
        """Ask it to end."""
        if self._process is not None and self.is_running:
            self._process.terminate()

    def wait(self, timeout: float) -> bool:
        """Wait until it has ended."""
        assert self._process is not None
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """kill -9, with everything that it started."""
        if self._process is not None:
            kill_tree(self._process.pid)
            self._process.wait()


def kill_tree(pid: int) -> None:
    """Kill a process and its descendants."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


def kill_leftovers(folder: Path) -> int:
    """Kill the processes of a soak that was itself killed; return how many there were."""
    killed = 0
    for path in folder.rglob("pids.jsonl"):
        for line in read_lines(path):
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(line["pid"])
                if abs(process.create_time() - line["created"]) < 1:  # not another one by now
                    kill_tree(process.pid)
                    killed += 1
        path.unlink()
    return killed


class Cluster:
    """A Spark standalone cluster: a master and two workers, from the pip package.

    Args:
        folder: where it works.
    """

    def __init__(self, folder: Path) -> None:
        import pyspark

        from pairbus.spark.session import prepare_environment

        prepare_environment()
        self._home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
        conf = folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        # The log of a daemon shows that it is up; the quiet configuration would hide that.
        (conf / "log4j2.properties").write_text(
            "rootLogger.level = info\nrootLogger.appenderRef.stdout.ref = console\n"
            "appender.console.type = Console\nappender.console.name = console\n"
            "appender.console.target = SYSTEM_ERR\nappender.console.layout.type = PatternLayout\n"
            "appender.console.layout.pattern = %m%n\n"
        )
        self._environment = {
            "SPARK_HOME": self._home,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(conf),
            "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", ""),
            "PYSPARK_PYTHON": sys.executable,
        }
        self._folder = folder
        self.master = Process("master", folder)
        self.workers = [Process(f"worker{number}", folder) for number in range(2)]
        self.url = ""

    def start(self) -> None:
        """Start master and workers, and wait until they know each other."""
        after = self.master.size_of_log()
        self._daemon(self.master, "master.Master", "--port", "0")
        self.url = self.master.wait_for(r"Starting Spark master at (spark://\S+)", after=after)[1]
        for worker in self.workers:
            self._daemon(
                worker, "worker.Worker", "--cores", "1", "--memory", "1g",
                "--work-dir", str(self._folder / worker.name), self.url,
            )  # fmt: skip
        for worker in self.workers:
            worker.wait_for("Successfully registered with master")

    def _daemon(self, process: Process, name: str, *arguments: str) -> None:
        process.start(
            [
                f"{self._home}/bin/spark-class", f"org.apache.spark.deploy.{name}",
                "--host", "127.0.0.1", "--webui-port", "0", *arguments,
            ],
            **self._environment,
        )  # fmt: skip

    def executors(self) -> list[psutil.Process]:
        """The Java processes in which tasks run."""
        return self._below("org.apache.spark.executor.CoarseGrainedExecutorBackend")

    def python_workers(self) -> list[psutil.Process]:
        """The Python processes in which tasks run: forks of a daemon, which is not among them."""
        daemons = self._below("pyspark.daemon")
        known = {daemon.pid for daemon in daemons}
        return [daemon for daemon in daemons if daemon.ppid() in known] or daemons

    def _below(self, word: str) -> list[psutil.Process]:
        """Descendants of the workers with this word on their command line."""
        found = []
        for worker in self.workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(worker.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if word in child.cmdline():
                            found.append(child)
        return found

    def close(self) -> None:
        """Kill everything."""
        for process in (*self.workers, self.master):
            process.kill()
