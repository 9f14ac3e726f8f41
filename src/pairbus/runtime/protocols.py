"""What a runtime offers. Each `Async…` protocol has a twin that blocks instead of awaiting."""

from __future__ import annotations

import random
import ssl
import uuid
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from os import PathLike
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
Path = str | PathLike[str]


# -- the same in both worlds


class FileInfo(NamedTuple):
    """A file's size in bytes and when it was last written, in seconds since 1970."""

    size: int
    modified: float


class AppendFile(Protocol):
    """A file that is open for appending; other processes may append to it, too."""

    @property
    def size(self) -> int:
        """The size of the file now, whoever wrote it."""
        ...

    def write(self, *parts: bytes) -> None:
        """Append the parts in one write.

        Raises:
            OSError: not everything was written; the beginning may be in the file.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to its first `size` bytes."""
        ...

    def sync(self) -> None:
        """Return when everything written survives a power failure (fsync)."""
        ...

    def close(self) -> None:
        """Close the file, without a sync; a second call does nothing."""
        ...


class Files(Protocol):
    """Small local files. Every method may raise OSError; none waits for anything but the disk."""

    def read(self, path: Path) -> bytes:
        """The content; raises FileNotFoundError."""
        ...

    def write(self, path: Path, data: bytes, *, sync: bool = False, mode: int = 0o600) -> None:
        """Replace the content atomically: a reader sees the old file or the new one.

        Args:
            path: the file; its folder exists.
            data: the new content.
            sync: return only when the new file survives a power failure.
            mode: the file's permissions, less the process's umask.
        """
        ...

    def open_append(self, path: Path, *, create: bool = True) -> AppendFile:
        """Open for appending; without `create` a missing file raises FileNotFoundError."""
        ...

    def info(self, path: Path) -> FileInfo | None:
        """Size and time of a file or folder; None if there is none."""
        ...

    def list(self, folder: Path) -> Sequence[str]:
        """The names in a folder, sorted; empty if there is no such folder."""
        ...

    def make_folder(self, path: Path, *, mode: int = 0o777, sync: bool = False) -> None:
        """Make a folder and its parents; an existing one is left as it is.

        Args:
            path: the folder.
            mode: its permissions, less the process's umask.
            sync: return only when the folder survives a power failure.
        """
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder; a missing one is fine."""
        ...

    def lock(self, path: Path, *, block: bool = True) -> AbstractContextManager[object]:
        """Hold a lock file, exclusive among processes, until the end of the `with` block.

        Raises:
            BlockingIOError: with `block=False`: somebody else holds it.
        """
        ...


class Worker(Protocol):
    """Runs functions one after the other, in the order of the calls, off the event loop."""

    def submit(self, function: Callable[..., object], *args: object) -> None:
        """Run the function later; it must not raise."""
        ...

    def call(self, function: Callable[..., T], *args: object) -> T:
        """Run the function after those submitted before; block until it returns or raises."""
        ...

    def close(self) -> None:
        """Run what was submitted, then stop; a second call does nothing."""
        ...


# -- asyncio


class AsyncTask(Protocol):
    """Something that runs in the background."""

    @property
    def is_done(self) -> bool:
        """It has ended."""
        ...

    async def join(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; False when the time is up, or within the task itself."""
        ...


class AsyncLock(AbstractAsyncContextManager[object], Protocol):
    """One holder at a time, also while the holder awaits; not reentrant."""


class AsyncEvent(Protocol):
    """A flag that can be waited for."""

    def set(self) -> None:
        """Set the flag and wake everybody who waits for it."""
        ...

    def clear(self) -> None:
        """Reset the flag."""
        ...

    def is_set(self) -> bool:
        """The flag is set."""
        ...

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set; False when the time is up."""
        ...


class AsyncCondition(AbstractContextManager[object], Protocol):
    """Guards state and waits for its changes: see the rules in `pairbus.runtime`."""

    async def wait(self, timeout: float | None = None) -> bool:
        """Release, wait to be notified, acquire again; False when the time is up.

        It may return for no reason: check the state again.
        """
        ...

    def notify_all(self) -> None:
        """Wake everybody who waits; the caller holds the condition."""
        ...

    def released(self) -> AbstractContextManager[object]:
        """Let others in for the length of a `with` block; the caller holds the condition."""
        ...


class AsyncStream(Protocol):
    """A connection: nothing but `wait` waits. Every method may raise OSError when it is lost."""

    @property
    def has_unsent(self) -> bool:
        """Some of the data written is not yet with the operating system."""
        ...

    def write(self, data: bytes) -> None:
        """Write what can be written now; the rest follows with `flush` (or by itself)."""
        ...

    def flush(self) -> None:
        """Write more of what is unsent, as much as can be written now."""
        ...

    def read(self) -> bytes | None:
        """What has arrived; None if nothing has, `b""` at the end of the stream."""
        ...

    async def wait(self, timeout: float, *, read: bool = True) -> None:
        """Wait until data arrives, unsent data can be written, or the time is up.

        It may return for no reason. `close` ends it.

        Args:
            timeout: seconds.
            read: False to wait only until unsent data can be written.
        """
        ...

    def close(self) -> None:
        """Close without waiting; wakes everybody in `wait`. A second call does nothing."""
        ...


class AsyncRuntime(Protocol):
    """The world of a component that runs in an event loop."""

    @property
    def files(self) -> Files:
        """The local files."""
        ...

    @property
    def random(self) -> random.Random:
        """Random numbers; not for secrets."""
        ...

    def time(self) -> float:
        """Seconds since 1970; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that only goes forward; for timeouts."""
        ...

    def uuid4(self) -> uuid.UUID:
        """A random UUID."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def spawn(
        self, function: Callable[..., Coroutine[Any, Any, None]], *args: object, name: str
    ) -> AsyncTask:
        """Run in the background; an exception is logged under the name."""
        ...

    async def run_blocking(self, function: Callable[..., T], *args: object) -> T:
        """Call a function that may block, without blocking other tasks."""
        ...

    def lock(self) -> AsyncLock:
        """A new lock."""
        ...

    def event(self) -> AsyncEvent:
        """A new event, not set."""
        ...

    def condition(self) -> AsyncCondition:
        """A new condition."""
        ...

    def worker(self, name: str) -> Worker:
        """A new worker, idle."""
        ...

    async def connect(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, timeout: float
    ) -> AsyncStream:
        """Connect, and shake hands if `tls` is given.

        Raises:
            TimeoutError: the time is up.
            OSError: the host cannot be reached, or is not trusted.
        """
        ...


# -- threads


class Task(Protocol):
    """Something that runs in the background."""

    @property
    def is_done(self) -> bool:
        """It has ended."""
        ...

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; False when the time is up, or within the task itself."""
        ...


class Lock(AbstractContextManager[object], Protocol):
    """One holder at a time; not reentrant."""


class Event(Protocol):
    """See `AsyncEvent`."""

    def set(self) -> None:
        """Set the flag and wake everybody who waits for it."""
        ...

    def clear(self) -> None:
        """Reset the flag."""
        ...

    def is_set(self) -> bool:
        """The flag is set."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set; False when the time is up."""
        ...


class Condition(AbstractContextManager[object], Protocol):
    """See `AsyncCondition`."""

    def wait(self, timeout: float | None = None) -> bool:
        """Release, wait to be notified, acquire again; False when the time is up."""
        ...

    def notify_all(self) -> None:
        """Wake everybody who waits; the caller holds the condition."""
        ...

    def released(self) -> AbstractContextManager[object]:
        """Let others in for the length of a `with` block; the caller holds the condition."""
        ...


class Stream(Protocol):
    """See `AsyncStream`."""

    @property
    def has_unsent(self) -> bool:
        """Some of the data written is not yet with the operating system."""
        ...

    def write(self, data: bytes) -> None:
        """Write what can be written now; the rest follows with `flush`."""
        ...

    def flush(self) -> None:
        """Write more of what is unsent, as much as can be written now."""
        ...

    def read(self) -> bytes | None:
        """What has arrived; None if nothing has, `b""` at the end of the stream."""
        ...

    def wait(self, timeout: float, *, read: bool = True) -> None:
        """Wait until data arrives, unsent data can be written, or the time is up."""
        ...

    def close(self) -> None:
        """Close without waiting; wakes everybody in `wait`. A second call does nothing."""
        ...


class Runtime(Protocol):
    """The world of a component that runs in threads: see `AsyncRuntime`."""

    @property
    def files(self) -> Files:
        """The local files."""
        ...

    @property
    def random(self) -> random.Random:
        """Random numbers; not for secrets."""
        ...

    def time(self) -> float:
        """Seconds since 1970; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that only goes forward; for timeouts."""
        ...

    def uuid4(self) -> uuid.UUID:
        """A random UUID."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def spawn(self, function: Callable[..., None], *args: object, name: str) -> Task:
        """Run in the background; an exception is logged under the name."""
        ...

    def run_blocking(self, function: Callable[..., T], *args: object) -> T:
        """Call a function that may block."""
        ...

    def lock(self) -> Lock:
        """A new lock."""
        ...

    def event(self) -> Event:
        """A new event, not set."""
        ...

    def condition(self) -> Condition:
        """A new condition."""
        ...

    def worker(self, name: str) -> Worker:
        """A new worker, idle."""
        ...

    def connect(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, timeout: float
    ) -> Stream:
        """Connect, and shake hands if `tls` is given.

        Raises:
            TimeoutError: the time is up.
            OSError: the host cannot be reached, or is not trusted.
        """
        ...
