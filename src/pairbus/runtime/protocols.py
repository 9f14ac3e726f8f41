"""The parts of a runtime without coroutines: local files, and a worker for blocking work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")
Path = str | PathLike[str]


class FileInfo(NamedTuple):
    """A file's size in bytes and when it was last written, in seconds since 1970."""

    size: int
    modified: float


class AppendFile(Protocol):
    """A file that is open for appending; other processes may append to it, too."""

    @property
    def size(self) -> int:
        """The current size of the file, with the bytes of all writers."""

    def write(self, *parts: bytes) -> None:
        """Append the parts in one write.

        Raises:
            OSError: not everything was written; the beginning may be in the file.
        """

    def truncate(self, size: int) -> None:
        """Cut the file to its first `size` bytes."""

    def sync(self) -> None:
        """Return when everything written survives a power failure (fsync)."""

    def close(self) -> None:
        """Close the file, without a sync; a second call does nothing."""


class Files(Protocol):
    """Small local files. Every method may raise OSError; only `lock` waits for other processes."""

    def read(self, path: Path) -> bytes:
        """The content; raises FileNotFoundError."""

    def write(self, path: Path, data: bytes, *, sync: bool = False, mode: int = 0o600) -> None:
        """Replace the content atomically: a reader sees the old file or the new one.

        Args:
            path: the file; its folder exists.
            data: the new content.
            sync: return only when the new file survives a power failure.
            mode: the file's permissions, less the process's umask.
        """

    def open_append(self, path: Path, *, create: bool = True) -> AppendFile:
        """Open for appending; without `create` a missing file raises FileNotFoundError."""

    def info(self, path: Path) -> FileInfo | None:
        """Size and time of a file or folder; None if there is none."""

    def list(self, folder: Path) -> Sequence[str]:
        """The names in a folder, sorted; empty if there is no such folder."""

    def make_folder(self, path: Path, *, mode: int = 0o777, sync: bool = False) -> None:
        """Make a folder and its parents; an existing one is left as it is.

        Args:
            path: the folder.
            mode: its permissions, less the process's umask.
            sync: return only when the folder survives a power failure.
        """

    def remove(self, path: Path) -> None:
        """Remove a file; nothing happens if it does not exist."""

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder; nothing happens if it does not exist."""

    def lock(self, path: Path, *, block: bool = True) -> AbstractContextManager[object]:
        """Hold a lock file, exclusive among processes, until the end of the `with` block.

        Raises:
            BlockingIOError: with `block=False`: another process holds it.
        """


class Worker(Protocol):
    """Runs functions one after the other, in the order of the calls, off the event loop."""

    def submit(self, function: Callable[..., object], *args: object) -> None:
        """Run the function later; it must not raise."""

    def call(self, function: Callable[..., T], *args: object) -> T:
        """Run the function after those submitted before; block until it returns or raises."""

    def close(self) -> None:
        """Run the submitted functions, then stop; a second call does nothing."""
