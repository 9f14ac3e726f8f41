"""The cost job: computes billable operations and cost from the operations of a ledger.

Each function takes DataFrames and returns one; they are applied in this order: `billed` computes
the billable operations of each row under the chosen rules, `derived` adds the application's own
receives and settlements on the primary, `priced` adds the cost of every row, and `totals` sums up
by any columns. Money is `decimal(38,12)` and is not rounded here.

Price steps depend on the number of operations in the month so far. So the cost of an hour is
computed after the operations of the hours before it, and each row gets its share of that cost.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from pairbus.extras import needs
from pairbus.names import BILLING_STEP
from pairbus.pricing import (
    GB,
    MILLION,
    TRANSFER_STAGES,
    PriceList,
    Rules,
    Tier,
    hourly_prices,
)
from pairbus.reports.fates import Arithmetic, charged

with needs("spark"):
    import pyarrow as pa
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MONEY = "decimal(38,12)"
# Spark cuts the decimals off a product or quotient whose digits could exceed 38, so factors are no
# wider than they need be: counts and bytes to 10^15, the price of one below 100.
COUNT = "decimal(15,0)"
EACH = pa.decimal128(22, 20)
COLUMNS = Arithmetic(
    lambda one, other: F.least(_column(one), _column(other)),
    lambda one, other: F.greatest(_column(one), _column(other)),
    lambda condition, then, otherwise: F.when(condition, then).otherwise(otherwise),
)
"""The arithmetic of `pairbus.reports.fates` for columns."""


def _column(value: Column | int) -> Column:
    return F.lit(value) if isinstance(value, int) else value


def billable_column(size: Column) -> Column:
    """`pairbus.names.billable` as an expression of Spark: operations of a message of that size."""
    return F.greatest(F.lit(1), F.ceil(size / F.lit(BILLING_STEP)))


def billed(operations: DataFrame, rules: Rules) -> DataFrame:
    """Add the billable operations of each row.

    `operations_billed` follows the rules; `operations_low` uses the cheaper interpretation of the
    uncertain ones. `extra` marks operations that exist only because of an outage or a pair.
    """
    chosen, low = charged(
        {
            "stage": F.col("stage"),
            "billable": F.col("billable"),
            "billable_batched": F.col("billable_batched"),
            "tried": F.col("tried") if "tried" in operations.columns else _tried(),
        },
        rules,
        COLUMNS,
    )
    replaced = ("billable", "billable_batched", "tried")
    kept = [name for name in operations.columns if name not in replaced]
    return operations.select(
        *kept,
        chosen.cast("bigint").alias("operations_billed"),
        low.cast("bigint").alias("operations_low"),
        F.lit(False).alias("derived"),
        (F.col("stage") != "send_primary").alias("extra"),
    )  # fmt: skip


def gathered(operations: DataFrame, *keys: str) -> DataFrame:
    """Sum operations up by stage and these columns, so that the rules see far fewer rows.

    `billed` of the result has the same sums as `billed` of the rows.
    """
    least = F.least(F.col("billable"), F.col("billable_batched"))
    return operations.groupBy(*dict.fromkeys([*keys, "stage"])).agg(
        *[F.sum(name).alias(name) for name in ("count", "messages", "bytes", "billable")],
        F.sum(least).alias("billable_batched"),
        F.sum(_tried()).alias("tried"),
    )


def _tried() -> Column:
    """Billable operations, with calls without a message, such as failed pings, counted as one."""
    return F.when(F.col("messages") == 0, F.col("count")).otherwise(F.col("billable"))


def derived(messages: DataFrame, subscriptions: Mapping[str, int] | None = None) -> DataFrame:
    """Return the application's own operations on forwarded messages, marked as derived.

    One receive and one settle for each forwarded message and subscription, in the minute in which
    it was forwarded. The result has the columns of `billed`.

    Args:
        messages: the ledger's messages.
        subscriptions: how many subscriptions a topic has; an entity that is not named has one
            receiver.
    """
    copies = F.lit(1)
    for topic, number in (subscriptions or {}).items():
        copies = F.when(F.lower("destination") == topic.lower(), F.lit(number)).otherwise(copies)
    step = billable_column(F.coalesce(F.col("size"), F.lit(0)))
    sums = (
        messages.where(F.col("event") == "forwarded")
        .select(
            span_start("at", 60).alias("minute"),
            "client_id",
            # a backlog queue's path begins with the primary's name
            F.coalesce(F.element_at(F.split("backlog_queue", "/"), 1), F.lit("")).alias(
                "namespace"
            ),
            F.coalesce("destination", F.lit("")).alias("entity"),
            step.cast("int").alias("size_step"),
            F.coalesce(F.col("size"), F.lit(0)).alias("size"),
            copies.cast("bigint").alias("copies"),
        )
        .groupBy("minute", "client_id", "namespace", "entity", "size_step")
        .agg(
            F.sum("copies").alias("messages"), F.sum(F.col("size") * F.col("copies")).alias("bytes")
        )
    )
    kinds = F.array(
        F.struct(F.lit("receive_primary").alias("stage"), F.lit("receive").alias("operation")),
        F.struct(F.lit("settle").alias("stage"), F.lit("complete").alias("operation")),
    )
    receives = F.col("kind.stage") == "receive_primary"
    charged = F.when(receives, F.col("messages") * F.col("size_step")).otherwise(F.col("messages"))
    return sums.withColumn("kind", F.explode(kinds)).select(
        F.lit(None).cast("string").alias("writer"), F.lit(None).cast("bigint").alias("sequence"),
        "minute", "client_id", "namespace", "entity",
        F.col("kind.stage").alias("stage"), F.col("kind.operation").alias("operation"),
        F.when(receives, F.col("size_step")).otherwise(F.lit(1)).alias("size_step"),
        F.col("messages").alias("count"), "messages",
        F.when(receives, F.col("bytes")).otherwise(F.lit(0)).cast("bigint").alias("bytes"),
        charged.cast("bigint").alias("operations_billed"),
        charged.cast("bigint").alias("operations_low"),
        F.lit(True).alias("derived"), F.lit(False).alias("extra"),
    )  # fmt: skip


def span_start(time: str, seconds: int = 3600) -> Column:
    """Return the start of the hour (or of another span) in UTC that a time lies in.

    Spark's own `date_trunc` goes by the session's time zone, and takes many times as long.
    """
    return F.timestamp_seconds(F.expr(f"unix_seconds({time}) div {seconds} * {seconds}"))


def between(
    rows: DataFrame, start: object = None, end: object = None, *, time: str = "minute"
) -> DataFrame:
    """Keep the rows whose time is `start` or later, and before `end`."""
    if start is not None:
        rows = rows.where(F.col(time) >= F.lit(start))
    if end is not None:
        rows = rows.where(F.col(time) < F.lit(end))
    return rows


def priced(rows: DataFrame, prices: PriceList, rules: Rules) -> DataFrame:
    """Add `hour`, `money`, `money_low`, `transfer_bytes` and `transfer_money` to every row."""
    hours, _ = hour_prices(rows, prices.tier(rules.tier), rules)
    return with_prices(rows, hours, prices, rules)


def with_prices(rows: DataFrame, hours: DataFrame, prices: PriceList, rules: Rules) -> DataFrame:
    """Add money to every row, by the prices of the hours that `hour_prices` gave."""
    return (
        rows.withColumns({"hour": span_start("minute"), "transfer_bytes": _moved(rules)})
        .join(F.broadcast(hours), "hour", "left")
        .withColumns(
            {
                "money": _times("operations_billed", "each"),
                "money_low": _times("operations_low", "each_low"),
                "transfer_money": _transfer("transfer_bytes", prices),
            }
        )
        .drop("each", "each_low")
    )


def hour_prices(rows: DataFrame, tier: Tier, rules: Rules) -> tuple[DataFrame, dt.timedelta]:
    """Return the mean price of an operation in each hour, by the month's price steps.

    Also return how much time lies between the first row and the last.

    The sums of the hours come to the driver, a few thousand at most, and go through the same
    arithmetic as an estimate.
    """
    sums = (
        rows.groupBy(span_start("minute").alias("hour"))
        .agg(
            F.sum("operations_billed").alias("high"),
            F.sum("operations_low").alias("low"),
            F.min("minute").alias("first"),
            F.max("minute").alias("last"),
        )
        .collect()
    )
    # Spark collects times in the zone of the process
    found = {row["hour"].astimezone(dt.UTC): row for row in sums}
    columns = {"hour": pa.array(sorted(found), pa.timestamp("us", "UTC"))}
    for name, count in (("each", "high"), ("each_low", "low")):
        used = {hour: int(row[count] or 0) for hour, row in found.items()}
        means = hourly_prices(used, tier, after=rules.month_operations)
        columns[name] = pa.array([_fit(means[hour]) for hour in sorted(found)], EACH)
    # An Arrow table is local to the driver; for a list Spark would run a job.
    hours = rows.sparkSession.createDataFrame(pa.table(columns))
    moments = [row[name] for row in sums for name in ("first", "last")]
    return hours, max(moments) - min(moments) if moments else dt.timedelta()


def condensed(rows: DataFrame, *keys: str) -> DataFrame:
    """Sum billed rows up by these columns, keeping the columns of `priced`; few rows remain."""
    return rows.groupBy(*keys).agg(
        *[
            F.sum(name).alias(name)
            for name in ("count", "messages", "bytes", "operations_billed", "operations_low")
        ]
    )


def totals(rows: DataFrame, *keys: str) -> DataFrame:
    """Sum priced rows up by any of their columns; with none, in all."""
    return rows.groupBy(*keys).agg(*_sums())


def overview(rows: DataFrame, *groups: Sequence[str], top: int) -> DataFrame:
    """Sum priced rows up by several groups of columns in one pass.

    `group` is the position of a row's group among `groups`; the columns of the others are null. Of
    each group the `top` most expensive are kept, so that the result fits a report.
    """
    names = sorted({name for group in groups for name in group})
    summed = rows.groupingSets([list(group) for group in groups], *names).agg(
        F.grouping_id().alias("grouping"), *_sums()
    )
    number = F.lit(-1)
    for place, group in enumerate(groups):
        # one bit for each column that is not grouped by, the first column the highest
        bits = sum(
            1 << (len(names) - 1 - index) for index, name in enumerate(names) if name not in group
        )
        number = F.when(F.col("grouping") == bits, F.lit(place)).otherwise(number)
    dearest = Window.partitionBy("group").orderBy(F.desc("money"), *names)
    return (
        summed.withColumn("group", number)
        .withColumn("rank", F.row_number().over(dearest))
        .where(F.col("rank") <= top)
        .drop("grouping", "rank")
    )


def live(operations: DataFrame, prices: PriceList, rules: Rules) -> DataFrame:
    """Return running totals by hour, entity and stage of a stream of operations.

    The stream has a watermark and no repeats, as `stream_table` gives it. A stream cannot know
    which step of the month's prices it has reached, so money is at the step that
    `rules.month_operations` names.
    """
    tier = prices.tier(rules.tier)
    each = _fit(tier.cost(MILLION, after=rules.month_operations) / MILLION)
    rows = billed(operations, rules).withColumn("crossed", _moved(rules))
    sums = rows.groupBy(F.window("minute", "1 hour").alias("span"), "entity", "stage").agg(
        F.sum("messages").alias("messages"),
        F.sum("operations_billed").alias("operations"),
        F.sum("crossed").alias("transfer_bytes"),
    )
    return sums.select(
        F.col("span.start").alias("hour"), "entity", "stage", "messages", "operations",
        (F.col("operations").cast(COUNT) * F.lit(each)).cast(MONEY).alias("money"),
        _transfer("transfer_bytes", prices).alias("transfer_money"),
    )  # fmt: skip


def _moved(rules: Rules) -> Column:
    """Return the bytes of a row that leave a region."""
    crossing = F.col("stage").isin(*TRANSFER_STAGES) & F.lit(not rules.one_region)
    return F.when(crossing, F.col("bytes")).otherwise(F.lit(0)).cast("bigint")


def _times(count: str, each: str) -> Column:
    """Return a column of counts times a column of prices, as money."""
    return (F.col(count).cast(COUNT) * F.col(each)).cast(MONEY)


def _transfer(size: str, prices: PriceList) -> Column:
    """Return the cost of transferring a column of bytes out of a region, as money."""
    per_gb = F.lit(prices.transfer_per_gb).cast("decimal(10,6)")
    return (F.col(size).cast(COUNT) * per_gb / F.lit(Decimal(GB))).cast(MONEY)


def _fit(price: Decimal) -> Decimal:
    return price.quantize(Decimal("1e-20"))


def _sums() -> list[Column]:
    return [
        F.sum("count").alias("calls"),
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.sum("operations_billed").alias("operations"),
        F.sum("operations_low").alias("operations_low"),
        F.sum("money").cast(MONEY).alias("money"),
        F.sum("money_low").cast(MONEY).alias("money_low"),
        F.sum("transfer_bytes").alias("transfer_bytes"),
        F.sum("transfer_money").cast(MONEY).alias("transfer_money"),
        F.count(F.lit(1)).alias("rows"),
    ]
