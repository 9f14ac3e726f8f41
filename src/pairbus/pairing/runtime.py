"""Functions that differ between tasks and threads, in pairs such as `aspawn` and `spawn`.

The shells in `_async` use the first of each pair; the generator puts the second into `_sync`. Pairs
that need more than a few lines have modules of their own: `turns`, `sdk.deadlines`, `abandoning`,
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

from pairbus.runtime import AsyncioRuntime, AsyncTask, Task, ThreadRuntime
from pairbus.runtime.asyncio_runtime import AsyncioEvent

T = TypeVar("T")
logger = logging.getLogger("pairbus.tasks")


_asyncio, _threads = AsyncioRuntime(), ThreadRuntime()


def aspawn(
    function: Callable[..., Coroutine[Any, Any, None]], *args: object, name: str = "pairbus"
) -> AsyncTask:
    """Run `function` as a task of the running loop; an exception is logged under the name."""
    return _asyncio.spawn(function, *args, name=name)


def spawn(function: Callable[..., None], *args: object, name: str = "pairbus") -> Task:
    """Run `function` on a daemon thread; an exception is logged under the name."""
    return _threads.spawn(function, *args, name=name)


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

    return _call_when_freed(owner, dropped)


_dropped: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()


def on_drop(owner: object, close: Callable[..., None], *args: object) -> Callable[[], object]:
    """Run `close(*args)` on a thread once `owner` is gone; returns a function that cancels.

    A finalizer may run at any moment, in the middle of anything, so it only puts the call into a
    queue that is safe there; `close_dropped` runs it.
    """
    return _call_when_freed(owner, partial(_dropped.put, partial(close, *args)))


def _call_when_freed(owner: object, call: Callable[[], object]) -> Callable[[], object]:
    finalizer = weakref.finalize(owner, call)
    finalizer.atexit = False
    return finalizer.detach


def close_dropped() -> None:
    """Run the calls that `on_drop` was given, for the owners that are gone."""
    while True:
        try:
            close = _dropped.get_nowait()
        except queue.Empty:
            return
        spawn(close, name="pairbus close, dropped")


def reset() -> None:
    """Forget these calls in a forked process: the resources are the parent's to close."""
    while not _dropped.empty():
        _dropped.get_nowait()


# -- event, guard, sleep


AEvent = AsyncioEvent
Event = threading.Event

# Protects a decision. Within one event loop there would be nothing to do, but a real lock, which is
# free there, costs less than a class that does nothing.
AGuard = Guard = threading.Lock


asleep, sleep = asyncio.sleep, time.sleep
ablocking = asyncio.to_thread  # run a function that blocks, without blocking the event loop


def acheck_cancelled() -> None:
    """Raise the cancellation of the current task if it was lost.

    Before Python 3.12, `asyncio.wait_for`, which the SDK uses, loses a cancellation that comes with
    the result. A task that goes on for ever would also keep `asyncio.run` from ending.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def check_cancelled() -> None:
    """Do nothing: a thread is not cancelled."""


def wall(moment: float) -> datetime:
    """The time of day of a moment of the monotonic clock."""
    return datetime.now(UTC) + timedelta(seconds=moment - time.monotonic())


def blocking(function: Callable[..., T], *args: object) -> T:
    """Run a function that blocks; on a thread it may."""
    return function(*args)
