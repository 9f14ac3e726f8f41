"""Account for every message that went through the backlog.

Messages that were backlogged are compared with those that were forwarded, were dead-lettered or
still wait. A message is identified by its destination and id. `tally` counts its rows;
`pairbus.reports.fates` derives its outcome.

Rows are matched by 128 bits of hash instead of strings, which Spark groups several times faster;
names are looked up afterwards, for the rows of the report alone. `pairbus.reports.prefilter`
selects the messages that need this job: most need none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pairbus.extras import needs
from pairbus.reports.cost_job import COLUMNS, span_start
from pairbus.reports.fates import COUNTS, OUTCOMES, fate

with needs("spark"):
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PARTITION_ROWS = 500_000
"""Rows of a part of the work: their tallies fit into the memory of a small executor."""

KEYS = ["place", "id1", "id2"]

PACKED = (("b", "f"), ("d", "e"), ("c",), ("w", "wd"))
"""The outcomes whose counts share a 64-bit number, 32 bits each: Spark sums fewer columns."""


def place_of(destination: str) -> Column:
    """Return the hash by which a destination is known, whatever its case."""
    return F.xxhash64(F.lower(F.coalesce(destination, F.lit(""))))


def known_id() -> Column:
    """Return what a message is known by within its destination."""
    return F.coalesce(
        F.col("message_id"),
        F.concat_ws("#", F.lit("\0"), F.col("backlog_queue"), F.col("sequence_number")),
    )


def keyed(rows: DataFrame) -> DataFrame:
    """Add the key by which a message is known: its destination and its id, hashed."""
    return rows.withColumns(
        {
            "place": place_of("destination"),
            "id1": F.xxhash64(known_id()),
            "id2": F.xxhash64(F.lit(1), known_id()),
        }
    )


def tally(
    messages: DataFrame, waiting: DataFrame | None = None, *, partitions: int | None = None
) -> DataFrame:
    """Return, for each message, how often each thing happened to it.

    Args:
        messages: the ledger's messages.
        waiting: what waits in the backlog queues.
        partitions: into how many parts the work is cut; Spark's own choice by default. What
            happened to one message is rarely in one file, so summing up before the rows are
            brought together gains nothing: with a number they are brought together first.
    """
    rows = keyed(messages).select(*KEYS, "event", is_expired().alias("flag"))
    if waiting is not None:
        rows = rows.unionByName(
            keyed(waiting).select(*KEYS, F.lit("waiting").alias("event"), is_dead().alias("flag"))
        )
    found, nothing = outcomes(), F.lit(0).cast("bigint")
    packed = {
        names[0]: F.coalesce(*[F.when(found[n], 1 << 32 * i) for i, n in enumerate(names)], nothing)
        for names in PACKED
    }
    rows = rows.select(*KEYS, *[column.alias(name) for name, column in packed.items()])
    if partitions is not None:
        rows = rows.repartition(partitions, *KEYS)
    summed = rows.groupBy(*KEYS).agg(*[F.sum(name).alias(name) for name in packed])
    return summed.select(
        *KEYS,
        *[
            F.shiftright(names[0], 32 * i).bitwiseAND(F.lit((1 << 32) - 1)).alias(name)
            for names in PACKED
            for i, name in enumerate(names)
        ],
    )


def outcomes() -> dict[str, Column]:
    """Return the condition of each of `OUTCOMES`, by the columns `event` and `flag`.

    `flag` tells of a dead letter whether it expired, and of a waiting message whether it is dead.
    """
    event, flag = F.col("event"), F.col("flag")
    return {
        "b": event == "backlogged",
        "f": event == "forwarded",
        "d": (event == "dead_lettered") & ~flag,
        "e": (event == "dead_lettered") & flag,
        "c": event == "completed",
        "w": (event == "waiting") & ~flag,
        "wd": (event == "waiting") & flag,
    }


def is_expired() -> Column:
    """Return whether the reason of a dead letter is that its time to live had passed."""
    return F.col("reason").isNotNull() & F.lower("reason").contains("expired")


def is_dead() -> Column:
    """Return whether a peeked message is in a dead-letter queue."""
    return F.coalesce(F.col("dead_letter"), F.lit(False))


def verdicts(tallied: DataFrame) -> DataFrame:
    """Return, for each message, what became of it."""
    found = fate({name: F.col(name) for name in OUTCOMES}, COLUMNS)
    return tallied.select(*KEYS, *[found[name].alias(name) for name in COUNTS])


def by_destination(judged: DataFrame) -> DataFrame:
    """Sum verdicts up by (hashed) destination."""
    return judged.groupBy("place").agg(*[F.sum(name).alias(name) for name in COUNTS])


def named(
    judged: DataFrame, what: Column, messages: DataFrame, waiting: DataFrame | None = None, *,
    limit: int = 20,
) -> DataFrame:  # fmt: skip
    """Return the messages whose verdict fits `what`, by name: some, for the report."""
    some = judged.where(what).orderBy(*KEYS).limit(limit)
    columns = ["destination", "message_id", "session_id", "backlog_queue", "sequence_number"]
    rows = keyed(messages).select(*KEYS, *columns, F.col("at"), F.col("client_id"))
    if waiting is not None:
        rows = rows.unionByName(
            keyed(waiting).select(
                *KEYS, *columns, F.col("enqueued_at").alias("at"), F.lit("").alias("client_id")
            )
        )
    return (
        rows.join(F.broadcast(some), KEYS)
        .groupBy(*KEYS)
        .agg(
            F.min("destination").alias("destination"),
            F.min("message_id").alias("message_id"),
            F.min("session_id").alias("session_id"),
            F.min("backlog_queue").alias("backlog_queue"),
            F.min("sequence_number").alias("sequence_number"),
            F.min("at").alias("first_seen"),
            F.max("at").alias("last_seen"),
            F.min("client_id").alias("client_id"),
            *[F.first(name).alias(name) for name in COUNTS],
        )
        .drop(*KEYS)
        .orderBy("destination", "message_id")
    )


def out_of_order(messages: DataFrame) -> DataFrame:
    """Return messages that were forwarded after a later one of their session and backlog queue.

    The order to keep is that in which one backlog queue took them. Of a message that was forwarded
    twice only the first time counts.
    """
    lane = ["destination_key", "session_id", "backlog_queue"]
    first = (
        messages.where(
            (F.col("event") == "forwarded")
            & F.col("session_id").isNotNull()
            & F.col("sequence_number").isNotNull()
        )
        .withColumn("destination_key", F.lower(F.coalesce("destination", F.lit(""))))
        .repartition(*lane)  # once, for the grouping and for the window
        .groupBy(*lane, "sequence_number")
        .agg(F.min(F.struct("at", "writer", "sequence", "message_id", "destination")).alias("row"))
    )
    before = (
        Window.partitionBy(*lane)
        .orderBy("row.at", "row.writer", "row.sequence")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        first.withColumn("highest", F.max("sequence_number").over(before))
        .where(F.col("sequence_number") < F.col("highest"))
        .select(
            F.col("row.destination").alias("destination"),
            "session_id",
            "backlog_queue",
            F.col("row.message_id").alias("message_id"),
            "sequence_number",
            F.col("highest").alias("after"),
            F.col("row.at").alias("at"),
        )
    )


def missed_minutes(operations: DataFrame, messages: DataFrame) -> DataFrame:
    """Return minutes for which the two tables disagree on how many messages a client backlogged.

    Both tables record it, in separate files. Where they differ, rows of one are missing, even if
    no number of a writer is.
    """
    counted = (
        operations.where(F.col("stage") == "send_backlog")
        .groupBy("writer", "minute")
        .agg(F.sum("messages").alias("counted"))
    )
    noted = (
        messages.where(F.col("event") == "backlogged")
        .groupBy("writer", span_start("at", 60).alias("minute"))
        .agg(F.count(F.lit(1)).alias("noted"))
    )
    both = (
        counted.join(noted, ["writer", "minute"], "full")
        .withColumn("counted", F.coalesce("counted", F.lit(0)))
        .withColumn("noted", F.coalesce("noted", F.lit(0)))
    )
    # A call that ends at the turn of a minute may be counted in the one before here and in the one
    # after there: a writer whose sums agree is complete.
    whole = Window.partitionBy("writer")
    return (
        both.withColumn("off", F.sum("counted").over(whole) - F.sum("noted").over(whole))
        .where((F.col("off") != 0) & (F.col("counted") != F.col("noted")))
        .select("writer", "minute", "counted", "noted")
        .orderBy("minute", "writer")
    )
