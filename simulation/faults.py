"""Faults that a seed draws and that strike one side of a pair for a while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from simulation.broker import SimulatedBroker
from simulation.network import Conditions, Network


@dataclass
class Side:
    """One namespace of a pair: its broker and its address."""

    name: str
    broker: SimulatedBroker
    network: Network
    host: str
    port: int

    @property
    def conditions(self) -> Conditions:
        """How the network treats its connections."""
        return self.network.conditions(self.host, self.port)

    def reset(self) -> None:
        """Break all connections."""
        self.network.reset(self.host, self.port)


@dataclass(frozen=True)
class Planned:
    """A fault that will strike."""

    at: float
    side: str
    kind: str
    seconds: float


Strike = Callable[[Side, float, random.Random], Awaitable[None]]


async def reset(side: Side, seconds: float, chance: random.Random) -> None:
    """Connections break."""
    side.reset()


async def cut(side: Side, seconds: float, chance: random.Random) -> None:
    """Connections break within a frame."""
    side.network.cut(side.host, side.port)


async def half_open(side: Side, seconds: float, chance: random.Random) -> None:
    """The server's ends of all connections vanish without a word."""
    side.network.drop(side.host, side.port)


async def refuse(side: Side, seconds: float, chance: random.Random) -> None:
    """Connections break, and new ones are refused."""
    side.conditions.refuse = True
    side.reset()
    await asyncio.sleep(seconds)
    side.conditions.refuse = False


async def hang(side: Side, seconds: float, chance: random.Random) -> None:
    """Connections break, and new ones are neither made nor refused."""
    side.conditions.hang = True
    side.reset()
    await asyncio.sleep(seconds)
    side.conditions.hang = False


async def silent_in(side: Side, seconds: float, chance: random.Random) -> None:
    """Nothing reaches the namespace."""
    side.conditions.silent_in = True
    await asyncio.sleep(seconds)
    side.conditions.silent_in = False
    side.network.changed()


async def silent_out(side: Side, seconds: float, chance: random.Random) -> None:
    """Nothing comes back from the namespace."""
    side.conditions.silent_out = True
    await asyncio.sleep(seconds)
    side.conditions.silent_out = False
    side.network.changed()


async def slow(side: Side, seconds: float, chance: random.Random) -> None:
    """Data takes seconds, in small segments."""
    side.conditions.latency, side.conditions.segment = (0.2, 2.0), 400
    await asyncio.sleep(seconds)
    usual = Conditions()  # two of these may overlap
    side.conditions.latency, side.conditions.segment = usual.latency, usual.segment


async def flapping(side: Side, seconds: float, chance: random.Random) -> None:
    """The namespace comes and goes."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        side.conditions.refuse = True
        side.reset()
        await asyncio.sleep(chance.uniform(0.1, 3.0))
        side.conditions.refuse = False
        await asyncio.sleep(chance.uniform(0.1, 3.0))


async def kill(side: Side, seconds: float, chance: random.Random) -> None:
    """The broker dies and is started again."""
    await side.broker.stop(abrupt=True)
    await asyncio.sleep(seconds)
    await side.broker.start(side.port)


async def throttle(side: Side, seconds: float, chance: random.Random) -> None:
    """Sends are answered with server busy."""
    with side.broker.faults.throttle():
        await asyncio.sleep(seconds)


async def deaf(side: Side, seconds: float, chance: random.Random) -> None:
    """Messages are taken and never confirmed."""
    with side.broker.faults.hang(take=True):
        await asyncio.sleep(seconds)


KINDS: dict[str, Strike] = {
    strike.__name__: strike
    for strike in (
        reset, cut, half_open, refuse, hang, silent_in, silent_out, slow, flapping, kill, throttle,
        deaf,
    )
}  # fmt: skip


def draw_plan(chance: random.Random, count: int, until: float) -> list[Planned]:
    """A random subset of the kinds, `count` strikes on either side, in the order of time."""
    kinds = chance.sample(sorted(KINDS), chance.randint(3, len(KINDS)))
    plan = [
        Planned(
            at=chance.uniform(1.0, until),
            side=chance.choice(["primary", "primary", "secondary"]),
            kind=chance.choice(kinds),
            seconds=chance.choice([chance.uniform(0.5, 5.0), chance.uniform(5.0, 40.0)]),
        )
        for _ in range(count)
    ]
    return sorted(plan, key=lambda planned: planned.at)
