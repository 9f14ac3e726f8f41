"""Imports the log file that earlier versions wrote in addition to the tables.

Earlier versions appended small groups to ``namespace.groups`` and moved them into the tables many
at a time. A broker of such a version that ended without closing its store leaves groups there.

A record is its number, its length, the CRC of its bytes, and its bytes. A record that is cut short
at the end of the file was being written when the process ended: it was never acknowledged.
"""

from __future__ import annotations

import marshal
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

from pairbus.broker.entities.errors import StoreError
from pairbus.broker.entities.journal import Journal
from pairbus.broker.store.rows import statements
from pairbus.runtime import Files

LOG = "namespace.groups"
_HEAD = struct.Struct(">QII")


def import_log(connection: sqlite3.Connection, files: Files, path: Path) -> None:
    """Write the groups of an old log, if there is one, into the tables and delete the file.

    Raises:
        StoreError: a record before the last one is damaged.
    """
    if files.info(path) is None:
        return
    data = files.read(path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 2:
        (applied,) = connection.execute("SELECT applied FROM log").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        for number, rows in _records(data, path):
            if number <= applied:
                continue
            group = Journal()
            group.inserts, group.deletes, group.updates, group.entities, group.numbers = rows
            for sql, parameters in statements(group):
                connection.execute(sql, parameters)
            connection.execute("UPDATE log SET applied = ?", (number,))
        connection.execute("COMMIT")
    files.remove(path)


def _records(data: bytes, path: Path) -> Iterator[tuple[int, tuple[Any, ...]]]:
    at = last = 0
    while at + _HEAD.size <= len(data):
        number, length, crc = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        content = data[at + _HEAD.size : end]
        if end > len(data):
            return
        if crc32(content) != crc or number <= last:
            raise StoreError(f"The file '{path}' is damaged at offset {at}.")
        yield number, marshal.loads(content)
        at, last = end, number
