"""What was spent: operations of the ledger into billable operations and money.

Each function takes DataFrames and returns one. They stack: `billed` says what each row counts as
under the chosen rules, `derived` adds what the application does on the primary by itself,
`priced` puts money to every row, `totals` sums up by any columns, and `sources` lists the rows
that a total came from. Money is `decimal(38,12)` and is not rounded here.

Price steps depend on how many operations the month has seen, so the price of an hour is what its
operations cost after those of the hours before it, and every row of the hour has its share.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)

from ..core.pricing import GB, MILLION, SEND_STAGES, STEP, TRANSFER_STAGES, PriceList, Rules, Tier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MONEY = "decimal(38,12)"


def billed(operations: DataFrame, rules: Rules) -> DataFrame:
    """Add what each row counts as.

    `operations_billed` follows the rules; `operations_low` reads the uncertain ones the cheaper
    way. `extra` marks what would not have been spent without an outage or a pair.
    """
    sends = F.col("stage").isin(*SEND_STAGES)
    polls = F.col("stage") == "idle_poll"
    batched = F.least(F.col("billable"), F.col("billable_batched"))
    chosen = F.col("billable")
    if rules.batches == "batch":
        chosen = F.when(sends, batched).otherwise(chosen)
    if not rules.empty_polls:
        chosen = F.when(polls, F.lit(0)).otherwise(chosen)
    low = F.when(polls, F.lit(0)).when(sends, batched).otherwise(F.col("billable"))
    return operations.select(
        "writer", "sequence", "minute", "client_id", "namespace", "entity", "stage", "operation",
        "size_step", "count", "messages", "bytes",
        chosen.cast("bigint").alias("operations_billed"),
        low.cast("bigint").alias("operations_low"),
        F.lit(False).alias("derived"),
        (F.col("stage") != "send_primary").alias("extra"),
    )  # fmt: skip


def derived(messages: DataFrame, subscriptions: Mapping[str, int] | None = None) -> DataFrame:
    """Return what the application does by itself with what was forwarded to it, marked so.

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
    step = F.greatest(F.lit(1), F.ceil(F.coalesce(F.col("size"), F.lit(0)) / F.lit(STEP)))
    sums = (
        messages.where(F.col("event") == "forwarded")
        .select(
            F.date_trunc("minute", "at").alias("minute"),
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


def between(rows: DataFrame, start: object = None, end: object = None) -> DataFrame:
    """Keep the rows of the minutes from `start` on and before `end`."""
    if start is not None:
        rows = rows.where(F.col("minute") >= F.lit(start))
    if end is not None:
        rows = rows.where(F.col("minute") < F.lit(end))
    return rows


def priced(rows: DataFrame, prices: PriceList, rules: Rules) -> DataFrame:
    """Add `hour`, `money`, `money_low`, `transfer_bytes` and `transfer_money` to every row."""
    tier = prices.tier(rules.tier)
    rows = rows.withColumn("hour", F.date_trunc("hour", "minute"))
    hours = hour_prices(rows, tier, rules)
    crossing = F.col("stage").isin(*TRANSFER_STAGES) & F.lit(not rules.one_region)
    moved = F.when(crossing, F.col("bytes")).otherwise(F.lit(0))
    per_byte = (prices.transfer_per_gb / GB).quantize(Decimal("1e-20"))
    return (
        rows.join(F.broadcast(hours), "hour", "left")
        .withColumn("money", (F.col("operations_billed") * F.col("each")).cast(MONEY))
        .withColumn("money_low", (F.col("operations_low") * F.col("each_low")).cast(MONEY))
        .withColumn("transfer_bytes", moved.cast("bigint"))
        .withColumn(
            "transfer_money",
            (F.col("transfer_bytes").cast("decimal(18,0)") * F.lit(per_byte)).cast(MONEY),
        )
        .drop("each", "each_low")
    )


def condensed(rows: DataFrame, *keys: str) -> DataFrame:
    """Sum billed rows up by these columns, keeping what `priced` needs; far fewer rows remain."""
    return rows.groupBy(*keys).agg(
        *[
            F.sum(name).alias(name)
            for name in ("count", "messages", "bytes", "operations_billed", "operations_low")
        ]
    )


def hour_prices(rows: DataFrame, tier: Tier, rules: Rules) -> DataFrame:
    """Return the mean price of an operation in each hour, by the month's price steps."""
    hours = rows.groupBy("hour").agg(
        F.sum("operations_billed").alias("high"), F.sum("operations_low").alias("low")
    )
    before = (
        Window.partitionBy(F.date_trunc("month", "hour"))
        .orderBy("hour")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    for name in ("high", "low"):
        used = F.coalesce(F.sum(name).over(before), F.lit(0)) + F.lit(rules.month_operations)
        hours = hours.withColumn(f"{name}_used", used.cast("decimal(20,0)"))
    for name, alias in (("high", "each"), ("low", "each_low")):
        used_, count = F.col(f"{name}_used"), F.col(name).cast("decimal(18,0)")
        spent = _step_cost(used_ + count, tier) - _step_cost(used_, tier)
        each = F.when(count > 0, spent / count).otherwise(F.lit(Decimal(0)))
        hours = hours.withColumn(alias, each.cast("decimal(38,18)"))
    return hours.select("hour", "each", "each_low")


def totals(rows: DataFrame, *keys: str) -> DataFrame:
    """Sum priced rows up by any of their columns; with none, in all."""
    return rows.groupBy(*keys).agg(
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
    )


def sources(rows: DataFrame, **values: object) -> DataFrame:
    """Return the priced rows that a total came from: those with these values of its keys."""
    for name, value in values.items():
        rows = rows.where(F.col(name).eqNullSafe(F.lit(value)))
    return rows.orderBy("minute", "writer", "sequence")


def timeline(rows: DataFrame, unit: str = "minute") -> DataFrame:
    """Return messages by time, sent to the primary, to the backlog, and drained from it."""

    def of(stage: str) -> Column:
        return F.sum(F.when(F.col("stage") == stage, F.col("messages")).otherwise(F.lit(0)))

    recorded = rows.where(~F.col("derived"))
    return (
        recorded.groupBy(F.date_trunc(unit, "minute").alias("time"))
        .agg(
            of("send_primary").alias("sent_primary"),
            of("send_backlog").alias("sent_backlog"),
            of("receive_backlog").alias("drained"),
            of("ping").alias("pings"),
        )
        .orderBy("time")
    )


def live(operations: DataFrame, prices: PriceList, rules: Rules) -> DataFrame:
    """Return running totals by hour, entity and stage of a stream of operations.

    The stream has a watermark and no repeats, as `stream_table` gives it. A stream cannot know
    which step of the month's prices it has reached, so money is at the step that
    `rules.month_operations` names.
    """
    tier = prices.tier(rules.tier)
    each = tier.cost(MILLION, after=rules.month_operations) / MILLION
    per_byte = (prices.transfer_per_gb / GB).quantize(Decimal("1e-20"))
    crossing = F.col("stage").isin(*TRANSFER_STAGES) & F.lit(not rules.one_region)
    rows = billed(operations, rules).withColumn(
        "crossed", F.when(crossing, F.col("bytes")).otherwise(F.lit(0))
    )
    sums = rows.groupBy(F.window("minute", "1 hour").alias("span"), "entity", "stage").agg(
        F.sum("messages").alias("messages"),
        F.sum("operations_billed").alias("operations"),
        F.sum("crossed").alias("transfer_bytes"),
    )
    return sums.select(
        F.col("span.start").alias("hour"), "entity", "stage", "messages", "operations",
        (F.col("operations") * F.lit(each)).cast(MONEY).alias("money"),
        (F.col("transfer_bytes").cast("decimal(18,0)") * F.lit(per_byte))
        .cast(MONEY).alias("transfer_money"),
    )  # fmt: skip


def _step_cost(used: Column, tier: Tier) -> Column:
    """Return what the first `used` operations of a month cost, as an expression."""
    total = F.lit(Decimal(0)).cast("decimal(38,12)")
    for step, following in zip(tier.steps, (*tier.steps[1:], None), strict=True):
        end = used if following is None else F.least(used, F.lit(Decimal(following.start)))
        within = F.greatest(end - F.lit(Decimal(step.start)), F.lit(Decimal(0)))
        price = (step.per_million / MILLION).quantize(Decimal("1e-12"))
        total = (total + (within.cast("decimal(20,0)") * F.lit(price)).cast(MONEY)).cast(MONEY)
    return total
