"""Files in memory that behave as after a power failure: data that was not synced may be gone.

A file has the content that readers see and the content that is known to be on the disk. `crash`
takes away the unsynced data, or a part of it, as the seed decides.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pairbus.runtime import FileInfo

Path = str | os.PathLike[str]


@dataclass
class _File:
    content: bytes
    durable: bytes | None  # on the disk; None if the file is not there
    modified: float


class SimulatedFiles:
    """The files of one simulated machine: see `pairbus.runtime.Files`."""

    def __init__(self, chance: random.Random, clock: Callable[[], float]) -> None:
        self._random = chance
        self._clock = clock
        self._files: dict[str, _File] = {}
        self._folders: set[str] = {"/"}
        self._locked: set[str] = set()
        self.is_full = False
        """Writing fails as on a full disk."""
        self.refused = 0
        """Writes that failed for that reason."""

    # -- faults

    def crash(self) -> None:
        """Lose power: each file keeps its synced data, and perhaps more."""
        self._locked.clear()
        for path in sorted(self._files):
            file = self._files[path]
            if file.content == file.durable:
                continue
            kept = file.durable
            if kept is not None and file.content.startswith(kept):
                kept = file.content[: self._random.randint(len(kept), len(file.content))]
            elif self._random.random() < 0.5:
                kept = file.content
            if kept is None:
                del self._files[path]
            else:
                file.content = file.durable = kept

    # -- `pairbus.runtime.Files`

    def read(self, path: Path) -> bytes:
        """The content; raises FileNotFoundError."""
        return self._file(path).content

    def write(self, path: Path, data: bytes, *, sync: bool = False, mode: int = 0o600) -> None:
        """Replace the content."""
        self._check_space()
        name = self._name(path)
        old = self._files.get(name)
        durable = old.durable if old is not None else None
        self._files[name] = _File(bytes(data), bytes(data) if sync else durable, self._clock())

    def open_append(self, path: Path, *, create: bool = True) -> SimulatedAppendFile:
        """Open for appending."""
        name = self._name(path)
        if name not in self._files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            self._check_space()
            self._files[name] = _File(b"", None, self._clock())
        return SimulatedAppendFile(self, name)

    def info(self, path: Path) -> FileInfo | None:
        """Size and time; None if there is no such file or folder."""
        name = _normal(path)
        file = self._files.get(name)
        if file is not None:
            return FileInfo(len(file.content), file.modified)
        return FileInfo(0, 0.0) if name in self._folders else None

    def list(self, folder: Path) -> list[str]:
        """The names in a folder, sorted."""
        name = _normal(folder)
        inside = [*self._files, *(one for one in self._folders if one != "/")]
        return sorted(posixpath.basename(one) for one in inside if posixpath.dirname(one) == name)

    def make_folder(self, path: Path, *, mode: int = 0o777, sync: bool = False) -> None:
        """Make a folder and its parents; folders always survive a crash."""
        name = _normal(path)
        while name not in self._folders:
            self._folders.add(name)
            name = posixpath.dirname(name)

    def remove(self, path: Path) -> None:
        """Remove a file; a missing one is fine."""
        self._files.pop(_normal(path), None)

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder; a missing one is fine."""
        if self.list(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), _normal(path))
        self._folders.discard(_normal(path))

    @contextlib.contextmanager
    def lock(self, path: Path, *, block: bool = True) -> Iterator[None]:
        """Hold a lock file. Nobody can wait for one here, as nobody else runs meanwhile."""
        name = _normal(path)
        if name in self._locked:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), name)
        self._locked.add(name)
        try:
            yield
        finally:
            self._locked.discard(name)

    # -- for files that are open

    def append(self, name: str, data: bytes) -> None:
        """Add to the end of a file."""
        self._check_space()
        file = self._file(name)
        file.content += data
        file.modified = self._clock()

    def truncate(self, name: str, size: int) -> None:
        """Cut a file."""
        file = self._file(name)
        file.content = file.content[:size]

    def sync(self, name: str) -> None:
        """What a file has now survives a crash."""
        file = self._file(name)
        file.durable = file.content

    def _file(self, path: Path) -> _File:
        name = _normal(path)
        if name not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._files[name]

    def _name(self, path: Path) -> str:
        name = _normal(path)
        if posixpath.dirname(name) not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return name

    def _check_space(self) -> None:
        if self.is_full:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class SimulatedAppendFile:
    """A file that is open for appending."""

    def __init__(self, files: SimulatedFiles, name: str) -> None:
        self._files = files
        self._name = name

    @property
    def size(self) -> int:
        """The size of the file now."""
        return len(self._files.read(self._name))

    def write(self, *parts: bytes) -> None:
        """Append the parts."""
        self._files.append(self._name, b"".join(parts))

    def truncate(self, size: int) -> None:
        """Cut the file to its first `size` bytes."""
        self._files.truncate(self._name, size)

    def sync(self) -> None:
        """What was written survives a crash."""
        self._files.sync(self._name)

    def close(self) -> None:
        """Close the file."""


def _normal(path: Path) -> str:
    return posixpath.normpath(posixpath.join("/", os.fspath(path)))
