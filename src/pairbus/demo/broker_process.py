"""A broker in its own process, which can be killed and started again."""

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

START_TIMEOUT = 60.0


@dataclass(frozen=True, kw_only=True)
class BrokerReady:
    """The line that `pairbus broker run --json` prints when the broker accepts connections."""

    namespace: str
    connection_string: str
    host: str
    port: int
    control: str | None
    certificate: str
    pid: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"ready": True, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "BrokerReady":
        """Read the JSON form."""
        return cls(**{field.name: data[field.name] for field in fields(cls)})


class BrokerProcess:
    """One namespace: `pairbus broker run`, with its data in a folder.

    Args:
        namespace: its name.
        folder: the folder for its data and its log.
        entities: a file of entities to create, in the format of the official emulator.
    """

    def __init__(self, namespace: str, folder: Path, entities: Path | None = None) -> None:
        self.namespace = namespace
        self._folder = folder
        self._entities = entities
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self.connection_string = ""

    @property
    def pid(self) -> int:
        """The process's number; 0 if it does not run."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Start it, on the same port as before, and wait until it is ready."""
        command = [
            sys.executable, "-m", "pairbus", "broker", "run", "--namespace", self.namespace,
            "--port", str(self._port), "--data", str(self._folder / "data"), "--json",
        ]  # fmt: skip
        if self._entities and not self._port:
            command += ["--entities", str(self._entities)]
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "broker.log").open("a") as log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C is for the demo, which ends the brokers itself
            )
        atexit.register(self.kill)  # the broker must not outlive the demo
        ready = self._first_line()
        self.connection_string = ready.connection_string
        self._port = ready.port

    def _first_line(self) -> BrokerReady:
        assert self._process is not None
        assert self._process.stdout is not None
        # If the broker hangs, the kill ends the readline, so that the demo does not hang.
        watchdog = threading.Timer(START_TIMEOUT, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            log = (self._folder / "broker.log").read_text().strip().splitlines()
            why = log[-1] if log else "it gave no reason"
            raise RuntimeError(f"the broker {self.namespace} did not start: {why}")
        return BrokerReady.from_json(json.loads(line))

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def stop(self) -> None:
        """Stop the process with SIGTERM, and wait until it has ended."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._reap()

    def _reap(self) -> None:
        atexit.unregister(self.kill)
        if self._process is not None:
            self._process.communicate()
            self._process = None
