"""A dry run: peek the backlog, restore it, and count messages by destination; changes nothing.

It reports the operations and the cost of the drain alone: one receive, one send and one settle of
each message by its size, and the data transfer out of the secondary's region. The application's own
receives are in `pairbus cost estimate`.
"""

import contextlib
from typing import TYPE_CHECKING, Any

from pairbus.options import SyphonOptions
from pairbus.pricing import PriceList, Rules
from pairbus.reports.cost_job import billable_column
from pairbus.spark.query import open_session, prepare_session
from pairbus.spark.query_options import apply_transform, load_transform, peek_options
from pairbus.spark.restore import restore
from pairbus.spark.syphon import check_namespaces
from pairbus.syphon.queue_counter import QueueCounter
from pairbus.syphon.setup import Setup
from pairbus.syphon.verdicts import DELIVER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["dry_run"]


def dry_run(
    options: SyphonOptions,
    *,
    spark: "SparkSession | None" = None,
    prices: PriceList | None = None,
    rules: Rules | None = None,
) -> dict[str, Any]:
    """Return the messages that a drain would send or dead-letter, by destination, and its cost.

    Args:
        options: as for `start_syphon`.
        spark: the session to run on; one of its own if left out.
        prices: the price list; the newest that ships if left out.
        rules: the switches of the cost model.

    Raises:
        PriceError: the price list has no such tier.
        SyphonError: a namespace cannot be used, or the transform failed; in one line.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    from pairbus.reports.price_lists import load_prices

    rules = rules or Rules()
    prices = prices or load_prices()
    tier = prices.tier(rules.tier)
    setup = Setup.of(options)
    transform = load_transform(setup)
    with contextlib.closing(QueueCounter(setup)) as counter:
        check_namespaces(setup, counter)
    own = spark is None
    session = spark or open_session(options.master)
    try:
        rows = (
            prepare_session(session).read.format("servicebus").options(**peek_options(setup)).load()
        )
        messages = restore(
            rows, ttl_policy=setup.options.ttl_policy, keep_original=transform is not None
        )
        if transform is not None:
            messages = apply_transform(transform, messages)
        counted = (
            messages.groupBy("destination", "verdict", "reason")
            .agg(
                F.count("*").alias("messages"),
                F.sum("size").alias("bytes"),
                F.sum(billable_column(F.col("size"))).alias("steps"),
            )
            .orderBy("verdict", "destination", "reason")
            .collect()
        )
    finally:
        if own:
            session.stop()
    total = sum(row["messages"] for row in counted)
    receives = sum(int(row["steps"]) for row in counted)
    sends = sum(int(row["steps"]) for row in counted if row["verdict"] == DELIVER)
    operations = receives + sends + total
    charged = tier.cost(operations, after=rules.month_operations)
    transfer = prices.transfer(sum(int(row["bytes"]) for row in counted), rules)
    return {
        "rows": [
            {name: row[name] for name in ("destination", "verdict", "reason", "messages", "bytes")}
            for row in counted
        ],
        "messages": total,
        "operations": {
            "receive_backlog": receives,
            "send_primary": sends,
            "settle": total,
            "total": operations,
        },
        "cost": {
            "operations": charged,
            "transfer": transfer,
            "total": charged + transfer,
            "currency": prices.currency,
            "prices_of": prices.date.isoformat(),
            "tier": rules.tier,
        },
    }
