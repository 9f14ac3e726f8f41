"""Cost and reconciliation over a generated ledger, beside DuckDB on the same files; the writer.

    python -m benchmarks ledger_jobs            50 million rows in each table
    LEDGER_ROWS=2000000 python -m benchmarks ledger_jobs

Both engines read the same files in the same run and must agree on every figure. Growth is shown by
a run over a tenth of the rows.
"""

import os
import shutil
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pairbus.core.pricing import Rules
from pairbus.ledger import LedgerWriter, Store, files

ROWS = int(os.environ.get("LEDGER_ROWS", "50000000"))
FILE_ROWS = 1_000_000
START = 1_772_366_400_000_000  # 1 March 2026, 12:00, in microseconds
STAGES = ["send_primary", "send_backlog", "receive_backlog", "settle", "ping", "idle_poll"]
LOST = 3
SHUFFLE = 7919  # a prime that divides no number of rows that one would choose
SPARK = {"spark.driver.memory": "3g"}


def generate(place, rows):
    """Write both tables: operations of 500 clients over a day, and messages that came home."""
    store = Store(str(place))
    store.ensure_ledger()
    for first in range(0, rows, FILE_ROWS):
        _operations(store, first, min(FILE_ROWS, rows - first))
        _messages(store, rows // 2, first, min(FILE_ROWS, rows - first))


def _mod(numbers, by):
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))


def _names(values, index):
    return pa.DictionaryArray.from_arrays(index.cast(pa.int32()), pa.array(values)).cast(
        pa.string()
    )


def _same(value, count):
    return pa.repeat(pa.scalar(value), count)


def _operations(store, first, count):
    numbers = pa.array(range(first, first + count))
    messages = pc.add(_mod(numbers, 50), 1)
    minutes = pc.add(pc.multiply(_mod(numbers, 1440), 60_000_000), START)
    writer = f"bench-operations-{first}"
    table = files.to_table(
        "operations",
        {
            "writer": _same(writer, count),
            "sequence": pc.subtract(numbers, first),
            "minute": minutes.cast(pa.timestamp("us", "UTC")),
            "client_id": _names([f"client-{n}" for n in range(500)], _mod(numbers, 500)),
            "namespace": _names(["contoso", "contoso-dr"], _mod(numbers, 2)),
            "entity": _names([f"entity-{n}" for n in range(40)], _mod(pc.divide(numbers, 7), 40)),
            "stage": _names(STAGES, _mod(pc.divide(numbers, 3), 6)),
            "operation": _same("send", count),
            "size_step": _same(1, count),
            "count": _same(1, count),
            "messages": messages,
            "bytes": pc.multiply(messages, 1000),
            "billable": messages,
            "billable_batched": _same(1, count),
        },
    )
    store.write_whole(
        f"operations/{writer}.parquet", files.encode(table, {writer: [(0, count - 1)]})
    )


def _messages(store, half, first, count):
    """Rows below `half` are backlogged; those above forward them, but for a few that are lost."""
    numbers = pa.array(range(first, first + count))
    forwarded = pc.greater_equal(numbers, half)
    # forwarded in another order, as from many queues that are drained side by side
    mixed = _mod(pc.multiply(pc.subtract(numbers, half), SHUFFLE), half)
    index = pc.if_else(forwarded, mixed, numbers)
    keep = pc.or_(pc.invert(forwarded), pc.greater_equal(index, LOST))
    numbers, index, forwarded = numbers.filter(keep), index.filter(keep), forwarded.filter(keep)
    count = len(numbers)
    writer = f"bench-messages-{first}"
    ids = pc.binary_join_element_wise(index.cast(pa.string()), "6f0c7c1e-5d0a-4c37-9b5e", "-")
    table = files.to_table(
        "messages",
        {
            "writer": _same(writer, count),
            "sequence": pa.array(range(count)),
            "event": _names(["backlogged", "forwarded"], forwarded.cast(pa.int32())),
            "at": pc.add(pc.multiply(numbers, 100), START).cast(pa.timestamp("us", "UTC")),
            "client_id": _same("client", count),
            "message_id": ids,
            "destination": _names([f"entity-{n}" for n in range(40)], _mod(index, 40)),
            "backlog_queue": _names(
                [f"contoso/x-servicebus-transfer/{n}" for n in range(10)], _mod(index, 10)
            ),
            "sequence_number": index,
            "size": _same(1000, count),
        },
    )
    store.write_whole(f"messages/{writer}.parquet", files.encode(table, {writer: [(0, count - 1)]}))


# ------------------------------------------------------------------ the same questions to both


def spark_cost(spark, place):
    """Operations by hour, entity, stage and client, summed up for the comparison."""
    from pairbus.spark import cost
    from pairbus.spark.tables import read_table

    operations, _ = read_table(spark, str(place), "operations")
    rows = cost.billed(operations, Rules()).withColumn("hour", cost.span_start("minute"))
    sums = cost.condensed(rows, "hour", "entity", "stage", "client_id")
    figures = ("count(*)", "sum(operations_billed)", "sum(operations_low)", "sum(bytes)")
    return tuple(int(value) for value in sums.selectExpr(*figures).collect()[0])


def duck_cost(place):
    import duckdb

    found = duckdb.sql(
        f"""with sums as (
          select date_trunc('hour', minute) as hour, entity, stage, client_id, sum(count),
            sum(messages), sum(bytes) as bytes, sum(billable) as high,
            sum(case when stage = 'idle_poll' then 0
                when stage in ('send_primary', 'send_backlog')
                then least(billable, billable_batched) else billable end) as low
          from '{place}/operations/*.parquet' group by all)
        select count(*), sum(high), sum(low), sum(bytes) from sums"""
    ).fetchall()[0]
    return tuple(int(value) for value in found)


def spark_reconcile(spark, place):
    """What became of each message, by destination, summed up for the comparison."""
    from pairbus.spark import reconcile
    from pairbus.spark.tables import read_table

    messages, plan = read_table(spark, str(place), "messages")
    parts = plan.rows // reconcile.PARTITION_ROWS + 1
    tallied = reconcile.tally(messages, partitions=parts)
    sums = reconcile.by_destination(reconcile.verdicts(tallied))
    figures = ("count(*)", "sum(expected)", "sum(once)", "sum(lost)", "sum(copies)")
    return tuple(int(value) for value in sums.selectExpr(*figures).collect()[0])


def duck_reconcile(place):
    import duckdb

    found = duckdb.sql(
        f"""with tally as (
          select lower(coalesce(destination, '')) as place, message_id,
            count(*) filter (event = 'backlogged') as b, count(*) filter (event = 'forwarded') as f,
            count(*) filter (event = 'dead_lettered') as d
          from '{place}/messages/*.parquet' group by all),
        verdicts as (
          select place, greatest(b, 1) as expected, least(f, greatest(b, 1)) as delivered, f, d
          from tally),
        places as (
          select place, sum(expected) as expected,
            sum(case when f > expected then 0 else delivered end) as once,
            sum(expected - delivered - least(d, expected - delivered)) as lost,
            sum(f - delivered) as copies from verdicts group by place)
        select count(*), sum(expected), sum(once), sum(lost), sum(copies) from places"""
    ).fetchall()[0]
    return tuple(int(value) for value in found)


# ------------------------------------------------------------------ figures


def measure(name, rows, ask):
    started = time.perf_counter()
    answer = ask()
    seconds = time.perf_counter() - started
    return answer, rows / seconds, f"ledger.{name} {rows / seconds:.0f} rows/s"


def jobs(spark, place, rows, suffix=""):
    """Ask both engines both questions; the answers must be the same."""
    for job, ask_spark, ask_duck in (
        ("cost", spark_cost, duck_cost),
        ("reconcile", spark_reconcile, duck_reconcile),
    ):
        theirs, their_rate, line = measure(
            f"{job}.duckdb{suffix}", rows, lambda ask=ask_duck: ask(place)
        )
        yield line
        ours, rate, line = measure(
            f"{job}.spark{suffix}", rows, lambda ask=ask_spark: ask(spark, place)
        )
        yield line
        assert ours == theirs, (job, ours, theirs)
        yield f"ledger.{job}.spark_of_duckdb{suffix} {rate / their_rate:.2f} ratio"
    yield f"ledger.spark.memory{suffix} {_memory_of_jvm():.0f} MB"


def _memory_of_jvm():
    """The most memory that the largest Java below us has had."""
    import psutil

    peaks = [0.0]
    for child in psutil.Process().children(recursive=True):
        if "java" in child.name():
            status = Path(f"/proc/{child.pid}/status").read_text()
            peaks.append(int(status.split("VmHWM:")[1].split()[0]) / 1024)
    return max(peaks)


def writer_cost(place):
    writer = LedgerWriter(str(place), client_id="bench")
    count = 200_000
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        for _ in range(count):
            writer.count(
                "contoso", "orders", "send_primary", "send", messages=1, size=1000, billable=1
            )
        best = min(best, time.process_time() - started)
    yield f"ledger.writer.count {best / count * 1e6:.2f} us"
    rows = [
        {"message_id": f"m{n}", "destination": "orders", "backlog_queue": "b/0", "size": 1000}
        for n in range(10_000)
    ]
    started = time.process_time()
    for _ in range(5):
        writer.backlogged(rows)
        writer.flush()
    yield f"ledger.writer.message_row {(time.process_time() - started) / 50_000 * 1e6:.2f} us"
    writer.close()


def run():
    import duckdb

    from pairbus.spark.session import get_session

    cores = os.cpu_count() or 1
    duckdb.sql(f"set threads = {cores}")
    folder = Path(tempfile.mkdtemp(prefix="pairbus-bench-"))
    spark = get_session(f"local[{cores}]", config=SPARK)
    try:
        yield from writer_cost(folder / "writer")
        # the smallest run is thrown away: it pays for Spark's first compilations
        for rows, suffix in ((100_000, None), (ROWS // 10, ".tenth"), (ROWS, "")):
            place = folder / f"rows-{rows}"
            generate(place, rows)
            lines = jobs(spark, place, rows, suffix or "")
            if suffix is None:
                list(lines)
            else:
                yield from lines
            shutil.rmtree(place)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for found in run():
        print(found, flush=True)
