"""Replaces the clocks and random numbers of the process for the time of a run.

The SDK and its dependencies read the clock, draw random numbers and make identifiers by themselves.
Each module that holds one of these functions, under whatever name, gets the simulated one and gets
its own back afterwards. A thread that a run starts fails it. Threads that were there before, such
as those of earlier tests, keep the real functions: a run replaces them for its own thread alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gc
import os
import random
import socket
import ssl
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from simulation.loop import SimulatedLoop, SimulationError

T = TypeVar("T")


def run(
    main: Callable[[SimulatedLoop], Coroutine[Any, Any, T]], seed: int, **options: Any
) -> tuple[T, SimulatedLoop]:
    """Run `main(loop)` in a world of its own; gives its result, and the loop with the trace.

    Raises:
        SimulationError: a thread was started, an exception was not handled, or nothing can happen
            any more.
    """
    loop = SimulatedLoop(seed, **options)
    with replaced(loop):
        try:
            try:
                result = loop.run_until_complete(main(loop))
            finally:
                _cancel_rest(loop)
        finally:
            loop.network.end()
            loop.close()
    if loop.failures:
        raise SimulationError(f"seed {seed}: nobody handled {loop.failures}")
    return result, loop


def _cancel_rest(loop: SimulatedLoop) -> None:
    """End all tasks, and those that they start while they end: nothing must keep the run alive."""
    loop.allow(100_000)
    loop.end()
    for _ in range(10):
        rest = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
        if not rest:
            break
        for task in rest:
            task.cancel()
        with contextlib.suppress(SimulationError):
            loop.run_until_complete(_end_of(rest))
    loop.run_until_complete(loop.shutdown_asyncgens())


async def _end_of(tasks: list[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def replaced(loop: SimulatedLoop) -> Iterator[None]:
    """Within this block the process has the clock and the random numbers of the loop."""
    chance = random.Random(f"process {loop.seed}")
    state = random.getstate()
    originals = _replacements(loop, chance)
    places = _places({id(real): fake for real, fake in originals})
    random.seed(f"global {loop.seed}")
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()  # finalizers would run at moments that the seed does not know
    real_start = threading.Thread.start
    threading.Thread.start = _own_thread_only(_no_thread, real_start)  # type: ignore[method-assign]
    for module, name, _, fake in places:
        setattr(module, name, fake)
    # The SDK reads all certificates for each connection, also without TLS: most of a run's time.
    read_certificates = ssl.SSLContext.load_verify_locations
    read_nothing = _own_thread_only(lambda *args, **options: None, read_certificates)
    ssl.SSLContext.load_verify_locations = read_nothing  # type: ignore[method-assign]
    try:
        yield
    finally:
        ssl.SSLContext.load_verify_locations = read_certificates  # type: ignore[method-assign]
        for module, name, real, _ in places:
            setattr(module, name, real)
        threading.Thread.start = real_start  # type: ignore[method-assign]
        random.setstate(state)
        if was_enabled:
            gc.enable()


def _own_thread_only(fake: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function that is `fake` on the calling thread and `real` on all others."""
    mine, current = threading.get_ident(), threading.get_ident

    def choose(*args: Any, **options: Any) -> Any:
        return (fake if current() == mine else real)(*args, **options)

    return choose


def _no_thread(thread: threading.Thread) -> None:
    raise SimulationError(f"a thread was started: {thread.name}")


def _places(fakes: dict[int, Any]) -> list[tuple[Any, str, Any, Any]]:
    """Where the functions to replace are held: module, name, original, replacement."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # modules that warn when they are looked into
        for module in list(sys.modules.values()):
            if module.__name__.startswith(("simulation", "_pytest")):
                continue
            for name, value in list(vars(module).items()):
                if id(value) in fakes:
                    found.append((module, name, value, fakes[id(value)]))
    return found


def _replacements(loop: SimulatedLoop, chance: random.Random) -> list[tuple[Any, Any]]:
    def urandom(size: int) -> bytes:
        return chance.randbytes(size)

    def sleep(seconds: float) -> None:
        raise SimulationError(f"the event loop was blocked for {seconds} s by time.sleep")

    def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (str(host), int(port or 0)))]

    def gmtime(seconds: float | None = None) -> time.struct_time:
        return _gmtime(loop.wall_time() if seconds is None else seconds)

    _gmtime = time.gmtime
    functions: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (time.time, loop.wall_time),
        (time.time_ns, lambda: round(loop.wall_time() * 1e9)),
        (time.monotonic, loop.time),
        (time.monotonic_ns, lambda: round(loop.time() * 1e9)),
        (time.perf_counter, loop.time),
        (time.perf_counter_ns, lambda: round(loop.time() * 1e9)),
        (time.sleep, sleep),
        (time.gmtime, gmtime),
        (os.urandom, urandom),
        (os.getpid, lambda: 1),  # both are a part of the names of clients
        (socket.getaddrinfo, getaddrinfo),
        (socket.gethostname, lambda: "simulated"),
        (uuid.uuid1, lambda node=None, clock_seq=None: uuid.uuid4()),  # its C code has a clock
    ]
    replaced = [(real, _own_thread_only(fake, real)) for real, fake in functions]
    return [*replaced, (datetime.datetime, _datetime_for(loop))]


def _datetime_for(loop: SimulatedLoop) -> type[datetime.datetime]:
    real = datetime.datetime
    wall_time = _own_thread_only(loop.wall_time, time.time)

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, real)

    class SimulatedDatetime(real, metaclass=Kind):  # type: ignore[misc, valid-type]
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return real.fromtimestamp(wall_time(), tz)

        @classmethod
        def utcnow(cls) -> datetime.datetime:
            return real.fromtimestamp(wall_time(), datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> datetime.datetime:
            return real.fromtimestamp(wall_time())

    return SimulatedDatetime
