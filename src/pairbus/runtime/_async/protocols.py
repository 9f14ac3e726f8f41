"""The interface of a runtime: clocks, tasks, locks, events, conditions and streams."""

from __future__ import annotations

import contextlib
import random
import ssl
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from pairbus.runtime.protocols import Files, Worker

T = TypeVar("T")


class AsyncTask(Protocol):
    """Something that runs in the background."""

    @property
    def is_done(self) -> bool:
        """It has ended."""

    async def join(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; False on a timeout, or if called by the task itself."""


class AsyncLock(contextlib.AbstractAsyncContextManager[object], Protocol):
    """One holder at a time, also while the holder awaits; not reentrant."""


class AsyncEvent(Protocol):
    """A flag that can be waited for."""

    def set(self) -> None:
        """Set the flag and wake all waiters."""

    def clear(self) -> None:
        """Reset the flag."""

    def is_set(self) -> bool:
        """The flag is set."""

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set; False on a timeout."""


class AsyncCondition(contextlib.AbstractContextManager[object], Protocol):
    """Guards state and waits for its changes: see the rules in `pairbus.runtime`."""

    async def wait(self, timeout: float | None = None) -> bool:
        """Release, wait to be notified, acquire again; False on a timeout.

        It may return without a notification: check the state again.
        """

    def notify_all(self) -> None:
        """Wake all waiters; the caller holds the condition."""

    def released(self) -> contextlib.AbstractContextManager[object]:
        """Release the condition for a `with` block; the caller holds it before and after."""


class AsyncStream(Protocol):
    """A connection: only `wait` waits. Every method may raise OSError if the connection is lost."""

    @property
    def has_unsent(self) -> bool:
        """Some of the written data has not been passed to the operating system yet."""

    def write(self, data: bytes) -> None:
        """Write as much as possible now; the rest follows with `flush` (or automatically)."""

    def flush(self) -> None:
        """Write more of the unsent data, as much as possible now."""

    def read(self) -> bytes | None:
        """The bytes that have arrived; None if none, `b""` at the end of the stream."""

    async def wait(self, timeout: float, *, read: bool = True) -> None:
        """Wait until data arrives, unsent data can be written, or the timeout has passed.

        It may return early. `close` ends it.

        Args:
            timeout: seconds.
            read: False to wait only until unsent data, if there is any, can be written.
        """

    def close(self) -> None:
        """Close without waiting; wakes all callers of `wait`. A second call does nothing."""


class AsyncRuntime(Protocol):
    """Clocks, random numbers, tasks, locks, connections and files of a component."""

    @property
    def files(self) -> Files:
        """The local files."""

    @property
    def random(self) -> random.Random:
        """Random numbers; not for secrets."""

    def time(self) -> float:
        """Seconds since 1970; may jump."""

    def monotonic(self) -> float:
        """Seconds of a clock that only goes forward; for timeouts."""

    def uuid4(self) -> uuid.UUID:
        """A random UUID."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    def spawn(
        self, function: Callable[..., Coroutine[Any, Any, None]], *args: object, name: str
    ) -> AsyncTask:
        """Run in the background; an exception is logged under the name."""

    async def run_blocking(self, function: Callable[..., T], *args: object) -> T:
        """Call a function that may block, without blocking other tasks."""

    def lock(self) -> AsyncLock:
        """A new lock."""

    def event(self) -> AsyncEvent:
        """A new event, not set."""

    def condition(self) -> AsyncCondition:
        """A new condition."""

    def worker(self, name: str) -> Worker:
        """A new worker, idle."""

    async def connect(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, timeout: float
    ) -> AsyncStream:
        """Connect, with a TLS handshake if `tls` is given.

        Raises:
            TimeoutError: the timeout has passed.
            OSError: the host cannot be reached, or is not trusted.
        """
