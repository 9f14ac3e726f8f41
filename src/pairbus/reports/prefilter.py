"""Finds buckets of messages that balance, so that only the others are compared message by message.

Most messages were backlogged once and then forwarded, dead-lettered, or still wait. Grouping all
rows by message only to confirm that is the most expensive part of a reconciliation. So rows are
first assigned to buckets, by destination and a hash of the message's id. A bucket has, for each
outcome, a count and sums of hashes of the ids. If no message was lost or duplicated, the backlogged
messages and their outcomes are the same multiset of ids, and the sums agree. If they differ, the
sums agree by chance once in 2^55 times.
A bucket whose sums differ is *open*: its rows go through `pairbus.reports.reconcile_job.tally`,
which accounts for each message.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from typing import TYPE_CHECKING

from pairbus.extras import needs
from pairbus.reports.fates import COUNTS, OUTCOMES
from pairbus.reports.reconcile_job import is_dead, is_expired, known_id, outcomes, place_of

with needs("spark"):
    from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKETS = 512
"""Buckets of a destination, a power of two.

One lost message opens a 512th of its destination; and even for thousands of destinations there are
far fewer buckets than messages.
"""


def screen(
    messages: DataFrame, waiting: DataFrame | None = None, *, buckets: int = BUCKETS
) -> DataFrame:
    """Sum up outcomes by destination and bucket.

    Returns:
        For each bucket its `place` (the hashed destination), `bucket`, the `destination` by name,
        the counts of `tally`, `rows`, and whether it is `open`.
    """
    # Nearly every message has an id. Apart from the others they need two columns less, and where
    # there are no others, their footers say so and nothing is read for them.
    event, has_id = F.col("event"), F.col("message_id").isNotNull()
    parts = [
        _by_thing(messages.where(has_id), F.col("message_id"), buckets, event, is_expired()),
        _by_thing(messages.where(~has_id), known_id(), buckets, event, is_expired()),
    ]
    if waiting is not None:
        parts.append(_by_thing(waiting, known_id(), buckets, F.lit("waiting"), is_dead()))
    thing = F.coalesce(*[F.when(condition, F.lit(n)) for n, condition in outcomes().items()])
    # By names as they are written: the few spellings of one are brought together here.
    things = reduce(lambda a, b: a.unionByName(b), parts).select(
        place_of("destination").alias("place"), "destination", "bucket", thing.alias("thing"),
        "number", "high", "low",
    )  # fmt: skip
    sign = F.when(F.col("thing") == "b", 1).when(F.col("thing") == "wd", 0)
    signed = {name: F.sum(F.col(name) * sign.otherwise(-1)) for name in ("high", "low")}
    counts = {n: F.sum(F.when(F.col("thing") == n, F.col("number")).otherwise(0)) for n in OUTCOMES}
    return (
        things.groupBy("place", "bucket")
        .agg(
            F.min("destination").alias("destination"),
            F.sum("number").alias("rows"),
            *[column.alias(name) for name, column in {**counts, **signed}.items()],
        )
        .withColumn("open", _is_open())
        .drop("high", "low")
    )


def _by_thing(
    rows: DataFrame, known: Column, buckets: int, event: Column, flag: Column
) -> DataFrame:
    """Count and sum up hashes by outcome, with little work per row.

    The two halves of a hash are summed apart, so that 2^31 of them fit into 64 bits.
    """
    hashed = F.xxhash64(known)
    return (
        rows.select(
            F.coalesce("destination", F.lit("")).alias("destination"),
            event.alias("event"),
            flag.alias("flag"),
            hashed.bitwiseAND(F.lit(buckets - 1)).alias("bucket"),
            F.shiftright(hashed, 32).alias("high"),
            hashed.bitwiseAND(F.lit((1 << 32) - 1)).alias("low"),
        )
        .groupBy("destination", "event", "flag", "bucket")
        .agg(
            F.count(F.lit(1)).alias("number"),
            F.sum("high").alias("high"),
            F.sum("low").alias("low"),
        )
    )


def _is_open() -> Column:
    """Return whether the messages of a bucket must be compared one by one.

    A message in a dead-letter queue may or may not have a receipt, so it opens its bucket.
    """
    became = F.col("f") + F.col("d") + F.col("e") + F.col("c") + F.col("w")
    same = F.col("b") == became
    sums = (F.col("high") == 0) & (F.col("low") == 0)
    return ~(same & sums & (F.col("wd") == 0) & (F.col("rows") == 2 * F.col("b")))


def closed_verdicts(screened: DataFrame) -> DataFrame:
    """Return the verdicts on the closed buckets, as `verdicts` would give them."""
    values = {
        "expected": "b", "once": "f", "dead_lettered": "d", "expired": "e", "completed": "c",
        "waiting": "w",
    }  # fmt: skip
    return screened.where(~F.col("open")).select(
        "place", *[F.col(values[n]).alias(n) if n in values else _zero(n) for n in COUNTS]
    )


def _zero(name: str) -> Column:
    return F.lit(0).cast("bigint").alias(name)


def open_buckets(screened: DataFrame) -> dict[int, int]:
    """Return the numbers of the buckets that are open for any destination, and their rows."""
    found = screened.where("open").groupBy("bucket").agg(F.sum("rows").alias("rows")).collect()
    return {int(row["bucket"]): int(row["rows"]) for row in found}


def in_open_buckets(
    rows: DataFrame, screened: DataFrame, numbers: Collection[int], *, buckets: int = BUCKETS
) -> DataFrame:
    """Keep the rows, of messages or of `waiting`, that are in an open bucket.

    They have the columns of `tally`; for messages with an id, the columns that replace the id are
    not read.

    Args:
        rows: messages, or what waits.
        screened: the buckets.
        numbers: what `open_buckets` returned.
        buckets: buckets of a destination.
    """
    open_ = screened.where("open").select("place", "bucket")

    def kept(some: DataFrame, known: Column) -> DataFrame:
        bucket = F.xxhash64(known).bitwiseAND(F.lit(buckets - 1))
        if len(numbers) < buckets / 2:  # few: most rows are left out by their number alone
            some = some.where(bucket.isin(*numbers))
        keys = {"place": place_of("destination"), "bucket": bucket}
        return some.withColumns(keys).join(F.broadcast(open_), ["place", "bucket"], "left_semi")

    with_id = rows.where(F.col("message_id").isNotNull()).withColumns(
        {
            "backlog_queue": F.lit(None).cast("string"),
            "sequence_number": F.lit(None).cast("bigint"),
        }
    )
    without_id = rows.where(F.col("message_id").isNull())
    return kept(with_id, F.col("message_id")).unionByName(kept(without_id, known_id()))


def names(screened: DataFrame) -> DataFrame:
    """Return the name behind each hashed destination."""
    return screened.groupBy("place").agg(F.min("destination").alias("destination"))
