"""The runtime of asyncio. A simulation may use it on an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Coroutine
from random import Random, SystemRandom
from time import monotonic, time
from typing import Any, TypeVar
from uuid import uuid4

from pairbus.runtime.files import LocalFiles
from pairbus.runtime.thread_runtime import ThreadWorker

T = TypeVar("T")
_READ_AHEAD = 1 << 20  # bytes that are buffered before the transport is paused
logger = logging.getLogger("pairbus.tasks")
_tasks: set[asyncio.Task[None]] = set()  # the event loop itself keeps only weak references


class AsyncioTask:
    """A task of the running loop."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    @property
    def is_done(self) -> bool:
        """It has ended."""
        return self._task.done()

    async def join(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; False on a timeout, or if called by the task itself."""
        if self._task is asyncio.current_task():
            return False
        await asyncio.wait({self._task}, timeout=timeout)
        return self._task.done()


class _Waiters:
    """The waiters for a change, each with its own timeout."""

    def __init__(self) -> None:
        self._futures: dict[asyncio.Future[bool], None] = {}  # woken in the order of arrival

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for `wake_all`; False on a timeout."""
        if timeout is not None and timeout <= 0:
            return False
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        timer = None if timeout is None else loop.call_later(timeout, _resolve, future, False)
        self._futures[future] = None
        try:
            return await future
        finally:
            del self._futures[future]
            if timer is not None:
                timer.cancel()

    def wake_all(self) -> None:
        """Wake all waiters."""
        for future in self._futures:
            _resolve(future, True)


def _resolve(future: asyncio.Future[bool], result: bool) -> None:
    if not future.done():
        future.set_result(result)


class AsyncioEvent:
    """A flag that can be waited for."""

    def __init__(self) -> None:
        self._waiters = _Waiters()
        self._is_set = False

    def set(self) -> None:
        """Set the flag and wake all waiters."""
        self._is_set = True
        self._waiters.wake_all()

    def clear(self) -> None:
        """Reset the flag."""
        self._is_set = False

    def is_set(self) -> bool:
        """The flag is set."""
        return self._is_set

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set; False on a timeout."""
        return self._is_set or await self._waiters.wait(timeout)


class AsyncioCondition:
    """In one event loop nothing has to be locked: only waiting and notifying remain."""

    def __init__(self) -> None:
        waiters = _Waiters()
        self.wait = waiters.wait
        self.notify_all = waiters.wake_all

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def released(self) -> contextlib.nullcontext[None]:
        """Nothing to release: other tasks run at any await."""
        return contextlib.nullcontext()


class AsyncioStream(asyncio.Protocol):
    """A connection on an asyncio transport, plain or TLS."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._waiters = _Waiters()
        self._arrived = bytearray()
        self._is_paused = False
        self._is_full = False
        self._has_ended = False
        self._error: OSError | None = None

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(0)

    def data_received(self, data: bytes) -> None:
        """Buffer the bytes for `read`."""
        self._arrived += data
        if len(self._arrived) > _READ_AHEAD and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._waiters.wake_all()

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream ended, or the connection failed."""
        self._has_ended = True
        if exc is not None:
            self._error = exc if isinstance(exc, OSError) else ConnectionError(str(exc))
        self._waiters.wake_all()

    def pause_writing(self) -> None:
        """Some data is unsent."""
        self._is_full = True

    def resume_writing(self) -> None:
        """All data is sent."""
        self._is_full = False
        self._waiters.wake_all()

    # -- called by the user

    @property
    def has_unsent(self) -> bool:
        """Some of the written data has not been passed to the operating system yet."""
        return self._is_full

    def write(self, data: bytes) -> None:
        """Write; the rest is written when the socket accepts it."""
        if self._error is not None:
            raise self._error
        if self._has_ended:
            raise ConnectionResetError("the connection is closed")
        self._transport.write(data)

    def flush(self) -> None:
        """Nothing to do: the event loop writes unsent data."""

    def read(self) -> bytes | None:
        """The bytes that have arrived; None if none, `b""` at the end of the stream."""
        if self._arrived:
            data = bytes(self._arrived)
            self._arrived.clear()
            if self._is_paused:
                self._is_paused = False
                self._transport.resume_reading()
            return data
        if self._error is not None:
            raise self._error
        return b"" if self._has_ended else None

    async def wait(self, timeout: float, *, read: bool = True) -> None:
        """Wait until data arrives, unsent data is written, or the timeout has passed."""
        is_ready = bool(self._arrived) if read else not self._is_full
        if not (self._has_ended or is_ready):
            await self._waiters.wait(max(0.0, timeout))

    def close(self) -> None:
        """Close without waiting; wakes all waiters in `wait`. Unsent data is discarded."""
        if not self._has_ended:
            self._has_ended = True
            self._transport.close()  # starts the TLS shutdown
            self._transport.abort()  # without waiting for a peer that does not read or answer
        self._waiters.wake_all()


class AsyncioRuntime:
    """The running event loop: see `pairbus.runtime.AsyncRuntime`."""

    files = LocalFiles()
    random: Random = SystemRandom()

    time = staticmethod(time)
    monotonic = staticmethod(monotonic)
    sleep = staticmethod(asyncio.sleep)
    uuid4 = staticmethod(uuid4)
    lock = staticmethod(asyncio.Lock)
    event = staticmethod(AsyncioEvent)
    condition = staticmethod(AsyncioCondition)
    worker = staticmethod(ThreadWorker)

    def spawn(
        self, function: Callable[..., Coroutine[Any, Any, None]], *args: object, name: str
    ) -> AsyncioTask:
        """Run as a task of the running loop; an exception is logged under the name."""

        async def run() -> None:
            try:
                await function(*args)
            except Exception:
                logger.exception("%s failed", name)

        task = asyncio.get_running_loop().create_task(run(), name=name)
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        return AsyncioTask(task)

    async def run_blocking(self, function: Callable[..., T], *args: object) -> T:
        """Call the function on a thread."""
        return await asyncio.to_thread(function, *args)

    async def connect(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, timeout: float
    ) -> AsyncioStream:
        """Connect, with a TLS handshake if `tls` is given."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            _, stream = await loop.create_connection(AsyncioStream, host, port, ssl=tls)
        return stream
