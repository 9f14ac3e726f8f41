"""Reads a ledger's tables as DataFrames without repeated rows.

Where Spark has a filesystem for the ledger's location (a local path always, an object store if the
cluster was given the connector), it reads the files itself. Otherwise its Python workers do, with
the same pyarrow and the same credentials as the writers of the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pairbus.ledger.plan import TIME_COLUMN, FileFacts, Plan, plan
from pairbus.ledger.schema import spark_schema
from pairbus.ledger.store import LedgerError, Store, shown
from pairbus.reports.remote_files import read_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS = 5
"""How often a job is begun again because a compaction removed files that it was about to read."""

NO_FILESYSTEM = ("No FileSystem for scheme", "ClassNotFoundException")
"""Texts in Hadoop's error if Spark has no connector for an object store."""

WATERMARK = "2 hours"
"""How late a repeated row may be added and still be recognised as a repeat."""


def open_ledgers(locations: str | Sequence[str]) -> list[Store]:
    """Return the stores of one ledger or several; raise LedgerError if one is not a ledger."""
    names = [locations] if isinstance(locations, str) else list(locations)
    stores = [Store(name) for name in names]
    for store in stores:
        store.require_ledger()
    return stores


def shown_locations(locations: str | Sequence[str]) -> tuple[str, ...]:
    """Return locations as a report may show them."""
    names = [locations] if isinstance(locations, str) else locations
    return tuple(shown(name) for name in names)


def read_table(
    spark: SparkSession, locations: str | Sequence[str], table: str
) -> tuple[DataFrame, Plan]:
    """Return a table without repeated rows, and the plan, which lists dropped and missing rows.

    Raises:
        LedgerError: a location is not a ledger, or of another version.
    """
    found = plan(open_ledgers(locations), table)
    return read_plan(spark, found), found


def read_plan(spark: SparkSession, found: Plan) -> DataFrame:
    """Read the files of a plan: overlapping ones row by row without repeats, others as they are."""
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


def stream_table(spark: SparkSession, location: str, table: str) -> DataFrame:
    """Return a table as a stream of added rows, without repeats within the watermark.

    A compaction may run beside it: its files are new to the stream, but their rows are not, or are
    older than the watermark.

    Raises:
        LedgerError: it is no ledger, or Spark has no filesystem of its own for it.
    """
    open_ledgers(location)
    if not is_known_to_spark(spark, location):
        raise LedgerError(
            f"{shown(location)}: `cost watch` needs Spark's connector for "
            f"{location.split('://', 1)[0]}: add it with spark.jars.packages"
        )
    rows = (
        spark.readStream.schema(spark_schema(table))
        # the rows of a file that a compaction removed since it was listed are in the new file
        .option("ignoreMissingFiles", "true")
        .parquet(f"{spark_path(location)}/{table}/*.parquet")
    )
    return rows.withWatermark(TIME_COLUMN[table], WATERMARK).dropDuplicatesWithinWatermark(
        ["writer", "sequence"]
    )


def beginning_again(job: Callable[P, T]) -> Callable[P, T]:
    """Run a job again if a compaction has removed files that it was about to read."""

    @wraps(job)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(ATTEMPTS - 1):
            try:
                return job(*args, **kwargs)
            except Exception as exc:
                if not _is_missing_file(exc):
                    raise
        return job(*args, **kwargs)

    return run


def _is_missing_file(exc: BaseException) -> bool:
    text = str(exc)
    return isinstance(exc, FileNotFoundError) or any(
        sign in text for sign in ("FILE_NOT_EXIST", "FileNotFoundException", "FileNotFoundError")
    )


def spark_path(location: str) -> str:
    """Return a location as Spark spells it."""
    if "://" not in location:
        return "file://" + Store(location).path("").rstrip("/")
    plain = location.split("?", 1)[0].rstrip("/")
    return "s3a" + plain[2:] if plain.startswith("s3://") else plain


def is_known_to_spark(spark: SparkSession, location: str) -> bool:
    """Return whether Spark has a filesystem of its own for a location."""
    if "://" not in location:
        return True
    try:
        spark.read.schema("value STRING").text(spark_path(location))
    except Exception as exc:  # noqa: BLE001 (what Java throws is wrapped in different ways)
        return not any(sign in str(exc) for sign in NO_FILESYSTEM)
    return True


def _read(spark: SparkSession, table: str, found: Iterable[FileFacts]) -> DataFrame:
    by_location: dict[str, list[str]] = {}
    for facts in found:
        by_location.setdefault(facts.location, []).append(facts.name)
    own: list[str] = []
    others: list[DataFrame] = []
    for location, names in by_location.items():
        if is_known_to_spark(spark, location):
            own.extend(f"{spark_path(location)}/{name}" for name in names)
        else:
            others.append(read_remote(spark, table, location, names))
    if own:
        others.insert(0, spark.read.schema(spark_schema(table)).parquet(*own))
    return reduce(lambda a, b: a.unionByName(b), others)
