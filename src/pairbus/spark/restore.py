"""Restore: a pure DataFrame function from backlog rows to messages for their destinations.

The input is the rows of the source with `aliases=true`. The output is the same rows with the
original values back in their columns, and a verdict: `deliver`, or `dead-letter` with reason and
description. The user's transform comes after it and may change any of these columns.
"""

from typing import TYPE_CHECKING

from pairbus.envelope.fields import EXPIRED, MAX_EXPIRY, NO_DESTINATION, PATH, WRONG_ALIAS_TYPE
from pairbus.syphon.verdicts import DEAD_LETTER, DELIVER, ORIGINAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["restore"]


def restore(
    backlog: "DataFrame", *, ttl_policy: str = "full", keep_original: bool = False
) -> "DataFrame":
    """Restore the fields of the aliases and add a verdict to each row.

    Args:
        backlog: rows of the source, with its alias columns.
        ttl_policy: `full` restores the time to live as it was, `deduct` subtracts the time that the
            message spent in the backlog and dead-letters messages that have expired.
        keep_original: keep the destination in `originalDestination` too, by which the ledger knows
            the message when a transform changes `destination`.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    ttl = F.col("aliasTimeToLive")
    if ttl_policy == "deduct":
        entered = F.unix_millis("enqueuedTime")
        # Clamped first, because a sum that overflows fails the whole micro-batch.
        ttl = F.when(ttl < 0, 0).when(ttl > MAX_EXPIRY, MAX_EXPIRY).otherwise(ttl)
        expiry = F.timestamp_millis(F.least(entered + ttl, F.lit(MAX_EXPIRY)))
        # `least` ignores nulls: without a time to live there is no expiry.
        backlog = backlog.withColumn("absoluteExpiryTime", F.when(ttl.isNotNull(), expiry))
        # A clock that runs behind the broker's deducts nothing.
        ttl = ttl - F.greatest(F.unix_millis("receivedTime") - entered, F.lit(0))
    reason = (
        F.when(F.col("aliasProblem").isNotNull(), WRONG_ALIAS_TYPE)
        .when(F.coalesce(F.trim("aliasPath"), F.lit("")) == "", NO_DESTINATION)
        .when(ttl <= 0, EXPIRED)
    )
    description = (
        F.when(F.col("aliasProblem").isNotNull(), F.col("aliasProblem"))
        .when(F.coalesce(F.trim("aliasPath"), F.lit("")) == "", F.lit(f"there is no {PATH}"))
        .when(ttl <= 0, F.lit("its time to live ran out while it was in the backlog"))
    )
    if keep_original:
        backlog = backlog.withColumn(ORIGINAL, F.trim("aliasPath"))
    return (
        backlog.withColumn("reason", reason)
        .withColumn("description", description)
        .withColumn("verdict", F.when(reason.isNull(), DELIVER).otherwise(DEAD_LETTER))
        .withColumn("destination", F.trim("aliasPath"))
        .withColumn("sessionId", F.col("aliasSessionId"))
        .withColumn("timeToLive", ttl)
        .withColumn("scheduledEnqueueTime", F.col("aliasScheduledEnqueueTime"))
        .drop("aliasPath", "aliasSessionId", "aliasTimeToLive")
        .drop("aliasScheduledEnqueueTime", "aliasProblem")
    )
