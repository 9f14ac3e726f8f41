"""The cost so far: the cost job as a stream over a ledger that is still written.

Every few seconds the stream delivers the sums, by hour, entity and stage, that changed. The latest
sums are kept here and added up.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from pairbus.extras import needs
from pairbus.reports import cost_job as cost
from pairbus.reports.ledger_tables import stream_table
from pairbus.reports.sums import add_up, from_row

with needs("spark"):
    from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pairbus.pricing import PriceList, Rules

STREAM_SETTINGS = {"spark.sql.shuffle.partitions": "2"}
"""For a session of its own: the sums of a stream are few, and each partition of them costs time."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Messages, operations and money of one stage, or of one hour, or of all."""

    name: str
    messages: int
    operations: int
    money: Decimal
    transfer_money: Decimal


@dataclass(frozen=True, slots=True)
class LiveCost:
    """The cost since `since`, as far as the ledger was written when it was read."""

    at: dt.datetime
    since: dt.datetime
    currency: str
    total: Spent
    added: int
    by_stage: tuple[Spent, ...]
    by_hour: tuple[Spent, ...]
    by_entity: tuple[Spent, ...]


class CostWatch:
    """A running query, and its latest figures.

    Args:
        report: is called with new figures, on a thread of Spark's.
        since: rows of earlier minutes are left out.
        interval: seconds between two reads of the ledger.
        checkpoint: a temporary directory for this watch.

    Raises:
        LedgerError: it is no ledger, or Spark cannot follow it.
    """

    def __init__(
        self,
        spark: SparkSession,
        location: str,
        prices: PriceList,
        rules: Rules,
        *,
        report: Callable[[LiveCost], None],
        since: dt.datetime,
        checkpoint: str,
        interval: float = 10.0,
    ) -> None:
        self._prices = prices
        self._since = since
        self._report = report
        self._lock = threading.Lock()
        self._sums: dict[tuple[dt.datetime, str, str], Spent] = {}
        rows = stream_table(spark, location, "operations").where(F.col("minute") >= F.lit(since))
        self.query: StreamingQuery = (
            cost.live(rows, prices, rules)
            .writeStream.outputMode("update")
            .foreachBatch(self._update)
            .trigger(processingTime=f"{max(1, round(interval * 1000))} milliseconds")
            .option("checkpointLocation", checkpoint)
            .start()
        )

    def stop(self) -> None:
        """End the query."""
        self.query.stop()

    def catch_up(self) -> None:
        """Wait until everything that the ledger holds now was reported."""
        self.query.processAllAvailable()

    def latest(self, added: int = 0) -> LiveCost:
        """Return the current figures."""
        with self._lock:
            sums = dict(self._sums)
        return LiveCost(
            at=dt.datetime.now(dt.UTC),
            since=self._since,
            currency=self._prices.currency,
            total=add_up(Spent, sums.values(), name="total"),
            added=added,
            by_stage=_grouped(sums, lambda key: key[2]),
            by_hour=_grouped(sums, lambda key: key[0].isoformat()),
            by_entity=_grouped(sums, lambda key: key[1]),
        )

    def _update(self, changed: DataFrame, _batch: int) -> None:
        before = sum(spent.operations for spent in self._sums.values())
        rows = changed.collect()  # few: at most hours × entities × stages since then
        with self._lock:
            for row in rows:
                key = (row["hour"].astimezone(dt.UTC), row["entity"], row["stage"])
                self._sums[key] = from_row(Spent, row, name="")
        if rows:
            after = sum(spent.operations for spent in self._sums.values())
            self._report(self.latest(after - before))


def _grouped(
    sums: dict[tuple[dt.datetime, str, str], Spent],
    name_of: Callable[[tuple[dt.datetime, str, str]], str],
) -> tuple[Spent, ...]:
    groups: dict[str, list[Spent]] = {}
    for key, spent in sums.items():
        groups.setdefault(name_of(key), []).append(spent)
    return tuple(add_up(Spent, groups[name], name=name) for name in sorted(groups))
