"""Starting with many messages: an index in memory, their bytes on disk."""

from __future__ import annotations

import sqlite3

import psutil
import pytest

from pairbus.broker.store.store import DATABASE, Store
from tests.broker.entities.kit import Bench

MANY = 100_000


@pytest.mark.slow
def test_a_start_with_many_messages_leaves_their_bytes_on_disk(tmp_path):
    # Given a queue with many messages of 1 KB
    store = Store(tmp_path)
    bench = Bench(store)
    first = bench.ns.catalog.queue_at("q").store.base
    store.close()
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute(
        "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
        "INSERT INTO message SELECT ? + i, 0, 1, 1 << 62, 0, 1024, i, NULL, 8, NULL, NULL, NULL, "
        "zeroblob(1024) FROM n",
        (MANY, first),
    )
    connection.commit()
    connection.close()

    # When the broker starts
    process = psutil.Process()
    before = process.memory_info().rss
    store = Store(tmp_path)
    bench = Bench(store)
    grown = process.memory_info().rss - before

    # Then it knows them all, has none of their bytes, and can deliver the first and the last
    queue = bench.ns.catalog.queue_at("q")
    assert bench.ns.admin.runtime("q").active_message_count == MANY
    assert bench.ns.admin.runtime("q").size_in_bytes == MANY * 1024
    assert all(message.bare is None for message in queue.store.messages.values())
    assert grown < MANY * 600
    assert [d.message.sequence_number for d in bench.receive(2)] == [1, 2]
    (last,) = bench.ns.peek("q", MANY, 5)
    assert last.message.bare == bytes(1024)
    store.close()
