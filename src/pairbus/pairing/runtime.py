"""The few names where tasks and threads differ, in pairs: `aspawn` and `spawn`, `ALock` and `Lock`.

The shells in `_async` use the first of each pair; the generator puts the second into `_sync`.

The hard pair is `aabandonable`/`abandonable`: run something that may never come back, and go on
without it after a deadline. A task is cancelled and left to its own clean-up; a thread cannot be
cancelled, so it is left behind, as a daemon, with its connection cut so that it comes to an end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from azure.servicebus.exceptions import OperationTimeoutError

T = TypeVar("T")
logger = logging.getLogger("pairbus.tasks")


class AbandonedError(OperationTimeoutError):
    """Something did not end within its deadline, and was left behind."""

    def __init__(self, what: str) -> None:
        super().__init__(message=f"{what} did not end within its deadline.")


# -- spawn: run in the background, log what it raises

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


# -- abandonable: run something that may never come back


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
        what: What to call it in errors.
        give_up: Called at the deadline, so that it comes to an end.
        late: Called when it has come to an end after all.

    Raises:
        AbandonedError: at the deadline. The task is cancelled and left behind.
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

    aspawn(see_off, name=f"{task.get_name()}, left behind")


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
        what: What to call it in errors.
        give_up: Called at the deadline, so that it comes to an end.
        late: Called when it has come to an end after all.

    Raises:
        AbandonedError: at the deadline. The thread is left behind.
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
                logger.debug("%s, left behind: %r", what, error)

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


# -- on_drop: close what nobody holds any more, and so nobody could close


def aon_drop(
    owner: object, close: Callable[..., Coroutine[Any, Any, None]], *args: object
) -> Callable[[], object]:
    """Run `close(*args)` in the running loop once `owner` is gone; the answer calls that off."""
    loop = asyncio.get_running_loop()

    def dropped() -> None:
        try:
            loop.call_soon_threadsafe(partial(aspawn, close, *args, name="pairbus close, dropped"))
        except RuntimeError:
            logger.debug("dropped after its event loop was closed")

    return _at_the_end_of(owner, dropped)


_dropped: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()


def on_drop(owner: object, close: Callable[..., None], *args: object) -> Callable[[], object]:
    """Run `close(*args)` on a thread once `owner` is gone; the answer calls that off.

    An object may be found gone at any moment, amidst anything: all that happens there and then is
    that a queue, which is made for it, takes a note for `close_dropped`.
    """
    return _at_the_end_of(owner, partial(_dropped.put, partial(close, *args)))


def _at_the_end_of(owner: object, call: Callable[[], object]) -> Callable[[], object]:
    end = weakref.finalize(owner, call)
    end.atexit = False
    return end.detach


def close_dropped() -> None:
    """Set going what `on_drop` was told to do, for those that are gone."""
    while True:
        try:
            close = _dropped.get_nowait()
        except queue.Empty:
            return
        spawn(close, name="pairbus close, dropped")


# -- on_fork: what becomes of a client in a child process

_in_child: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def aon_fork(client: T, go_on: Callable[[T], None], stay_behind: Callable[[T], None]) -> None:
    """Call `stay_behind(client)` in a child process: its event loop has stayed there, too."""
    _in_child[client] = stay_behind


def on_fork(client: T, go_on: Callable[[T], None], stay_behind: Callable[[T], None]) -> None:
    """Call `go_on(client)` in a child process."""
    _in_child[client] = go_on


def _after_fork() -> None:
    while not _dropped.empty():
        _dropped.get_nowait()  # the parent's to close
    for client, what in list(_in_child.items()):
        try:
            what(client)
        except Exception:
            logger.exception("a paired client cannot be used in this forked process")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# -- lock, event, guard, sleep


class ALock:
    """One task at a time, in the order in which they came; waiting for it has a deadline.

    Other than `asyncio.Lock` it can be taken at once, with no coroutine, if it is free: `now()`
    says whether it was. Whoever has waited gets it handed over, so nobody can be overtaken.
    """

    def __init__(self) -> None:
        taken = threading.Lock()  # never waited for; the cheapest flag to test and set
        self.now = partial(taken.acquire, False)
        self._unlock = taken.release
        self._waiting: deque[asyncio.Future[bool]] = deque()

    async def acquire(self, deadline: float) -> bool:
        """Take the lock, if it is free before `deadline`, in monotonic seconds."""
        if self.now():
            return True
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(turn)
        timer = loop.call_later(max(0.0, deadline - time.monotonic()), _decide, turn, False)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self.release()  # it was handed over, to one who does not want it any more
            raise
        finally:
            timer.cancel()

    def release(self) -> None:
        """Give the lock back, or on to the first who waits for it."""
        while self._waiting:
            if _decide(self._waiting.popleft(), True):
                return
        self._unlock()


def _decide(turn: asyncio.Future[bool], answer: bool) -> bool:
    if turn.done():
        return False
    turn.set_result(answer)
    return True


class Lock:
    """One thread at a time; waiting for it has a deadline. `now()` takes it if it is free."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self.now = partial(lock.acquire, False)
        self._acquire = lock.acquire
        self.release = lock.release

    def acquire(self, deadline: float) -> bool:
        """Take the lock, if it is free before `deadline`, in monotonic seconds."""
        return self._acquire(timeout=max(0.0, deadline - time.monotonic()))


class AEvent:
    """Something that happens once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.set = self._event.set
        self.is_set = self._event.is_set

    async def wait(self, seconds: float) -> bool:
        """Wait until it has happened, at most `seconds`; say whether it has."""
        if self._event.is_set() or seconds <= 0:
            return self._event.is_set()
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class Event:
    """Something that happens once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.set = self._event.set
        self.is_set = self._event.is_set

    def wait(self, seconds: float) -> bool:
        """Wait until it has happened, at most `seconds`; say whether it has."""
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


async def ablocking(function: Callable[..., T], *args: object) -> T:
    """Run a function that blocks, without blocking the event loop."""
    return await asyncio.to_thread(function, *args)


def blocking(function: Callable[..., T], *args: object) -> T:
    """Run a function that blocks; a thread may."""
    return function(*args)
