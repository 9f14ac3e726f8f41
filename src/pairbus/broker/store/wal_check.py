"""Finds damage in SQLite's write-ahead log before SQLite opens it.

SQLite reads its log up to the first frame whose checksum is wrong and ignores the rest: that is
right for a frame that was being written when the process ended, and silently drops committed
transactions when the damage is in the middle. So the log is checked at start: a bad frame is
harmless only if no commit of the same log follows it.

The format is that of https://www.sqlite.org/fileformat2.html#the_write_ahead_log: a header of 32
bytes, then frames of 24 bytes and a page each. Each checksum continues the one before it. A log
that starts again at the beginning of the file has new salts, so that old frames behind it do not
count.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682  # the lowest bit says whether checksums read big-endian words


@dataclass(frozen=True, slots=True)
class WalDamage:
    """Damage that hides committed transactions.

    Attributes:
        offset: Where the damaged header or frame begins.
        intact: Bytes from the start of the file that hold only whole transactions.
        transactions: Commits that follow the damage.
    """

    offset: int
    intact: int
    transactions: int


def find_damage(wal: bytes) -> WalDamage | None:
    """Return the damage in the bytes of a log, or None if nothing committed is lost."""
    if len(wal) < _HEADER.size:
        return None
    magic, _, page_size, _, salt1, salt2, sum1, sum2 = _HEADER.unpack_from(wal)
    frame_size = _FRAME.size + page_size
    words = ">" if magic & 1 else "<"
    sums = _checksum(words, wal[:24], (0, 0))
    if magic & ~1 != _MAGIC or sums != (sum1, sum2):
        return WalDamage(0, 0, -1) if len(wal) > _HEADER.size else None
    intact = _HEADER.size
    offset = _HEADER.size
    while offset + frame_size <= len(wal):
        _, pages, first, second, sum1, sum2 = _FRAME.unpack_from(wal, offset)
        start = offset + _FRAME.size
        if (first, second) == (salt1, salt2):
            sums = _checksum(words, wal[offset : offset + 8], sums)
            sums = _checksum(words, wal[start : start + page_size], sums)
        if (first, second) != (salt1, salt2) or sums != (sum1, sum2):
            lost = _commits(wal, offset + frame_size, frame_size, (salt1, salt2))
            if not lost and (first, second) == (salt1, salt2) and pages:
                lost = _is_followed(wal, offset + frame_size)
            return WalDamage(offset, intact, lost) if lost else None
        offset += frame_size
        if pages:  # a commit: the size of the database after it
            intact = offset
    return None


def _commits(wal: bytes, offset: int, frame_size: int, salts: tuple[int, int]) -> int:
    """How many commits of the log with these salts follow an offset."""
    found = 0
    while offset + _FRAME.size <= len(wal):
        _, pages, first, second, _, _ = _FRAME.unpack_from(wal, offset)
        found += bool(pages) and (first, second) == salts
        offset += frame_size
    return found


def _is_followed(wal: bytes, offset: int) -> int:
    """Whether the log goes on behind a damaged commit: then it was not being written."""
    return int(len(wal) > offset)


def _checksum(words: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    for one, two in struct.iter_unpack(words + "II", data):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second
