"""The files of a ledger, below a directory or a URL; readers see complete files only.

`/var/lib/ledger`, `s3://bucket/ledger` and `gs://…` work alike: local files go through the
runtime, others through pyarrow's filesystems. A file is written under a temporary name, with a dot
or underscore in front that readers skip, and renamed when it is complete. On a local disk the file
and its directory are synced by then.
"""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from pairbus.ledger.schema import VERSION
from pairbus.runtime import ThreadRuntime

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    import pyarrow.fs as pafs

    from pairbus.runtime import Runtime

MARKER = "ledger.json"


def shown(location: str) -> str:
    """Return a location for display: a URL without its query and its password."""
    if "://" not in location:
        return location
    scheme, rest = location.split("?", 1)[0].split("://", 1)
    place, slash, path = rest.partition("/")
    user, at, host = place.rpartition("@")
    if ":" in user:
        user = f"{user.split(':', 1)[0]}:***"
    return f"{scheme}://{user}{at}{host}{slash}{path}"


class LedgerError(Exception):
    """A ledger cannot be used: one line with its location and the reason."""


class Store:
    """Files below one location.

    Args:
        location: a path, or a URL that pyarrow knows (`file`, `s3`, `gs`, `abfs`, `hdfs`).
        runtime: clock, random names and local files.

    Attributes:
        filesystem: The pyarrow filesystem.
    """

    def __init__(self, location: str, *, runtime: Runtime | None = None) -> None:
        self.location = str(location)
        self.shown = shown(self.location)
        self._made: set[str] = set()
        self.filesystem, self._root = _resolve(self.location)
        self._runtime = runtime or ThreadRuntime()
        self._files = self._runtime.files if self.filesystem.type_name == "local" else None

    @classmethod
    def create(cls, location: str, *, runtime: Runtime | None = None) -> Store:
        """Return the store of a ledger to write to: marked as one, if it is new.

        Raises:
            LedgerError: it is a ledger of another version.
        """
        store = cls(location, runtime=runtime)
        if not store.has_marker():
            text = json.dumps({"format": "pairbus ledger", "version": VERSION}) + "\n"
            store.write_whole(MARKER, text.encode())
        return store

    def __repr__(self) -> str:
        return f"<Store {self.shown}>"

    def path(self, name: str) -> str:
        """Return the full path of a file in the filesystem."""
        return f"{self._root}/{name}"

    def new_name(self) -> str:
        """Return a random part for the name of a file."""
        return self._runtime.uuid4().hex

    def write_whole(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write a file that appears whole or not at all; on a local disk, durable on return.

        Raises:
            LedgerError: the store cannot rename files.
        """
        folder, _, leaf = name.rpartition("/")
        self._ensure(folder)
        if self._files is not None:
            self._files.write(self.path(name), bytes(memoryview(data)), sync=True, mode=0o666)
            return
        # no `.parquet` at the end: a reader that globs must not find it either
        temporary = f"{folder}/_{leaf}.{self._runtime.uuid4().hex[:8]}.tmp".lstrip("/")
        try:
            with self.filesystem.open_output_stream(self.path(temporary)) as stream:
                stream.write(data)
            self.filesystem.move(self.path(temporary), self.path(name))
        except BaseException as exc:
            with contextlib.suppress(OSError):  # readers skip temporary files by their name
                self.delete(temporary)
            if isinstance(exc, NotImplementedError):  # Azure without a hierarchical namespace
                raise LedgerError(f"{self.shown}: {first_line(exc)}") from exc
            raise

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none."""
        try:
            if self._files is not None:
                return self._files.read(self.path(name))
            with self.filesystem.open_input_stream(self.path(name)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def list(self, folder: str, suffix: str = "") -> list[str]:
        """Return the names (with their folder) of the complete files in a folder, sorted."""
        if self._files is not None:
            names = list(self._files.list(self.path(folder)))
        else:
            names = [name for name, _, _ in self._infos(folder)]
        return sorted(f"{folder}/{n}" for n in names if _is_whole(n) and n.endswith(suffix))

    def size(self, folder: str) -> int:
        """Return the total size of the complete files in a folder, in bytes."""
        return sum(size for name, size, _ in self._infos(folder) if _is_whole(name))

    def leftovers(self, folder: str, *, age: float) -> tuple[str, ...]:
        """Return the temporary files in a folder that are older than `age` seconds.

        A killed process left them: no write takes that long.
        """
        oldest = self._runtime.time() - age
        return tuple(
            f"{folder}/{name}"
            for name, _, changed in sorted(self._infos(folder))
            if not _is_whole(name) and name.endswith(".tmp") and changed < oldest
        )

    def _infos(self, folder: str) -> Sequence[tuple[str, int, float]]:
        """Return the name, the size and the time of the last change of each file in a folder."""
        path = self.path(folder)
        if self._files is not None:
            found = [(name, self._files.info(f"{path}/{name}")) for name in self._files.list(path)]
            return [(name, info.size, info.modified) for name, info in found if info is not None]
        import pyarrow.fs as pafs

        selector = pafs.FileSelector(path, recursive=False, allow_not_found=True)
        try:
            infos = self.filesystem.get_file_info(selector)
        except FileNotFoundError:
            # pyarrow failed to open the folder, and then found that it exists: the folder was made
            # in between.
            infos = self.filesystem.get_file_info(selector)
        return [
            (info.base_name, info.size or 0, info.mtime.timestamp() if info.mtime else math.inf)
            for info in infos
            if info.type == pafs.FileType.File
        ]

    def delete(self, name: str) -> None:
        """Delete a file; nothing happens if it does not exist."""
        if self._files is not None:
            self._files.remove(self.path(name))
            return
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(self.path(name))

    def has_marker(self) -> bool:
        """Return whether there is a `ledger.json`.

        Raises:
            LedgerError: it is not valid, or of another version.
        """
        raw = self.read(MARKER)
        if raw is None:
            return False
        try:
            version = json.loads(raw)["version"]
        except (ValueError, TypeError, KeyError):
            raise LedgerError(f"{self.shown}: {MARKER} is not a valid ledger marker") from None
        if version != VERSION:
            raise LedgerError(
                f"{self.shown}: ledger of version {version}, this pairbus reads {VERSION}"
            )
        return True

    def require_ledger(self) -> None:
        """Raise LedgerError unless this is a ledger of our version."""
        try:
            is_ledger = self.has_marker()
        except OSError as exc:
            raise LedgerError(f"{self.shown}: {first_line(exc)}") from exc
        if not is_ledger:
            why = f"no {MARKER} there" if self._exists() else "it does not exist"
            raise LedgerError(f"{self.shown}: not a ledger ({why})")

    def _exists(self) -> bool:
        import pyarrow.fs as pafs

        return bool(self.filesystem.get_file_info(self._root).type != pafs.FileType.NotFound)

    def _ensure(self, folder: str) -> None:
        if folder in self._made:
            return
        if self._files is not None:
            self._files.make_folder(self.path(folder).rstrip("/"), sync=True)
        else:
            self.filesystem.create_dir(self.path(folder), recursive=True)
        self._made.add(folder)


def _is_whole(name: str) -> bool:
    """Return whether a file was written completely, by its name."""
    return not name.startswith(("_", "."))


def _resolve(location: str) -> tuple[pafs.FileSystem, str]:
    try:
        import pyarrow.fs as pafs
    except ImportError as exc:
        raise LedgerError("a ledger needs pyarrow: pip install 'pairbus[ledger]'") from exc
    if "://" not in location:
        return pafs.LocalFileSystem(), str(Path(location).expanduser().absolute())
    try:
        fs, root = pafs.FileSystem.from_uri(location)
    except (ValueError, OSError, NotImplementedError) as exc:  # the last: built without this store
        text = first_line(exc).replace(location, shown(location))
        raise LedgerError(f"{shown(location)}: {text}") from None
    return fs, str(root).rstrip("/")


def first_line(exc: BaseException) -> str:
    """Return the first line of an error, or its class."""
    return (str(exc).splitlines() or [type(exc).__name__])[0]
