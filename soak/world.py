"""The processes of one soak and the proxies between them."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

from pairbus.administration import admin_client
from pairbus.broker.faults.proxy import FaultProxy
from pairbus.client import BulkConnection
from pairbus.client.errors import ClientError, RequestFailedError
from pairbus.names import backlog_paths, replace_endpoint
from soak.application import BACKLOG_QUEUES, ENTITIES, NAMES
from soak.processes import Cluster, Process, SoakError
from soak.records import State, read_lines

APPLICATIONS = (
    ("a-sync-plain", "sync", "plain", 1.0),
    ("b-aio-plain", "aio", "plain", 0.0),
    ("c-sync-tls", "sync", "tls", 0.0),
    ("d-aio-websocket", "aio", "websocket", 2.0),
)
"""Name, kind, transport and failover interval of each application."""
STARTED = 300.0  # seconds for the syphon to start
BACKLOG = tuple(backlog_paths("contoso", BACKLOG_QUEUES))


class Namespace:
    """One broker process, and the proxy through which everybody else reaches it.

    Args:
        role: `primary` or `secondary`.
        folder: where its data is.
        port: the port it always has.
    """

    def __init__(self, role: str, folder: Path, port: int) -> None:
        self.role = role
        self.folder = folder / role
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port = port
        self.process = Process(f"{role}-broker", folder)
        self.direct = ""
        self.certificate = ""
        self.proxy = FaultProxy(f"127.0.0.1:{port}")

    def start(self) -> None:
        """Start the broker and wait until it serves."""
        entities = self.folder / "entities.json"
        entities.write_text(json.dumps(_entities(self.role)))
        after = self.process.size_of_log()
        name = NAMES[self.role]
        self.process.start(
            [
                sys.executable, "-m", "soak.broker", name, str(self.folder),
                "--port", str(self._port), "--entities", str(entities),
            ]
        )  # fmt: skip
        found = self.process.wait_for(
            r'^\{"connection_string.*\}$|\n(\{"connection.*\})\n', after=after
        )
        ready = json.loads(found[0])
        self.direct, self.certificate = ready["connection_string"], ready["certificate"]

    @property
    def connection_string(self) -> str:
        """The connection string by way of the proxy."""
        return replace_endpoint(self.direct, self.proxy.address)

    def set_clock(self, offset: float) -> None:
        """Put the broker's clock wrong by so many seconds."""
        (self.folder / "clock").write_text(str(offset))


def _entities(role: str) -> dict[str, Any]:
    if role == "primary":
        detection = {
            "RequiresDuplicateDetection": True,
            "DuplicateDetectionHistoryTimeWindow": "P1D",
        }
        queues = [
            {"Name": name, "Properties": detection if name == ENTITIES[0] else {}}
            for name in ENTITIES
        ]
    else:
        properties = {"LockDuration": "PT30S", "MaxDeliveryCount": 2147483647}
        queues = [{"Name": path, "Properties": properties} for path in BACKLOG]
    return {"UserConfig": {"Namespaces": [{"Name": NAMES[role], "Queues": queues, "Topics": []}]}}


class World:
    """Brokers, cluster, syphon and applications.

    Args:
        folder: where everything is.
        state: ports, and how often the soak was started.
        pause: seconds between the sends of an application.
    """

    def __init__(self, folder: Path, state: State, *, pause: float) -> None:
        self._folder = folder
        self._state = state
        self._pause = pause
        self._stack = contextlib.ExitStack()
        for side in ("primary_port", "secondary_port"):
            if not getattr(state, side):
                setattr(state, side, _free_port())
        self.primary = Namespace("primary", folder, state.primary_port)
        self.secondary = Namespace("secondary", folder, state.secondary_port)
        self.cluster = Cluster(folder / "spark")
        self.syphon = Process("syphon", folder)
        self.applications = {name: Process(name, folder) for name, *_ in APPLICATIONS}
        self._lives = dict.fromkeys(self.applications, 1000 * state.runs)

    def start(self) -> None:
        """Start everything."""
        for namespace in (self.primary, self.secondary):
            self._stack.callback(namespace.process.kill)
            namespace.set_clock(0.0)
            namespace.start()
            self._stack.enter_context(namespace.proxy)
        self._stack.callback(self.cluster.close)
        self.cluster.start()
        self._stack.callback(self.syphon.kill)
        self.start_syphon()
        for name, process in self.applications.items():
            self._stack.callback(process.kill)
            self.start_application(name)
        self._wait_for_syphon()

    def _wait_for_syphon(self) -> None:
        """Wait until executors run: before that, there is nothing to hit."""
        deadline = time.monotonic() + STARTED
        while not (
            self.cluster.executors() and (self._folder / "checkpoint/progress.json").exists()
        ):
            if not self.syphon.is_running or time.monotonic() > deadline:
                raise SoakError(f"the syphon did not start: see {self.syphon.log}")
            time.sleep(0.5)

    def close(self) -> None:
        """Kill everything."""
        self._stack.close()

    def start_syphon(self) -> None:
        """Start the syphon's driver."""
        self.syphon.start(
            [
                sys.executable, "-m", "pairbus", "syphon", "run", "--master", self.cluster.url,
                "--primary-namespace", "contoso", "--queues", str(BACKLOG_QUEUES),
                "--checkpoint", str(self._folder / "checkpoint"),
                "--ledger", str(self._folder / "ledger"),
            ],
            PAIRBUS_PRIMARY=self.primary.connection_string,
            PAIRBUS_SECONDARY=self.secondary.connection_string,
        )  # fmt: skip

    def start_application(self, name: str) -> None:
        """Start an application, in a new life."""
        kind, transport, interval = next(rest for own, *rest in APPLICATIONS if own == name)
        self._lives[name] += 1
        self.applications[name].start(
            [
                sys.executable, "-m", "soak.application", name, str(kind), str(transport),
                "--life", str(self._lives[name]),
                "--primary-certificate", self.primary.certificate,
                "--secondary-certificate", self.secondary.certificate,
                "--ledger", str(self._folder / "ledger"),
                "--history", str(self._folder / f"{name}.calls"),
                "--failover-interval", str(interval),
                "--pause", str(self._pause),
            ],
            PAIRBUS_PRIMARY=self.primary.connection_string,
            PAIRBUS_SECONDARY=self.secondary.connection_string,
        )  # fmt: skip

    def ended_by_themselves(self) -> list[str]:
        """Return the processes that ended although nobody killed them, and start them again."""
        found = []
        found += self._restart_syphon()
        for name, process in self.applications.items():
            if not process.is_running:
                found.append(f"{name} ended by itself with code {process.code}")
                self.start_application(name)
        for namespace in (self.primary, self.secondary):
            if not namespace.process.is_running:
                found.append(f"{namespace.role} broker ended with code {namespace.process.code}")
                namespace.start()
        return found

    def _restart_syphon(self) -> list[str]:
        """Start a syphon that has ended, as a supervisor would; return what must not be."""
        if self.syphon.is_running:
            return []
        code, last = self.syphon.code, self.syphon.last_line()
        self.start_syphon()
        # By design it ends with code 3 if the secondary cannot be reached while it starts.
        is_refused = code == 3 and "secondary" in last
        return [] if is_refused else [f"syphon ended by itself with code {code}: {last}"]

    def forwarded(self) -> int:
        """Return how many messages the syphon has forwarded."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            progress = json.loads((self._folder / "checkpoint" / "progress.json").read_text())
            return int(progress["forwarded"])
        return 0

    # -- the end

    def heal(self, timeout: float) -> list[str]:
        """Wait until applications send to the primary and the backlog is empty.

        Returns:
            What did not heal.
        """
        problems = self.ended_by_themselves()
        deadline = time.monotonic() + timeout
        for process in self.applications.values():
            process.terminate()
        for name, process in self.applications.items():
            if not process.wait(max(1.0, deadline - time.monotonic())):
                problems.append(f"{name}: sends do not go to the primary again")
            elif process.code:
                problems.append(f"{name} ended with code {process.code} while it healed")
        while left := self.in_backlog():
            if time.monotonic() > deadline:
                problems.append(f"the backlog is not empty: {left} messages")
                break
            problems += self._restart_syphon()
            time.sleep(1.0)
        return problems

    def in_backlog(self) -> int:
        """Return how many messages are in the backlog queues, locked ones included."""
        return self._count("active_message_count")

    def dead_letters(self) -> int:
        """Return how many messages of the backlog were dead-lettered."""
        return self._count("dead_letter_message_count")

    def _count(self, name: str) -> int:
        with admin_client(self.secondary.direct) as admin:
            found = [admin.get_queue_runtime_properties(path) for path in BACKLOG]
        return sum(getattr(one, name) or 0 for one in found)

    def collect(self) -> dict[str, list[str]]:
        """Peek at everything that is in the primary's queues; message ids by entity."""
        found: dict[str, list[str]] = {}
        try:
            with BulkConnection(self.primary.direct) as connection:
                for entity in ENTITIES:
                    ids = found[entity] = []
                    management, first = connection.management(entity), 0
                    while page := _peek(management, first):
                        ids += [_id(one) for one in page]
                        first = page[-1].sequence_number + 1
        except ClientError as exc:
            raise SoakError(f"the primary could not be read: {exc}") from exc
        return found

    def failovers(self) -> int:
        """Return how often an application failed over."""
        return sum(
            line.get("event") == "FailedOver"
            for name in self.applications
            for line in read_lines(self._folder / f"{name}.calls")
        )


def _peek(management: Any, first: int) -> list[Any]:
    """Peek at a page; while the namespace throttles, wait."""
    while True:
        try:
            page: list[Any] = management.peek(first, 250)
        except RequestFailedError as exc:
            if str(exc.condition) != "com.microsoft:server-busy":
                raise
            time.sleep(0.5)
        else:
            return page


def _id(received: Any) -> str:
    value = received.message.properties.message_id
    return value.decode() if isinstance(value, bytes) else str(value)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
