"""The embedded broker behind an address of the simulated network."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pairbus.broker.entities.counters import OperationCounter
from pairbus.broker.entities.messages import IncomingMessage
from pairbus.broker.faults.faults import Faults
from pairbus.broker.server.listener import Listener
from pairbus.broker.server.server import Broker
from pairbus.broker.settings import BrokerSettings
from simulation.loop import SimulatedLoop
from simulation.network import Network
from simulation.ordered import OrderedSet
from simulation.store import SimulatedStore, StoreRuntime

DATA_SECTION = b"\x00\x53\x75\xa0"  # up to 255 bytes of data


def _loop() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


class SimulatedListener(Listener):
    """Accepts connections of the simulated network: plain AMQP and HTTP."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._is_open = False

    @property
    def _network(self) -> Network:
        return _loop().network

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """Take the address, and begin to accept."""
        self.address = self._network.listen(host, port, self._choose)
        self._is_open = True
        return self.address

    def shut(self) -> None:
        """Refuse from now on."""
        if self._is_open:
            self._is_open = False
            self._network.shut(*self.address)

    @property
    def is_open(self) -> bool:
        """Whether connections are accepted."""
        return self._is_open


class SimulatedBroker(Broker):
    """A broker on the simulated loop; `start`, `stop` and `crash` are called there."""

    _store: SimulatedStore | None

    def __init__(self, settings: BrokerSettings) -> None:
        super().__init__(settings, Faults())
        self.connections = OrderedSet()  # type: ignore[assignment]
        self._arrival = asyncio.Event()
        self.taken: list[tuple[float, str, str]] = []
        """What was sent: when, to which entity, with which body. For the judge of order."""
        self.ids: dict[str, str] = {}
        """The bodies by the ids of their messages."""
        self._counters: list[OperationCounter] = []  # one for each life

    def _make_listener(self, **options: Any) -> Listener:
        return SimulatedListener(tls=None, **options)

    def _make_store(self, directory: Path) -> SimulatedStore:
        loop, name = _loop(), f"store {self.settings.namespace}"
        chance = random.Random(f"{name} {loop.seed}")
        runtime = StoreRuntime(loop, name)
        return SimulatedStore(directory, self.settings.durability, runtime, chance)

    def _open_namespace(self) -> None:
        super()._open_namespace()
        namespace, loop = self.namespace, _loop()
        self._counters.append(namespace.operations)
        send, schedule = type(namespace).send, type(namespace).schedule

        def note(path: str, messages: Sequence[IncomingMessage]) -> None:
            self._arrival.set()
            self._arrival = asyncio.Event()

            def keep(error: Exception | None) -> None:
                if error is None and self.is_running:
                    now = loop.time()
                    for one in messages:
                        self.taken.append((now, path.lower(), body := body_of(one.bare)))
                        self.ids[one.message_id or ""] = body

            namespace.committer.after_commit(keep)

        def record(path: str, messages: Sequence[IncomingMessage]) -> None:
            send(namespace, path, messages)
            note(path, messages)

        def record_scheduled(path: str, messages: Sequence[IncomingMessage]) -> list[int]:
            numbers = schedule(namespace, path, messages)
            note(path, messages)
            return numbers

        namespace.send = record  # type: ignore[method-assign]
        namespace.schedule = record_scheduled  # type: ignore[method-assign]

    def billed(self, *kinds: str) -> int:
        """How many operations of these kinds the broker has counted, in all its lives."""
        rows = [row for one in self._counters for row in one.snapshot().items()]
        return sum(counts.billable for (_, kind), counts in rows if kind in kinds)

    @property
    def store(self) -> SimulatedStore | None:
        """The store, if it has one and runs."""
        return self._store

    async def wait_for_message(self, seconds: float) -> None:
        """Wait until a message arrives, and is not yet stored, or for so many seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._arrival.wait(), seconds)

    async def crash(self) -> None:
        """Die immediately; data that the store had not synced may be gone."""
        if self._store is not None:
            self._store.crash()
        await self.stop(abrupt=True)


def body_of(bare: bytes) -> str:
    """The body of a message with one short data section; empty for a ping."""
    place = bare.rfind(DATA_SECTION)
    return bare[place + len(DATA_SECTION) + 1 :].decode() if place >= 0 else ""
