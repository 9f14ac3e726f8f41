"""Faults that a seed draws and that strike one side of a pair, or its syphons, for a while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps

from pairbus.broker.entities.errors import BrokerError
from pairbus.broker.entities.model_properties import EntityStatus
from pairbus.broker.namespace.administration import Administration
from pairbus.broker.namespace.namespace import Namespace
from simulation.broker import SimulatedBroker, body_of
from simulation.destinations import Destination
from simulation.ledger import Ledger
from simulation.loop import SimulatedLoop
from simulation.network import Conditions, Network
from simulation.spark import MicroBatchDriver

LOCK = 60.0  # seconds, of the backlog queues


@dataclass
class Side:
    """One namespace of a pair: its broker and its address, and the syphons beside it."""

    name: str
    broker: SimulatedBroker
    network: Network
    host: str
    port: int
    entities: tuple[Destination, ...]
    ledger: Ledger
    syphons: list[MicroBatchDriver]
    rescued: list[str] = field(default_factory=list)
    """Messages that were in an entity when its owner deleted it."""

    @property
    def conditions(self) -> Conditions:
        """How the network treats its connections."""
        return self.network.conditions(self.host, self.port)

    def reset(self) -> None:
        """Break all connections."""
        self.network.reset(self.host, self.port)

    async def administer(self, action: Callable[[Namespace], object]) -> None:
        """Change the namespace, as soon as its broker can."""
        while True:
            try:
                if self.broker.is_running:
                    async with asyncio.timeout(10.0):  # one that is killed never answers
                        await self.broker.do(action)
                    return
            except (BrokerError, TimeoutError):
                pass  # its disk is full, for example
            await asyncio.sleep(0.5)


@dataclass(frozen=True)
class Planned:
    """A fault that will strike."""

    at: float
    side: str
    kind: str
    seconds: float


Strike = Callable[[Side, float, random.Random], Awaitable[bool]]
"""Makes a fault at a side, for so many seconds; whether it had an effect."""


def on_network(
    strike: Callable[[Side, float, random.Random], Awaitable[None]],
) -> Strike:
    """A fault of the network had an effect if it met a connection or an attempt at one."""

    @wraps(strike)
    async def counted(side: Side, seconds: float, chance: random.Random) -> bool:
        before = side.conditions.hits
        await strike(side, seconds, chance)
        return side.conditions.hits > before

    return counted


@on_network
async def reset(side: Side, seconds: float, chance: random.Random) -> None:
    """Connections break."""
    side.reset()


@on_network
async def cut(side: Side, seconds: float, chance: random.Random) -> None:
    """Connections break within a frame."""
    side.network.cut(side.host, side.port)


@on_network
async def half_open(side: Side, seconds: float, chance: random.Random) -> None:
    """The server's ends of all connections vanish without a word."""
    side.network.drop(side.host, side.port)


@on_network
async def refuse(side: Side, seconds: float, chance: random.Random) -> None:
    """Connections break, and new ones are refused."""
    side.conditions.refuse = True
    side.reset()
    await asyncio.sleep(seconds)
    side.conditions.refuse = False


@on_network
async def hang(side: Side, seconds: float, chance: random.Random) -> None:
    """Connections break, and new ones are neither made nor refused."""
    side.conditions.hang = True
    side.reset()
    await asyncio.sleep(seconds)
    side.conditions.hang = False


@on_network
async def silent_in(side: Side, seconds: float, chance: random.Random) -> None:
    """Nothing reaches the namespace."""
    side.conditions.silent_in = True
    await asyncio.sleep(seconds)
    side.conditions.silent_in = False
    side.network.changed()


@on_network
async def silent_out(side: Side, seconds: float, chance: random.Random) -> None:
    """Nothing comes back from the namespace."""
    side.conditions.silent_out = True
    await asyncio.sleep(seconds)
    side.conditions.silent_out = False
    side.network.changed()


@on_network
async def slow(side: Side, seconds: float, chance: random.Random) -> None:
    """Data takes seconds, in small segments."""
    side.conditions.latency, side.conditions.segment = (0.2, 2.0), 400
    await asyncio.sleep(seconds)
    usual = Conditions()  # two of these may overlap
    side.conditions.latency, side.conditions.segment = usual.latency, usual.segment


@on_network
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


async def kill(side: Side, seconds: float, chance: random.Random) -> bool:
    """The broker dies, mostly while it stores a message; its store loses unsynced data."""
    if chance.random() < 0.7:
        await side.broker.wait_for_message(5.0)
        for _ in range(chance.randint(0, 10)):
            await asyncio.sleep(0)
    if not side.broker.is_running:
        return False
    await side.broker.crash()
    await asyncio.sleep(seconds)
    await side.broker.start(side.port)
    return True


async def throttle(side: Side, seconds: float, chance: random.Random) -> bool:
    """Sends are answered with server busy."""
    with side.broker.faults.throttle() as fault:
        await asyncio.sleep(seconds)
    return fault.hits > 0


async def deaf(side: Side, seconds: float, chance: random.Random) -> bool:
    """Messages are taken and never confirmed."""
    with side.broker.faults.hang(take=True) as fault:
        await asyncio.sleep(seconds)
    return fault.hits > 0


@on_network
async def names(side: Side, seconds: float, chance: random.Random) -> None:
    """Names are not resolved: open connections go on, new ones hang."""
    side.conditions.hang = True
    await asyncio.sleep(seconds)
    side.conditions.hang = False


async def full_disk(side: Side, seconds: float, chance: random.Random) -> bool:
    """The broker's disk is full."""
    refused = 0
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        if (store := side.broker.store) is not None:  # after a restart it is another one
            store.is_full, before = True, store.refused
            await asyncio.sleep(0.5)
            refused += store.refused - before
        else:
            await asyncio.sleep(0.5)
    if side.broker.store is not None:
        side.broker.store.is_full = False
    return refused > 0


async def full_entity(side: Side, seconds: float, chance: random.Random) -> bool:
    """One queue has reached its quota."""
    entity = chance.choice(side.entities)
    with side.broker.faults.reject("amqp:resource-limit-exceeded", entity.name) as fault:
        await asyncio.sleep(seconds)
    return fault.hits > 0


async def disabled(side: Side, seconds: float, chance: random.Random) -> bool:
    """One entity is disabled for a while."""
    entity, changed = chance.choice(side.entities), [0]

    def change(namespace: Namespace, status: EntityStatus) -> None:
        if entity.exists(namespace.admin):
            entity.change_status(namespace.admin, status)
            changed[0] += 1

    await side.administer(lambda namespace: change(namespace, EntityStatus.DISABLED))
    await asyncio.sleep(seconds)
    await side.administer(lambda namespace: change(namespace, EntityStatus.ACTIVE))
    return changed[0] > 0


async def recreated(side: Side, seconds: float, chance: random.Random) -> bool:
    """One entity is deleted, and made again later. A backlog queue is deleted only when empty."""
    entity = chance.choice(side.entities)
    again: list[Callable[[Administration], object]] = []
    rescued: list[str] = []

    def delete(namespace: Namespace) -> None:  # once more if it could not be stored
        again.clear()
        if not entity.exists(namespace.admin):
            return
        namespace.committer.flush()
        # The scheduled messages of a topic are in the topic itself.
        paths = {entity.receiving_path, entity.name}
        held = [one for path in sorted(paths) for one in namespace.peek(path, 0, 10_000)]
        if not held or side.name == "primary":
            rescued[:] = [body_of(one.message.bare or b"") for one in held]
            again.append(entity.delete(namespace.admin))

    def create(namespace: Namespace) -> None:
        if not entity.exists(namespace.admin):
            again[0](namespace.admin)

    if not side.broker.is_running:
        return False
    await side.administer(delete)
    side.rescued += rescued
    await asyncio.sleep(seconds)
    if not again:
        return False
    await side.administer(create)
    return True


async def clock_jump(side: Side, seconds: float, chance: random.Random) -> bool:
    """All clocks jump: locks and tokens expire, or last longer."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    loop.wall_offset += chance.choice([-30.0, 30.0, 90.0, 4000.0])
    await asyncio.sleep(0)
    return True


async def ledger_down(side: Side, seconds: float, chance: random.Random) -> bool:
    """The ledger's disk is full: no receipt can be written."""
    before = side.ledger.files.refused
    side.ledger.files.is_full = True
    await asyncio.sleep(seconds)
    side.ledger.files.is_full = False
    return side.ledger.files.refused > before


async def pause(side: Side, seconds: float, chance: random.Random) -> bool:
    """The operator pauses a syphon, and resumes it."""
    syphon = chance.choice(side.syphons)
    syphon.pause(True)
    await asyncio.sleep(seconds)
    syphon.pause(False)
    return True


async def restart(side: Side, seconds: float, chance: random.Random) -> bool:
    """A syphon is stopped and started again."""
    return await chance.choice(side.syphons).restart()


async def freeze(side: Side, seconds: float, chance: random.Random) -> bool:
    """A process of a syphon stands still until its locks have expired, and continues."""
    return await chance.choice(side.syphons).freeze(LOCK + seconds)


_NETWORK = (reset, cut, half_open, refuse, hang, silent_in, silent_out, slow, flapping, names)
_BROKER = (kill, throttle, deaf, full_disk, full_entity, disabled, recreated)
_SYPHON = (clock_jump, ledger_down, pause, restart, freeze)
KINDS: dict[str, Strike] = {strike.__name__: strike for strike in (*_NETWORK, *_BROKER, *_SYPHON)}
OUTAGES = frozenset({one.__name__ for one in _NETWORK} | {"kill", "deaf", "full_disk"})
"""The kinds that may end in a failover when they strike the primary."""


def draw_plan(chance: random.Random, count: int, until: float) -> list[Planned]:
    """A random subset of the kinds, `count` strikes on either side, in the order of time.

    Most plans have an outage of the primary that is long enough for a failover.
    """
    kinds = chance.sample(sorted(KINDS), chance.randint(4, len(KINDS)))
    plan = [
        Planned(
            at=chance.uniform(1.0, until),
            side=chance.choice(["primary", "primary", "secondary"]),
            kind=chance.choice(kinds),
            seconds=chance.choice([chance.uniform(0.5, 5.0), chance.uniform(5.0, 40.0)]),
        )
        for _ in range(count)
    ]
    if chance.random() < 0.8:
        kind = chance.choice(["refuse", "hang", "kill", "silent_in", "silent_out", "deaf"])
        outage = Planned(chance.uniform(1.0, 30.0), "primary", kind, chance.uniform(25.0, 45.0))
        plan.append(outage)
        if chance.random() < 0.3:  # a blip of the secondary while the pair is failed over
            kind = chance.choice(["reset", "cut", "half_open", "refuse", "kill"])
            at = outage.at + chance.uniform(12.0, outage.seconds)
            plan.append(Planned(at, "secondary", kind, chance.uniform(0.5, 4.0)))
        if chance.random() < 0.5:  # the primary is back, and the syphon drains the backlog
            kind = chance.choice(["throttle", "full_entity", "disabled", "reset", "deaf", "kill"])
            at = outage.at + outage.seconds + chance.uniform(0.0, 3.0)
            plan.append(Planned(at, "primary", kind, chance.uniform(1.0, 8.0)))
    if chance.random() < 0.3:  # both namespaces are down
        first = chance.choice(plan)
        other = "secondary" if first.side == "primary" else "primary"
        kind = chance.choice(["refuse", "hang", "kill"])
        plan.append(Planned(first.at + chance.uniform(0.0, 2.0), other, kind, first.seconds))
    return sorted(plan, key=lambda planned: planned.at)
