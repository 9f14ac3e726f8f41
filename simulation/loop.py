"""An asyncio event loop with virtual time, whose ready callbacks run in seeded order.

Callbacks of the same object (a task, a transport) keep their order, as they may rely on it; between
objects any order is possible, and the seed picks one. Each callback takes a little virtual time, so
that code which polls the clock gets on. When nothing is ready, time jumps to the next timer. When
there is no timer either, nothing can ever happen again: that is an error.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from simulation.network import Network
from simulation.ownership import Owner, owner_of
from simulation.trace import Trace

STEP = 1e-5  # seconds of virtual time that one callback takes
EPOCH = 1_800_000_000.0  # the wall clock at the beginning of a run


def _is_of_the_sdk(task: Any) -> bool:
    code = getattr(task.get_coro(), "cr_code", None) if isinstance(task, asyncio.Task) else None
    return code is not None and "azure/servicebus/" in code.co_filename


class SimulationError(Exception):
    """The run did something that a simulation cannot allow, or came to a halt."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """One run.

    Args:
        seed: decides everything that is not decided by the code under test.
        max_steps: callbacks after which the run counts as one that never ends.
    """

    # Of BaseEventLoop:
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _timer_cancelled_count: int

    def __init__(self, seed: int, *, max_steps: int = 5_000_000) -> None:
        self._now = 0.0
        super().__init__()
        self.seed = seed
        self.random = random.Random(f"loop {seed}")
        self.trace = Trace()
        self.network = Network(self, random.Random(f"network {seed}"))
        self.wall_offset = EPOCH
        self.failures: list[str] = []
        """Exceptions that nobody handled."""
        self._steps_left = max_steps
        self._queues: dict[object, deque[asyncio.Handle]] = {}
        self._keys: list[object] = []
        self._parked: list[asyncio.Handle] = []  # callbacks of processes that were killed
        self._frozen: dict[Owner, list[asyncio.Handle]] = {}
        self._is_ending = False
        self.set_exception_handler(self._note_failure)

    # -- time

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self._now

    def wall_time(self) -> float:
        """Virtual seconds since 1970."""
        return self.wall_offset + self._now

    # -- running

    def allow(self, steps: int) -> None:
        """Let the run take at least so many more steps."""
        self._steps_left = max(self._steps_left, steps)

    def _run_once(self) -> None:
        self._sort_in()
        if not self._keys:
            self._jump()
        handle = self._pick()
        if handle is None:
            return
        self._steps_left -= 1
        if self._steps_left < 0:
            raise SimulationError(f"seed {self.seed}: the run does not end")
        self._now += STEP
        if handle.cancelled():
            return
        process = owner_of(handle._context)  # type: ignore[attr-defined]  # noqa: SLF001
        if process is not None and not self._is_ending:
            if not process.is_alive:
                self._parked.append(handle)
                return
            if process in self._frozen:
                self._frozen[process].append(handle)
                return
        self.trace.add(self._now, _name(handle))
        handle._run()  # noqa: SLF001 - as the loops of asyncio do
        if process is not None:
            process.count_step()

    def freeze(self, process: Owner) -> None:
        """Run no callback of a process until `thaw`, as after SIGSTOP."""
        self._frozen.setdefault(process, [])

    def thaw(self, process: Owner) -> None:
        """Let a process continue."""
        self._ready.extend(self._frozen.pop(process, ()))

    def end(self) -> None:
        """The run is over: also let the remaining tasks of killed processes end."""
        self._is_ending = True
        for process in list(self._frozen):
            self.thaw(process)
        self._ready.extend(self._parked)
        self._parked.clear()

    def _sort_in(self) -> None:
        """Move ready callbacks into the queues of the objects that they belong to."""
        while self._scheduled:
            timer = self._scheduled[0]
            if timer.cancelled():
                heapq.heappop(self._scheduled)
                timer._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001
                self._timer_cancelled_count -= 1
            elif timer.when() <= self._now:
                heapq.heappop(self._scheduled)
                timer._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001
                self._ready.append(timer)
            else:
                break
        while self._ready:
            handle = self._ready.popleft()
            key = _owner(handle)
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = deque()
                self._keys.append(key)
            queue.append(handle)

    def _jump(self) -> None:
        if not self._scheduled:
            raise SimulationError(f"seed {self.seed}: nothing can happen any more")
        self._now = max(self._now, self._scheduled[0].when())
        self._sort_in()

    def _pick(self) -> asyncio.Handle | None:
        if not self._keys:
            return None
        index = self.random.randrange(len(self._keys))
        key = self._keys[index]
        queue = self._queues[key]
        handle = queue.popleft()
        if not queue:
            del self._queues[key]
            self._keys[index] = self._keys[-1]
            self._keys.pop()
        return handle

    def _note_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if _is_of_the_sdk(context.get("future")):
            return  # asyncio.wait_for left a request whose own timeout ended in the same moment
        self.failures.append(f"{context.get('message')}: {error!r}")
        self.trace.add(self._now, f"unhandled {type(error).__name__}")

    # -- what the operating system would do

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect in memory; see `Network`."""
        if ssl:
            raise SimulationError("the simulation has no TLS")
        return await self.network.connect(protocol_factory, str(host), int(port or 0))

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Every name is an address."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (str(host), int(port or 0)))]

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        """Call the function in the loop's own thread, a little later."""
        future = self.create_future()
        self.call_later(self.random.uniform(0.0, 0.005), _call, future, func, args)
        return future

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        """The same as `call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass


def _call(future: asyncio.Future[Any], function: Callable[..., Any], args: Any) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(function(*args))
    except Exception as error:  # noqa: BLE001 - goes to whoever waits for the result
        future.set_exception(error)


def _unwrap(callback: Any) -> Any:
    while isinstance(callback, partial):
        callback = callback.func
    return callback


def _owner(handle: asyncio.Handle) -> object:
    """The object whose callbacks stay in order; plain functions share one."""
    callback = _unwrap(handle._callback)  # type: ignore[attr-defined]  # noqa: SLF001
    owner = getattr(callback, "__self__", None)
    return id(owner) if owner is not None else None


def _name(handle: asyncio.Handle) -> str:
    callback = _unwrap(handle._callback)  # type: ignore[attr-defined]  # noqa: SLF001
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {getattr(owner.get_coro(), '__qualname__', '?')}"
    return str(getattr(callback, "__qualname__", type(callback).__name__))
