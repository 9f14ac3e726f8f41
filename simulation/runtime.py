"""`pairbus.runtime.AsyncRuntime` in a simulation: one for each simulated process."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar
from uuid import UUID

from pairbus.runtime import AsyncioRuntime
from simulation.files import SimulatedFiles
from simulation.loop import SimulatedLoop, SimulationError

T = TypeVar("T")


class SimulatedRuntime(AsyncioRuntime):
    """The runtime of one simulated process.

    Args:
        loop: the run.
        name: identifies the process; each has random numbers of its own.
        files: its files; of its own if left out.
    """

    files: SimulatedFiles  # type: ignore[assignment]
    random: Random

    def __init__(self, loop: SimulatedLoop, name: str, files: SimulatedFiles | None = None) -> None:
        self._loop = loop
        self.random = random.Random(f"{name} {loop.seed}")
        chance = random.Random(f"files {name} {loop.seed}")
        self.files = files or SimulatedFiles(chance, loop.wall_time)

    def time(self) -> float:
        """Virtual seconds since 1970."""
        return self._loop.wall_time()

    def monotonic(self) -> float:
        """Virtual seconds since the run began."""
        return self._loop.time()

    def uuid4(self) -> UUID:
        """An identifier from the seed."""
        return UUID(int=self.random.getrandbits(128), version=4)

    async def run_blocking(self, function: Callable[..., T], *args: object) -> T:
        """Call the function here, after others had their turn."""
        await asyncio.sleep(0)
        return function(*args)

    def condition(self) -> CheckedCondition:  # type: ignore[override]
        """A condition that fails the run if it is held over another await."""
        return CheckedCondition()

    def worker(self, name: str) -> SimulatedWorker:  # type: ignore[override]
        """A worker on the event loop."""
        return SimulatedWorker(self._loop)


class CheckedCondition:
    """A condition that notices code which is only correct because there are no threads.

    A thread that holds a condition keeps others out until it waits or releases it. Here an
    await lets others in; if one of them enters, the code behaves differently with threads.
    """

    def __init__(self) -> None:
        self._inner = AsyncioRuntime.condition()
        self._holder: asyncio.Task[object] | None = None
        self.notify_all = self._inner.notify_all

    def __enter__(self) -> None:
        if self._holder is not None:
            raise SimulationError(f"a condition is held by {self._holder!r} over an await")
        self._holder = _current()

    def __exit__(self, *error: object) -> None:
        self._holder = None

    async def wait(self, timeout: float | None = None) -> bool:
        """Release, wait to be notified, acquire again."""
        with self.released():
            return await self._inner.wait(timeout)

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Let others in."""
        holder, self._holder = self._holder, None
        try:
            yield
        finally:
            if self._holder is not None:  # another task is between two of its awaits: impossible
                raise SimulationError("a condition was held by another task over an await")
            self._holder = holder


def _current() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class SimulatedWorker:
    """Runs functions one after the other, on the event loop: see `pairbus.runtime.Worker`."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], object]] = deque()
        self._is_closed = False

    def submit(self, function: Callable[..., object], *args: object) -> None:
        """Run the function later."""
        if self._is_closed:
            raise RuntimeError("the worker is closed")
        self._calls.append(lambda: function(*args))
        delay = self._loop.random.uniform(0.0, 0.005)
        self._loop.call_later(delay, self._run_next)

    def call(self, function: Callable[..., T], *args: object) -> T:
        """Run the function after those submitted before."""
        self._run_all()
        return function(*args)

    def close(self) -> None:
        """Run the submitted functions."""
        self._is_closed = True
        self._run_all()

    def _run_next(self) -> None:
        if self._calls:
            self._calls.popleft()()

    def _run_all(self) -> None:
        while self._calls:
            self._calls.popleft()()
