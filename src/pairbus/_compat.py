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
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from azure.servicebus.exceptions import OperationTimeoutError

from pairbus import _sdk

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


# -- watch: a send on the caller's own thread or task, with a deadline


class AWatch:
    """Bounds a send in the running task: the event loop cancels it at the deadline.

    As `asyncio.timeout`, but for one timer after another: a new one for each send would cost more
    than the rest of the watching. The timer of the first send stays set, and looks when it fires
    whether there is a send under way, and until when.
    """

    __slots__ = ("_cancelling", "_deadline", "_has_fired", "_loop", "_task", "_timer")

    def __init__(self) -> None:
        self._deadline = 0.0
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._has_fired = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def until(self, deadline: float, sender: object) -> AWatch:
        """Bound what comes next: it ends before `deadline`, in monotonic seconds."""
        self._deadline = deadline
        return self

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._has_fired = False
        loop = task.get_loop()
        timer = self._timer
        if timer is not None and (loop is not self._loop or timer.when() > self._when(loop)):
            timer.cancel()
            timer = None
        if timer is None:
            self._loop = loop
            self._timer = loop.call_at(self._when(loop), self._look)

    def _when(self, loop: asyncio.AbstractEventLoop) -> float:
        return loop.time() + self._deadline - time.monotonic()

    def _look(self) -> None:
        self._timer = None
        task, loop = self._task, self._loop
        if task is None or loop is None:
            return  # the next send sets it anew
        if time.monotonic() < self._deadline:
            self._timer = loop.call_at(self._when(loop), self._look)
            return
        self._has_fired = True
        task.cancel()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        if self._has_fired and task is not None:
            is_ours = task.uncancel() <= self._cancelling
            if is_ours and exc_type is asyncio.CancelledError:
                raise TimeoutError from exc


class Watch:
    """Bounds a send on the caller's own thread.

    The SDK's `timeout=` does so by itself as long as nothing but the answer is missing. Where the
    SDK waits for something else, one watchdog thread cuts the connection a moment after the
    deadline, and the send comes back with an error. It costs the send two assignments.
    """

    __slots__ = ("__weakref__", "deadline", "sender")

    def __init__(self) -> None:
        self.deadline = 0.0
        self.sender: object = None
        _watchdog.add(self)

    def until(self, deadline: float, sender: object) -> Watch:
        """Bound what comes next: it ends before `deadline`, in monotonic seconds."""
        self.deadline = deadline
        self.sender = sender
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        self.sender = None


class _Watchdog:
    """One thread for all watches of the process, as long as there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def add(self, watch: Watch) -> None:
        with self._lock:
            self._watches.add(watch)
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="pairbus-watchdog", daemon=True)
        self._thread.start()

    def after_fork(self) -> None:
        """Go on in a child process, which has the watches of its parent but not the thread.

        What the parent was sending then is the parent's: its connections are not cut from here.
        """
        self._lock = threading.Lock()
        watches = list(self._watches)
        for watch in watches:
            watch.sender = None
        self._thread = None
        if watches:
            self._start()

    def _run(self) -> None:
        while True:
            time.sleep(0.5)
            with self._lock:
                watches = list(self._watches)
                if not watches:
                    self._thread = None
                    return
            now = time.monotonic()
            for watch in watches:
                sender = watch.sender
                if sender is not None and watch.deadline + 0.5 < now:
                    logger.debug("a send outlived its deadline; cutting its connection")
                    _sdk.hang_up(sender)
            del watches, watch  # keep no watch alive through the next sleep


_watchdog = _Watchdog()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watchdog.after_fork)


# -- lock, event, guard, sleep


class ALock:
    """One task at a time; waiting for it has a deadline."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def acquire(self, deadline: float) -> bool:
        """Take the lock, if it is free before `deadline`, in monotonic seconds."""
        if not self._lock.locked():
            return await self._lock.acquire()
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await self._lock.acquire()
        except TimeoutError:
            return False

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()


class Lock:
    """One thread at a time; waiting for it has a deadline."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._try = self._lock.acquire
        self.release = self._lock.release

    def acquire(self, deadline: float) -> bool:
        """Take the lock, if it is free before `deadline`, in monotonic seconds."""
        return self._try(False) or self._try(timeout=max(0.0, deadline - time.monotonic()))


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


class AGuard:
    """Protects a decision: nothing to do within one event loop."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


Guard = threading.Lock


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
