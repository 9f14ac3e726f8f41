"""The files of a state directory in an object store, through pyarrow's file systems.

An object store has no rename, no append and no lock. A write replaces one small object as a whole:
its readers see the old content or the new. Records that several processes write, such as the
reports of tasks, are one object each, under a name of its own.
"""

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pairbus.runtime import AsyncRuntime, Files, Runtime
from pairbus.runtime.protocols import FileInfo

if TYPE_CHECKING:
    import pyarrow.fs as pafs

__all__ = ["ObjectFiles", "StateFiles", "is_url", "open_files"]

P = ParamSpec("P")
T = TypeVar("T")

_QUERY = re.compile(r"\?[^\s'\"]*")


def _masked(method: Callable[P, T]) -> Callable[P, T]:
    """Leave the query of a URL, which may hold a signature, out of the errors of a method."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except OSError as exc:
            if _QUERY.search(str(exc)) is None:
                raise
            raise type(exc)(_QUERY.sub("?…", str(exc))) from None

    return call


class ObjectFiles:
    """Objects below one bucket.

    Args:
        filesystem: pyarrow's.
    """

    def __init__(self, filesystem: "pafs.FileSystem") -> None:
        self._fs = filesystem

    @_masked
    def read(self, path: PurePath) -> bytes:
        """Return the content; raises FileNotFoundError."""
        with self._fs.open_input_stream(str(path)) as stream:
            return bytes(stream.read())

    @_masked
    def write(self, path: PurePath, data: bytes, *, sync: bool = False) -> None:
        """Put an object: it appears whole when this returns, and is durable."""
        with self._fs.open_output_stream(str(path)) as stream:
            stream.write(data)

    @_masked
    def info(self, path: PurePath) -> FileInfo | None:
        """Return size and time of an object; None if there is none."""
        import pyarrow.fs as pafs

        found = self._fs.get_file_info(str(path))
        if found.type != pafs.FileType.File:
            return None
        return FileInfo(found.size, found.mtime.timestamp() if found.mtime else 0.0)

    @_masked
    def list(self, folder: PurePath) -> Sequence[str]:
        """Return the names of objects and folders in a folder, sorted."""
        import pyarrow.fs as pafs

        selector = pafs.FileSelector(str(folder), allow_not_found=True)
        return sorted(info.base_name for info in self._fs.get_file_info(selector))

    @_masked
    def tree(self, folder: PurePath) -> dict[PurePosixPath, float]:
        """Return all objects below a folder with the time of each, in one listing."""
        import pyarrow.fs as pafs

        selector = pafs.FileSelector(str(folder), allow_not_found=True, recursive=True)
        return {
            PurePosixPath(info.path): info.mtime.timestamp() if info.mtime else 0.0
            for info in self._fs.get_file_info(selector)
            if info.type == pafs.FileType.File
        }

    def make_folder(self, path: PurePath, *, mode: int = 0o777) -> None:
        """Do nothing: a folder is the beginning of a name."""

    @_masked
    def remove(self, path: PurePath) -> None:
        """Delete an object; a missing one is fine."""
        try:
            self._fs.delete_file(str(path))
        except FileNotFoundError:
            pass


StateFiles = Files | ObjectFiles
"""The files of a state directory, local or in an object store."""


def is_url(location: str | PurePath) -> bool:
    """Whether a location is the URL of an object store."""
    return "://" in str(location) and not str(location).startswith("file://")


@functools.lru_cache(maxsize=16)
def _open(location: str) -> tuple[ObjectFiles, PurePosixPath]:
    import pyarrow.fs as pafs

    try:
        filesystem, root = pafs.FileSystem.from_uri(location)
    except (ValueError, OSError, NotImplementedError) as exc:
        # The text may repeat the URL, which may have a secret.
        from pairbus.exceptions import SyphonError  # executors have no azure-servicebus

        raise SyphonError(f"state: no such object store ({type(exc).__name__})") from None
    return ObjectFiles(filesystem), PurePosixPath(root)


def open_files(
    location: str | PurePath, runtime: AsyncRuntime | Runtime
) -> tuple[StateFiles, PurePath]:
    """Return the files of a location, and the path of the location among them.

    Raises:
        SyphonError: pyarrow knows no such store.
    """
    if is_url(location):
        return _open(str(location))
    return runtime.files, Path(str(location).removeprefix("file://"))
