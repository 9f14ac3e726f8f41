"""Simulated processes: when one is killed, everything in it stops immediately.

A callback belongs to the process in whose context it was scheduled. After `kill` the loop runs none
of its callbacks: no `finally`, no last words, as with `kill -9`. What it has written to the network
still arrives, or not, as the seed decides; then its peers see the end of the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pairbus.syphon._async.connections import ConnectionPool
from simulation.files import SimulatedFiles
from simulation.loop import SimulatedLoop
from simulation.ownership import context_of
from simulation.runtime import SimulatedRuntime

T = TypeVar("T")


class Process:
    """One simulated process, with the connections that the syphon keeps in it.

    Args:
        loop: the run.
        name: for the timeline; random numbers depend on it.
        files: the files that it sees; of its own if left out.
    """

    def __init__(self, loop: SimulatedLoop, name: str, files: SimulatedFiles | None = None) -> None:
        self.name = name
        self.is_alive = True
        self.runtime = SimulatedRuntime(loop, name, files)
        self.pool = ConnectionPool(self.runtime)
        self._loop = loop
        self._context = context_of(self)
        self._steps_left: int | None = None
        self._tasks: list[asyncio.Task[None]] = []  # the loop itself keeps only weak references
        self._strike: Callable[[], None] = lambda: None
        self.on_death: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<Process {self.name}{'' if self.is_alive else ' dead'}>"

    def start(self, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in this process."""
        task = self._loop.create_task(main, name=self.name, context=self._context)
        self._tasks.append(task)
        return task

    def kill(self) -> None:
        """End it, now."""
        if self.is_alive:
            self.is_alive = False
            self._loop.network.kill(self)
            self.on_death()

    def kill_after(self, steps: int, strike: Callable[[], None]) -> None:
        """Kill it when it has run so many more callbacks, and call `strike` then."""
        self._steps_left, self._strike = steps, strike

    def spare(self) -> None:
        """Do not kill it after all."""
        self._steps_left = None

    def count_step(self) -> None:
        """The loop has run one of its callbacks."""
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left <= 0:
                self._steps_left = None
                if self.is_alive:
                    self._strike()
                self.kill()


def settle(future: asyncio.Future[T], result: T) -> None:
    """Set the result, unless it is set."""
    if not future.done():
        future.set_result(result)
