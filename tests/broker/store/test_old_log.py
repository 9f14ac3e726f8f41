"""A data directory of an earlier version, which kept a log file beside the tables."""

from __future__ import annotations

import marshal
import struct
from zlib import crc32

import pytest

from pairbus.broker.entities.errors import StoreError
from pairbus.broker.store.migrations import MIGRATIONS
from pairbus.broker.store.old_log import LOG
from pairbus.broker.store.store import DATABASE, Store
from tests.broker.entities.kit import Bench

EARLIER = 2  # the version of the tables that had a log


def record(number: int, *, inserts=(), deletes=()) -> bytes:
    data = marshal.dumps((list(inserts), list(deletes), [], [], []), 2)
    return struct.pack(">QII", number, len(data), crc32(data)) + data


@pytest.fixture
def folder(tmp_path):
    """A directory as version 2 left it: one message in the tables, applied up to record 1."""
    store = Store(tmp_path)
    bench = Bench(store)
    bench.send(b"tables")
    base = bench.ns.catalog.queue_at("q").store.base
    bench.ns.close()
    store._write.executescript(f"{MIGRATIONS[1]} UPDATE log SET applied = 1;")  # noqa: SLF001 - writes a file of an earlier version
    store._write.execute(f"PRAGMA user_version = {EARLIER}")  # noqa: SLF001 - writes a file of an earlier version
    store.close()

    def row(number: int, body: bytes):
        return (base + number, 0, 1, 1 << 62, 0, len(body), number, None, 8, None, None, None, body)

    records = [
        record(1, inserts=[row(1, b"tables")]),
        record(2, inserts=[row(2, b"completed"), row(3, b"log")]),
        record(3, deletes=[base + 2]),
    ]
    (tmp_path / LOG).write_bytes(b"".join(records))
    return tmp_path


def bodies(folder) -> list[bytes | None]:
    store = Store(folder)
    try:
        return [d.message.bare for d in Bench(store).ns.peek("q", 0, 10)]
    finally:
        store.close()


def test_the_groups_of_an_old_log_are_moved_into_the_tables(folder):
    assert bodies(folder) == [b"tables", b"log"]
    assert not (folder / LOG).exists()
    assert bodies(folder) == [b"tables", b"log"]


def test_a_record_that_is_cut_short_is_dropped(folder):
    whole = (folder / LOG).read_bytes()
    (folder / LOG).write_bytes(whole + record(4, deletes=[1])[:-1])
    assert bodies(folder) == [b"tables", b"log"]


def test_damage_in_the_middle_is_an_error_that_names_file_and_offset(folder):
    data = bytearray((folder / LOG).read_bytes())
    at = len(record(1, inserts=[]))
    data[-len(record(3, deletes=[1 << 42])) - 3] ^= 0xFF
    (folder / LOG).write_bytes(bytes(data))
    with pytest.raises(StoreError, match=rf"{LOG}' is damaged at offset \d+") as caught:
        Store(folder)
    assert int(str(caught.value).rstrip(".").rsplit(" ", 1)[1]) > at
    assert (folder / DATABASE).exists()
