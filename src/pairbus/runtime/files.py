"""Files on the local disk."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator, Sequence

from pairbus.names import sync_folder, write_atomically
from pairbus.runtime.protocols import FileInfo, Path


class LocalAppendFile:
    """A file that is open for appending."""

    def __init__(self, path: Path, *, create: bool) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._path = path
        self._file = os.open(path, flags, 0o600)

    def __repr__(self) -> str:
        return f"<LocalAppendFile {os.fspath(self._path)}>"

    @property
    def size(self) -> int:
        """The current size of the file, with the bytes of all writers."""
        return os.fstat(self._file).st_size

    def write(self, *parts: bytes) -> None:
        """Append the parts in one write; raises OSError if not everything was written."""
        wanted = sum(map(len, parts))
        written = os.writev(self._file, parts)
        if written != wanted:
            raise OSError(f"{self._path}: only {written} of {wanted} bytes were written")

    def truncate(self, size: int) -> None:
        """Cut the file to its first `size` bytes."""
        os.ftruncate(self._file, size)

    def sync(self) -> None:
        """Return when everything written survives a power failure."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class LocalFiles:
    """Files on the local disk: see `pairbus.runtime.Files`."""

    def read(self, path: Path) -> bytes:
        """The content; raises FileNotFoundError."""
        return pathlib.Path(path).read_bytes()

    def write(self, path: Path, data: bytes, *, sync: bool = False, mode: int = 0o600) -> None:
        """Replace the content: write a temporary file beside it, then rename it."""
        write_atomically(path, memoryview(data), mode=mode, sync=sync)

    def open_append(self, path: Path, *, create: bool = True) -> LocalAppendFile:
        """Open for appending."""
        return LocalAppendFile(path, create=create)

    def info(self, path: Path) -> FileInfo | None:
        """Size and time; None if there is no such file."""
        try:
            found = pathlib.Path(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileInfo(found.st_size, found.st_mtime)

    def list(self, folder: Path) -> Sequence[str]:
        """The names in a folder, sorted; empty if there is no such folder."""
        try:
            return sorted(path.name for path in pathlib.Path(folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_folder(self, path: Path, *, mode: int = 0o777, sync: bool = False) -> None:
        """Make a folder and its parents; an existing one is left as it is."""
        folder = pathlib.Path(path)
        missing = [parent for parent in folder.parents if not parent.exists()]
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
        if sync:  # the entry of each new folder is in its parent
            for made in (folder, *missing):
                sync_folder(made.parent)

    def remove(self, path: Path) -> None:
        """Remove a file; nothing happens if it does not exist."""
        pathlib.Path(path).unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder; nothing happens if it does not exist."""
        with contextlib.suppress(FileNotFoundError):
            pathlib.Path(path).rmdir()

    @contextlib.contextmanager
    def lock(self, path: Path, *, block: bool = True) -> Iterator[None]:
        """Hold a lock file, exclusive among processes (flock)."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if block else fcntl.LOCK_NB))
            yield
        finally:
            os.close(file)
