"""The embedded broker behind an address of the simulated network."""

from __future__ import annotations

import asyncio
from typing import Any

from pairbus.broker.faults.faults import Faults
from pairbus.broker.server.listener import FrontDoor
from pairbus.broker.server.server import Broker
from pairbus.broker.settings import BrokerSettings
from simulation.loop import SimulatedLoop
from simulation.network import Network
from simulation.ordered import OrderedSet


class SimulatedDoor(FrontDoor):
    """Accepts connections of the simulated network: plain AMQP and HTTP."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._is_open = False
        self._transports = OrderedSet()  # type: ignore[assignment]
        self._silent = OrderedSet()  # type: ignore[assignment]

    @property
    def _network(self) -> Network:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        return loop.network

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
    """A broker on the simulated loop; `start` and `stop` are called there."""

    def __init__(self, settings: BrokerSettings) -> None:
        super().__init__(settings, Faults())
        self.connections = OrderedSet()  # type: ignore[assignment]

    def _make_door(self, **options: Any) -> FrontDoor:
        return SimulatedDoor(tls=None, **options)
