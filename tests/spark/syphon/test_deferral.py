"""A drain until empty on real Spark, whose destination is created only after a while."""

import time

import pyarrow.parquet as pq
import pytest

from pairbus import broker
from tests.syphon.conftest import PREFIX, Pair, backlog_message, make_queues

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

COUNT = 2000


def test_a_destination_that_appears_late_gets_its_deferred_messages_in_order(spark, tmp_path):
    from pairbus.spark.syphon import Bounds, start_syphon

    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        make_queues(secondary, 1, lock=5)  # seconds: what waits for ten is deferred
        pair = Pair(primary, secondary, 1, tmp_path)
        pair.fill([backlog_message("late", n) for n in range(COUNT)])
        options = pair.options(missing_destination="wait", retry_after=1.0)
        handle = start_syphon(options, spark=spark, bounds=Bounds(until_empty=True))
        management = pair.connect(secondary).management(f"{PREFIX}/0")

        def is_deferred():
            first, last = management.peek(1, 1), management.peek(COUNT, 1)
            return [one.facts.get("state") for one in (*first, *last)] == [1, 1]

        deadline = time.monotonic() + 240
        while not is_deferred():
            assert time.monotonic() < deadline, handle.status()
            time.sleep(0.2)
        assert handle.status()["waiting_counts"] == {"late": COUNT}
        assert not handle.wait(1)  # what is deferred is not drained
        primary.create_queue("late")
        assert pair.numbers("late", COUNT, timeout=240) == list(range(COUNT))
        assert handle.wait(120)
        assert handle.status()["forwarded"] == COUNT
        pair.close()
    files = (tmp_path / "ledger" / "messages").glob("*.parquet")
    receipts = [row["sequence_number"] for path in files for row in pq.read_table(path).to_pylist()]
    assert sorted(receipts) == list(range(1, COUNT + 1))
