"""Read a ledger's tables as DataFrames in which no row comes twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from ..ledger.plan import FileFacts, Plan, plan
from ..ledger.schema import spark_schema
from ..ledger.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def open_ledgers(locations: str | Sequence[str]) -> list[Store]:
    """Return the stores of one ledger or several; raise LedgerError where one is none."""
    names = [locations] if isinstance(locations, str) else list(locations)
    stores = [Store(name) for name in names]
    for store in stores:
        store.require_ledger()
    return stores


def read_table(
    spark: SparkSession, locations: str | Sequence[str], table: str
) -> tuple[DataFrame, Plan]:
    """Return a table with repeats dropped, and the plan that says what was dropped or is missing.

    Raises:
        LedgerError: a location is not a ledger, or of another version.
    """
    found = plan(open_ledgers(locations), table)
    return read_plan(spark, found), found


def read_plan(spark: SparkSession, found: Plan) -> DataFrame:
    """Read what a plan names: overlapping files row by row without repeats, the others as is."""
    parts = []
    if found.single:
        parts.append(_read(spark, found.table, found.single))
    if found.overlapping:
        parts.append(drop_repeats(_read(spark, found.table, found.overlapping)))
    if not parts:
        return spark.createDataFrame([], spark_schema(found.table))
    return reduce(lambda a, b: a.unionByName(b), parts)


def drop_repeats(rows: DataFrame) -> DataFrame:
    """Keep one of the rows that carry the same writer and sequence."""
    return rows.dropDuplicates(["writer", "sequence"])


def stream_table(
    spark: SparkSession, location: str, table: str, *, watermark: str = "2 hours"
) -> DataFrame:
    """Return a table as a stream of what is added, without repeats within the watermark."""
    from ..ledger.plan import TIME_COLUMN

    open_ledgers(location)
    rows = spark.readStream.schema(spark_schema(table)).parquet(
        f"{spark_path(location)}/{table}/*.parquet"
    )
    return rows.withWatermark(TIME_COLUMN[table], watermark).dropDuplicatesWithinWatermark(
        ["writer", "sequence"]
    )


def spark_path(location: str) -> str:
    """Return a location as Spark spells it."""
    if "://" not in location:
        return "file://" + Store(location).path("").rstrip("/")
    return "s3a" + location[2:] if location.startswith("s3://") else location


def _read(spark: SparkSession, table: str, found: Iterable[FileFacts]) -> DataFrame:
    paths = [_spark_file(facts) for facts in found]
    return spark.read.schema(spark_schema(table)).parquet(*paths)


def _spark_file(facts: FileFacts) -> str:
    if "://" not in facts.location:
        return f"file://{facts.name}"
    scheme = facts.location.split("://", 1)[0]
    if scheme == "file":
        return f"file://{facts.name}"
    if scheme == "s3":
        scheme = "s3a"
    return f"{scheme}://{facts.name}"
