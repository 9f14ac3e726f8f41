"""Cost and reconciliation over a generated ledger, beside DuckDB on the same files; the writer.

    python -m benchmarks ledger_jobs            50 million rows in each table
    LEDGER_ROWS=2000000 python -m benchmarks ledger_jobs

Both engines read the same files in the same run and must agree on every figure. The two take turns
on a warm session; Spark's start is measured separately. A run over a tenth of the rows shows
growth.
"""

import os
import shutil
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pairbus.ledger import LedgerWriter, Store, files
from pairbus.ledger.plan import plan
from pairbus.pricing import Rules

ROWS = int(os.environ.get("LEDGER_ROWS", "50000000"))
FILE_ROWS = 1_000_000
ENTITIES = 12
START = 1_772_366_400_000_000  # 1 March 2026, 12:00, in microseconds
STAGES = ["send_primary", "send_backlog", "receive_backlog", "settle", "ping", "idle_poll"]
CLIENT_ROWS = 1440 * ENTITIES * len(STAGES)
LOST = 3
SHUFFLE = 7919  # a prime that divides no number of rows that one would choose
SPARK = {"spark.driver.memory": "3g"}


def generate(place, rows):
    """Write both tables, as a compaction leaves them.

    Operations are those of many clients, a day each: in every minute a row for each entity and
    stage. All messages except a few were backlogged and then forwarded.
    """
    store = Store.create(str(place))
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
    """Rows of one client after the other: each is a writer, with its rows in their order."""
    numbers = pa.array(range(first, first + count))
    clients = pc.divide(numbers, CLIENT_ROWS)
    sequence = _mod(numbers, CLIENT_ROWS)
    kind = _mod(sequence, ENTITIES * len(STAGES))
    minutes = pc.add(pc.multiply(pc.divide(sequence, ENTITIES * len(STAGES)), 60_000_000), START)
    messages = pc.add(_mod(numbers, 50), 1)
    names = [f"host-{n:04d}-{n + 4711}-3f2a9c1e" for n in range(clients[-1].as_py() + 1)]
    table = files.to_table(
        "operations",
        {
            "writer": _names([f"{name}.6f0c7c1e5d0a" for name in names], clients),
            "sequence": sequence,
            "minute": minutes.cast(pa.timestamp("us", "UTC")),
            "client_id": _names(names, clients),
            "namespace": _names(["contoso", "contoso-dr"], _mod(kind, 2)),
            "entity": _names(
                [f"entity-{n}" for n in range(ENTITIES)], pc.divide(kind, len(STAGES))
            ),
            "stage": _names(STAGES, _mod(kind, len(STAGES))),
            "operation": _same("send", count),
            "size_step": _same(1, count),
            "count": _same(1, count),
            "messages": messages,
            "bytes": pc.multiply(messages, 1000),
            "billable": messages,
            "billable_batched": _same(1, count),
        },
    )
    name = f"operations/compact-{first:012d}.parquet"
    store.write_whole(name, files.encode(table))


def _messages(store, half, first, count):
    """Rows below `half` are backlogged; those above forward them, except a few that are lost."""
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
    store.write_whole(f"messages/{writer}.parquet", files.encode(table))


# ------------------------------------------------------------------ the same questions to both
#
# Both engines look at the footers first and read the files that the plan names, so that both drop
# repeats in the same way. What is measured begins with that and ends with the answer; the session
# is up, and has seen the same queries over a small ledger.


def spark_cost(spark, place):
    """Operations by hour, entity, stage and client, summed up for the comparison."""
    from pairbus.reports import cost_job as cost
    from pairbus.reports.ledger_tables import read_table

    operations, _ = read_table(spark, str(place), "operations")
    hours = operations.withColumn("hour", cost.span_start("minute"))
    keys = ("hour", "entity", "stage", "client_id")
    sums = cost.billed(cost.gathered(hours, *keys), Rules())
    figures = [f"sum({name})" for name in FIGURES]
    return tuple(int(value) for value in sums.selectExpr("count(*)", *figures).collect()[0])


FIGURES = ("count", "messages", "bytes", "operations_billed", "operations_low")


def duck_cost(place):
    figures = ", ".join(f"sum({name})" for name in FIGURES)
    found = _duck(
        place,
        "operations",
        f"""with sums as (
          select date_trunc('hour', minute) as hour, entity, stage, client_id,
            sum(count) as count, sum(messages) as messages, sum(bytes) as bytes,
            sum(case when stage = 'ping' and messages = 0 then count else billable end)
              as operations_billed,
            sum(case when stage = 'idle_poll' then 0
                when stage in ('send_primary', 'send_backlog')
                then least(billable, billable_batched) else billable end) as operations_low
          from rows group by all)
        select count(*), {figures} from sums""",
    )[0]
    return tuple(int(value) for value in found)


def spark_reconcile(spark, place):
    """What became of the messages, by destination."""
    from pairbus.reports import reconcile_job as reconcile
    from pairbus.reports import reconciliation as books
    from pairbus.reports.ledger_tables import read_table
    from pairbus.reports.prefilter import screen

    messages, _ = read_table(spark, str(place), "messages")
    screened = screen(messages).persist()
    try:
        found = books.by_destination(screened, books.doubtful(screened, messages)).collect()
    finally:
        screened.unpersist()
    return sorted((row["destination"], *[int(row[n]) for n in reconcile.COUNTS]) for row in found)


def duck_reconcile(place):
    found = _duck(
        place,
        "messages",
        """with tally as (
          select lower(coalesce(destination, '')) as place, message_id,
            count(*) filter (event = 'backlogged') as b,
            count(*) filter (event = 'forwarded') as f,
            count(*) filter (event = 'dead_lettered'
              and not contains(lower(coalesce(reason, '')), 'expired')) as d,
            count(*) filter (event = 'dead_lettered'
              and contains(lower(coalesce(reason, '')), 'expired')) as e,
            count(*) filter (event = 'completed') as c
          from rows group by all),
        delivered as (
          select *, greatest(b, 1) as expected, least(f, greatest(b, 1)) as delivered from tally),
        aside as (
          select *, f - delivered as copies, least(d, expected - delivered) as dead,
            least(e, expected - delivered - least(d, expected - delivered)) as expired
          from delivered),
        judged as (
          select *, least(c, expected - delivered - dead - expired) as completed from aside)
        select place, sum(expected), sum(case when copies = 0 then delivered else 0 end),
          sum(case when copies > 0 then delivered else 0 end), sum(copies), sum(dead),
          sum(expired), sum(completed), 0,
          sum(expected - delivered - dead - expired - completed),
          sum(case when b = 0 then expected else 0 end), 0
        from judged group by place order by place""",
    )
    return [(row[0], *[int(value) for value in row[1:]]) for row in found]


def _duck(place, table, query):
    import duckdb

    found = plan(Store(str(place)), table)
    assert not found.overlapping
    names = ", ".join(f"'{file.name}'" for file in found.single)
    rows = f"with rows as (from read_parquet([{names}])), "
    return duckdb.sql(rows + query.removeprefix("with ")).fetchall()


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


def whole_jobs(spark, place, rows, suffix=""):
    """The two jobs as the commands run them, with all that a report shows."""
    from pairbus.reports.cost_report import cost_report
    from pairbus.reports.price_lists import load_prices
    from pairbus.reports.reconciliation import balance

    _, _, line = measure(
        f"cost.report{suffix}", rows, lambda: cost_report(spark, str(place), load_prices())
    )
    yield line
    books, _, line = measure(f"reconcile.report{suffix}", rows, lambda: balance(spark, str(place)))
    yield line
    assert [row["lost"] for row in books.by_destination if row["lost"]]
    assert len(books.lost) == LOST
    yield f"ledger.spark.memory_whole{suffix} {_memory_of_jvm():.0f} MB"


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

    from pairbus.spark.session import get_session, job_settings

    cores = os.cpu_count() or 1
    duckdb.sql(f"set threads = {cores}")
    duckdb.sql("set enable_progress_bar = false")
    folder = Path(tempfile.mkdtemp(prefix="pairbus-bench-", dir=os.environ.get("LEDGER_FOLDER")))
    started = time.perf_counter()
    spark = get_session(f"local[{cores}]", config={**job_settings(), **SPARK})
    yield f"ledger.spark.start {time.perf_counter() - started:.1f} s"
    try:
        yield from writer_cost(folder / "writer")
        # the smallest run is thrown away: it pays for Spark's first compilations
        for rows, suffix in ((100_000, None), (ROWS // 10, ".tenth"), (ROWS, "")):
            place = folder / f"rows-{rows}"
            generate(place, rows)
            for part in (jobs, whole_jobs):
                lines = part(spark, place, rows, suffix or "")
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
