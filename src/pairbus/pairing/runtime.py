"""The names in which tasks and threads differ, in pairs: `aspawn` and `spawn`, and so on.

The shells in `_async` use the first of each pair; the generator puts the second into `_sync`.

The hard pair is `aabandonable`/`abandonable`: run a call that may never return, and go on without
it after a deadline. A task is cancelled and left to its own clean-up. A thread cannot be cancelled,
so it is abandoned, as a daemon, and its connection is cut so that it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import socket
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.pairing.forking import reset_in_child

T = TypeVar("T")
logger = logging.getLogger("pairbus.tasks")


class AbandonedError(OperationTimeoutError):
    """A call did not end within its deadline, and was abandoned."""

    def __init__(self, what: str) -> None:
        super().__init__(message=f"{what} did not end within its deadline.")


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


# -- abandonable: run a call that may never return


async def aabandonable(
    seconds: float,
    call: Callable[..., Awaitable[T]],
    *args: object,
    what: str,
    give_up: Callable[[], object] | None = None,
    late: Callable[[], Awaitable[object]] | None = None,
) -> T:
    """What `call` returns or raises, if it does so within `seconds`.

    Args:
        seconds: The deadline.
        call: What to do, with `args`.
        args: What `call` takes.
        what: Its name in errors.
        give_up: Called at the deadline, to make it end.
        late: Called when it has ended after its deadline.

    Raises:
        AbandonedError: at the deadline. The task is cancelled and abandoned.
    """

    async def run() -> T:
        return await call(*args)

    task = asyncio.get_running_loop().create_task(run(), name=what)
    try:
        await asyncio.wait({task}, timeout=max(0.0, seconds))
    except BaseException:
        _leave(task, late)
        raise
    if task.done():
        return task.result()
    _leave(task, late)
    if give_up is not None:
        give_up()
    raise AbandonedError(what)


def _leave(task: asyncio.Task[Any], late: Callable[[], Awaitable[object]] | None) -> None:
    task.cancel()

    async def see_off() -> None:
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is not None:
            logger.debug("%s failed after its deadline: %r", task.get_name(), task.exception())
        if late is not None:
            await late()

    aspawn(see_off, name=f"{task.get_name()}, abandoned")


def abandonable(
    seconds: float,
    call: Callable[..., T],
    *args: object,
    what: str,
    give_up: Callable[[], object] | None = None,
    late: Callable[[], object] | None = None,
) -> T:
    """What `call` returns or raises, if it does so within `seconds`.

    Args:
        seconds: The deadline.
        call: What to do, with `args`.
        args: What `call` takes.
        what: Its name in errors.
        give_up: Called at the deadline, to make it end.
        late: Called when it has ended after its deadline.

    Raises:
        AbandonedError: at the deadline. The thread is abandoned.
    """
    result: list[T] = []
    failure: list[BaseException] = []
    finished = threading.Event()
    is_left = threading.Event()
    turn = threading.Lock()

    def run() -> None:
        try:
            result.append(call(*args))
        except BaseException as error:  # noqa: BLE001  # carried to the caller's thread
            failure.append(error)
        with turn:
            finished.set()
        if is_left.is_set() and late is not None:
            try:
                late()
            except Exception as error:  # noqa: BLE001  # nobody waits for it any more
                logger.debug("%s, abandoned: %r", what, error)

    threading.Thread(target=run, name=what, daemon=True).start()
    if not finished.wait(max(0.0, seconds)):
        with turn:
            if not finished.is_set():
                is_left.set()
        if is_left.is_set():
            if give_up is not None:
                give_up()
            raise AbandonedError(what)
    if failure:
        raise failure[0]
    return result[0]


# -- resolve: look a host name up before the SDK does

_lookups: dict[str, Future[None]] = {}
_lookups_guard = threading.Lock()


async def aresolve(host: str, deadline: float) -> None:
    """Wait until a lookup of `host` has ended, well or not, at most until `deadline`.

    The async SDK looks names up on the event loop's default executor. A resolver that hangs would
    fill its threads, and no other name could be looked up, that of the secondary neither. So each
    name is first looked up here, on one thread of its own for all that wait for it.

    Raises:
        AbandonedError: at the deadline.
    """
    with _lookups_guard:
        lookup = _lookups.get(host)
        if lookup is None or lookup.done():
            lookup = _lookups[host] = Future()
            thread = threading.Thread(
                target=_look_up, args=(host, lookup), name=f"pairbus lookup {host}", daemon=True
            )
            thread.start()
    waiting = asyncio.wrap_future(lookup)
    await asyncio.wait({waiting}, timeout=max(0.0, deadline - time.monotonic()))
    if not waiting.done():
        raise AbandonedError(f"looking up {host}")


def _look_up(host: str, lookup: Future[None]) -> None:
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        logger.debug("looking up %s: %s", host, error)  # the SDK reports it
    finally:
        with contextlib.suppress(InvalidStateError):  # the event loop was closed meanwhile
            lookup.set_result(None)


def resolve(host: str, deadline: float) -> None:
    """Do nothing: the sync SDK opens links on a thread that can be abandoned."""


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
