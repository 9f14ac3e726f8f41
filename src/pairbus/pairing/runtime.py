"""Functions that differ between tasks and threads, in pairs such as `aspawn` and `spawn`.

The shells in `_async` use the first of each pair; the generator puts the second into `_sync`. Pairs
that need more than a few lines have modules of their own: `turns`, `deadlines`, `abandoning`,
`resolving`.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from pairbus.pairing.forking import reset_in_child

T = TypeVar("T")
logger = logging.getLogger("pairbus.tasks")


# -- spawn: run in the background, log errors

_tasks: set[asyncio.Task[None]] = set()  # the event loop itself keeps only weak references


class ATask:
    """A background task."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    async def join(self, timeout: float) -> bool:
        """Wait until it has ended, at most `timeout` seconds; say whether it has."""
        if self._task is asyncio.current_task():
            return False
        await asyncio.wait({self._task}, timeout=timeout)
        return self._task.done()


def aspawn(
    function: Callable[..., Coroutine[Any, Any, None]], *args: object, name: str = "pairbus"
) -> ATask:
    """Run `function` as a task of the running loop."""

    async def run() -> None:
        try:
            await function(*args)
        except Exception:
            logger.exception("%s failed", name)

    task = asyncio.get_running_loop().create_task(run(), name=name)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return ATask(task)


class Task:
    """A background thread."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    def join(self, timeout: float) -> bool:
        """Wait until it has ended, at most `timeout` seconds; say whether it has."""
        if self._thread is threading.current_thread():
            return False
        self._thread.join(timeout)
        return not self._thread.is_alive()


def spawn(function: Callable[..., None], *args: object, name: str = "pairbus") -> Task:
    """Run `function` on a daemon thread."""

    def run() -> None:
        try:
            function(*args)
        except Exception:
            logger.exception("%s failed", name)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return Task(thread)


# -- on_drop: close a resource whose owner was garbage-collected


def aon_drop(
    owner: object, close: Callable[..., Coroutine[Any, Any, None]], *args: object
) -> Callable[[], object]:
    """Run `close(*args)` in the event loop once `owner` is gone; returns a cancel function."""
    loop = asyncio.get_running_loop()

    def dropped() -> None:
        try:
            loop.call_soon_threadsafe(partial(aspawn, close, *args, name="pairbus close, dropped"))
        except RuntimeError:
            logger.debug("dropped after its event loop was closed")

    return _at_the_end_of(owner, dropped)


_dropped: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()


def on_drop(owner: object, close: Callable[..., None], *args: object) -> Callable[[], object]:
    """Run `close(*args)` on a thread once `owner` is gone; returns a function that cancels.

    A finalizer may run at any moment, in the middle of anything, so it only puts the call into a
    queue that is safe there; `close_dropped` runs it.
    """
    return _at_the_end_of(owner, partial(_dropped.put, partial(close, *args)))


def _at_the_end_of(owner: object, call: Callable[[], object]) -> Callable[[], object]:
    end = weakref.finalize(owner, call)
    end.atexit = False
    return end.detach


def close_dropped() -> None:
    """Run the calls that `on_drop` was given, for the owners that are gone."""
    while True:
        try:
            close = _dropped.get_nowait()
        except queue.Empty:
            return
        spawn(close, name="pairbus close, dropped")


def _forget_dropped() -> None:
    while not _dropped.empty():
        _dropped.get_nowait()  # the parent's to close


reset_in_child(_forget_dropped)


# -- event, guard, sleep


class AEvent:
    """A flag that is set once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.set = self._event.set
        self.is_set = self._event.is_set

    async def wait(self, seconds: float) -> bool:
        """Wait until it is set, at most `seconds`; say whether it is."""
        if self._event.is_set() or seconds <= 0:
            return self._event.is_set()
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class Event:
    """A flag that is set once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.set = self._event.set
        self.is_set = self._event.is_set

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, at most `seconds`; say whether it is."""
        return self._event.wait(max(0.0, seconds))


# Protects a decision. Within one event loop there would be nothing to do, but a real lock, which is
# free there, costs less than a class that does nothing.
AGuard = Guard = threading.Lock


async def asleep(seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def wall(moment: float) -> datetime:
    """The time of day of a moment of the monotonic clock."""
    return datetime.now(UTC) + timedelta(seconds=moment - time.monotonic())


async def ablocking(function: Callable[..., T], *args: object) -> T:
    """Run a function that blocks, without blocking the event loop."""
    return await asyncio.to_thread(function, *args)


def blocking(function: Callable[..., T], *args: object) -> T:
    """Run a function that blocks; a thread may."""
    return function(*args)
