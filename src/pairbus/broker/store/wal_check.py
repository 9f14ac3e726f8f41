"""Finds damage in SQLite's write-ahead log that would hide committed transactions.

SQLite reads its log up to the first frame whose checksum is wrong and ignores the rest: that is
right for a frame that was being written when the process ended, and silently drops transactions
when the damage is in the middle. So the log is checked before it is used: a bad frame is harmless
only if no commit of the same log follows it.

The formats are those of https://www.sqlite.org/fileformat2.html#the_write_ahead_log and
https://www.sqlite.org/walformat.html: a header of 32 bytes, then frames of 24 bytes and a page
each. Each checksum continues the previous one. A log that starts again at the beginning of the file
has new salts, so that old frames behind it are ignored. The number of valid frames is read from the
header of SQLite's shared memory; computing all checksums here would take seconds.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from dataclasses import dataclass
from pathlib import Path

from pairbus.runtime import Files

HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682  # the lowest bit says whether checksums read big-endian words
_VALID_FRAMES = struct.Struct("=I")
_VALID_FRAMES_AT = 16  # in the header of the shared memory


@dataclass(frozen=True, slots=True)
class WalDamage:
    """Damage that hides committed transactions.

    Attributes:
        path: The log.
        offset: Where the damaged header or frame begins.
        intact: Bytes from the start of the file that hold only whole transactions.
        lost: Commits behind the damage; None if unknown, because the header is damaged.
    """

    path: Path
    offset: int
    intact: int
    lost: int | None

    def __str__(self) -> str:
        lost = "transactions" if self.lost is None else f"{self.lost} transactions"
        return f"The file '{self.path}' is damaged at offset {self.offset}: {lost} behind it"


def find_damage(database: Path, files: Files) -> WalDamage | None:
    """Return the damage in the log of a database that is not open, or None."""
    path = database.with_name(database.name + "-wal")
    if files.info(path) is None or files.info(database) is None:
        return None
    wal = files.read(path)
    if len(wal) <= HEADER.size:
        return None
    magic, _, page_size, _, salt1, salt2, *sums = HEADER.unpack_from(wal)
    words = ">II" if magic & 1 else "<II"
    if magic & ~1 != _MAGIC or _checksum(words, wal[:24], (0, 0)) != tuple(sums):
        return WalDamage(path, 0, 0, None)
    frame_size = _FRAME.size + page_size
    commits = [
        number
        for number in range((len(wal) - HEADER.size) // frame_size)
        if _is_commit(wal, HEADER.size + number * frame_size, (salt1, salt2))
    ]
    valid = _valid_frames(database, files) if commits else 0
    if not commits or commits[-1] < valid:
        return None
    bad = _first_bad(wal, words, page_size, valid)
    intact = HEADER.size + valid * frame_size
    lost = sum(HEADER.size + number * frame_size > bad for number in commits)
    # A bad frame without commits behind it was being written when the process ended.
    return WalDamage(path, bad, intact, lost) if lost else None


def _is_commit(wal: bytes, offset: int, salts: tuple[int, int]) -> bool:
    _, pages, first, second, _, _ = _FRAME.unpack_from(wal, offset)
    return pages != 0 and (first, second) == salts


def _valid_frames(database: Path, files: Files) -> int:
    """The number of frames that SQLite accepts, up to the last commit among them."""
    # Read-only, so that closing the connection leaves the log as it is.
    address = f"{database.absolute().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        shared = files.read(database.with_name(database.name + "-shm"))
    return int(_VALID_FRAMES.unpack_from(shared, _VALID_FRAMES_AT)[0])


def _first_bad(wal: bytes, words: str, page_size: int, valid: int) -> int:
    """Where the first frame begins that does not continue the checksum of the valid ones."""
    frame_size = _FRAME.size + page_size
    offset = HEADER.size + valid * frame_size
    before = HEADER.unpack_from(wal) if valid == 0 else _FRAME.unpack_from(wal, offset - frame_size)
    sums = before[-2], before[-1]
    salts = HEADER.unpack_from(wal)[4:6]
    while offset + frame_size <= len(wal):
        start = offset + _FRAME.size
        sums = _checksum(words, wal[offset : offset + 8], sums)
        sums = _checksum(words, wal[start : start + page_size], sums)
        if _FRAME.unpack_from(wal, offset)[2:] != (*salts, *sums):
            break
        offset += frame_size
    return offset


def _checksum(words: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    for one, two in struct.iter_unpack(words, data):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second
