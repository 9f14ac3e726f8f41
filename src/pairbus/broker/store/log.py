"""A file of groups that are kept but not in the tables yet: appended to, and read after a crash.

Writing one message into SQLite as a transaction of its own takes ten times as long as appending it
to a file. So small groups are appended here first, one `writev` each, and go into the tables many
at a time. What `append` wrote is in the operating system's hands: it survives the end of the
process, however sudden.

A record is its number, its length, the CRC of its bytes, and its bytes. The first one that is cut
short or damaged ends the file: it was being written when the process ended, and nobody was told
that it is kept.
"""

from __future__ import annotations

import marshal
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

_HEAD = struct.Struct(">QII")
_FORMAT = (
    2  # of marshal: without references, which rows do not have; all versions of Python read it
)


class Log:
    """The log of one store. Not thread-safe: one owner at a time.

    Args:
        path: the file; made if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self._file).st_size
        self.number = 0
        """Of the last record that was written or read; numbers only go up."""
        self.is_sound = True
        """Whether it may be appended to: a failed write that could not be undone ends that."""

    def __repr__(self) -> str:
        return f"<Log {self._path} {self.size} bytes>"

    def append(self, group: tuple[Any, ...]) -> None:
        """Write one group, whole or not at all.

        Raises:
            OSError: it could not be written.
            ValueError: the group has a value that cannot be written.
        """
        data = marshal.dumps(group, _FORMAT)
        head = _HEAD.pack(self.number + 1, len(data), crc32(data))
        whole = len(data) + _HEAD.size
        try:
            written = os.pwritev(self._file, (head, data), self.size)
            if written != whole:
                raise OSError(f"only {written} of {whole} bytes could be written")
        except OSError:
            self._cut()
            raise
        self.number += 1
        self.size += whole

    def records(self) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """What is in the file, in order: ``(number, group)``. What follows damage is cut off."""
        self.size = 0
        for number, group, end in parse(self._path.read_bytes()):
            self.number, self.size = number, end
            yield number, group
        self._cut()

    def clear(self) -> None:
        """Forget everything: it is in the tables."""
        self.size = 0
        self._cut()

    def close(self) -> None:
        """Close the file; nothing can be appended any more."""
        self.is_sound = False
        os.close(self._file)

    def _cut(self) -> None:
        try:
            os.ftruncate(self._file, self.size)
            self.is_sound = True
        except OSError:
            self.is_sound = False


def parse(data: bytes) -> Iterator[tuple[int, tuple[Any, ...], int]]:
    """The records in the bytes of a log: number, group, and where the next one begins."""
    at = last = 0
    while at + _HEAD.size <= len(data):
        number, length, crc = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        content = data[at : at + length]
        if len(content) != length or crc32(content) != crc or number <= last:
            return
        at += length
        last = number
        yield number, marshal.loads(content), at
