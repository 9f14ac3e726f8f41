"""The faults of the soak: what each does to the processes, and the plan that a seed draws.

A fault returns what it hit, or None if there was nothing to hit, which does not count.
"""

from __future__ import annotations

import contextlib
import random
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import psutil

from soak.world import Namespace, World

NETWORK = ("refuse", "reset", "stall", "deaf", "slow", "cut")
Fault: TypeAlias = Callable[[World, random.Random], str | None]
PAGE = 4096  # bytes
WAIT = 30.0  # seconds for something to hit
DRAIN = 180.0  # seconds for a drain to begin; Spark is slow to start on a busy machine


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault: its kind, and the seed of what it draws."""

    number: int
    kind: str
    seed: str


def draw_plan(seed: int, count: int) -> list[Planned]:
    """Return `count` faults; every kind comes equally often, in an order that the seed draws."""
    chance = random.Random(f"soak {seed}")
    kinds: list[str] = []
    while len(kinds) < count:
        block = list(KINDS)
        chance.shuffle(block)
        kinds += block
    return [Planned(n, kind, f"soak {seed} {n}") for n, kind in enumerate(kinds[:count])]


def strike(world: World, planned: Planned) -> str | None:
    """Make one fault, and heal it; return what it hit."""
    return KINDS[planned.kind](world, random.Random(planned.seed))


# -- processes


def _kill_broker(namespace: Namespace, chance: random.Random, longest: float) -> str:
    down = chance.uniform(0.0, longest)
    namespace.process.kill()
    time.sleep(down)
    namespace.start()
    return f"down for {down:.1f} s"


def _kill_driver(world: World, chance: random.Random) -> str | None:
    _make_backlog(world, chance)
    forwarded = world.forwarded()
    world.syphon.kill()
    time.sleep(chance.uniform(0.0, 3.0))
    world.start_syphon()
    return f"after {forwarded} forwarded"


def _kill_executor(world: World, chance: random.Random) -> str | None:
    _make_backlog(world, chance)
    return _kill_one(world.cluster.executors, chance)


def _kill_python_worker(world: World, chance: random.Random) -> str | None:
    _make_backlog(world, chance)
    return _kill_one(world.cluster.python_workers, chance)


def _kill_one(find: Callable[[], Sequence[psutil.Process]], chance: random.Random) -> str | None:
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        found = sorted(find(), key=lambda process: process.pid)
        if found:
            with contextlib.suppress(psutil.NoSuchProcess):
                chosen = chance.choice(found)
                chosen.kill()
                return f"process {chosen.pid}"
        time.sleep(0.05)
    return None


def _kill_application(world: World, chance: random.Random) -> str:
    name = chance.choice(sorted(world.applications))
    world.applications[name].kill()
    time.sleep(chance.uniform(0.0, 2.0))
    world.start_application(name)
    return name


def _make_backlog(world: World, chance: random.Random) -> None:
    """Make a short outage of the primary, and wait until the syphon drains what it left."""
    world.primary.proxy.mode = "refuse"
    time.sleep(3.0 + chance.uniform(0.0, 2.0))
    before = world.forwarded()
    world.primary.proxy.mode = "pass"
    deadline = time.monotonic() + DRAIN
    while world.forwarded() <= before and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(chance.uniform(0.0, 1.0))


def _often_failed_over(strike_secondary: Fault) -> Fault:
    """Let a fault of the secondary strike while applications are failed over, two times of three.

    A secondary that nobody uses has little to lose.
    """

    def both(world: World, chance: random.Random) -> str | None:
        if chance.random() < 1 / 3:
            return strike_secondary(world, chance)
        world.primary.proxy.mode = "refuse"
        time.sleep(3.0)
        try:
            detail = strike_secondary(world, chance)
            time.sleep(chance.uniform(0.0, 3.0))
        finally:
            world.primary.proxy.mode = "pass"
        return None if detail is None else f"{detail}, failed over"

    return both


# -- network, disk, clock


def _network(namespace: Namespace, chance: random.Random, longest: float) -> str:
    mode = chance.choice(NETWORK)
    seconds = chance.uniform(1.0, longest)
    namespace.proxy.mode = mode
    time.sleep(seconds)
    namespace.proxy.mode = "pass"
    return f"{mode} for {seconds:.1f} s"


def _disk(namespace: Namespace, chance: random.Random) -> str:
    """The broker cannot write to its files beyond their first page, as on a disk that is full."""
    seconds = chance.uniform(1.0, 8.0)
    pid = namespace.process.pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (PAGE, resource.RLIM_INFINITY))
    time.sleep(seconds)
    with contextlib.suppress(ProcessLookupError):
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
    return f"no room for {seconds:.1f} s"


def _clock(namespace: Namespace, chance: random.Random) -> str:
    offset = chance.choice((-1, 1)) * chance.uniform(10.0, 90.0)
    seconds = chance.uniform(2.0, 10.0)
    namespace.set_clock(offset)
    time.sleep(seconds)
    namespace.set_clock(0.0)
    return f"{offset:+.0f} s for {seconds:.1f} s"


KINDS: dict[str, Fault] = {
    "kill primary": lambda world, chance: _kill_broker(world.primary, chance, 12.0),
    "kill secondary": _often_failed_over(
        lambda world, chance: _kill_broker(world.secondary, chance, 5.0)
    ),
    "kill driver": _kill_driver,
    "kill executor": _kill_executor,
    "kill python worker": _kill_python_worker,
    "kill application": _kill_application,
    "network primary": lambda world, chance: _network(world.primary, chance, 15.0),
    "network secondary": _often_failed_over(
        lambda world, chance: _network(world.secondary, chance, 8.0)
    ),
    "disk primary": lambda world, chance: _disk(world.primary, chance),
    "disk secondary": _often_failed_over(lambda world, chance: _disk(world.secondary, chance)),
    "clock primary": lambda world, chance: _clock(world.primary, chance),
    "clock secondary": _often_failed_over(lambda world, chance: _clock(world.secondary, chance)),
}
