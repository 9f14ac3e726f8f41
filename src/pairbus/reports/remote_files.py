"""Files of a ledger in an object store, read by Spark's Python workers with pyarrow.

A Python data source: Spark as pip installs it has no filesystem for object stores, and needs none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pairbus.extras import needs
from pairbus.ledger.files import read_rows
from pairbus.ledger.schema import arrow_schema, spark_schema
from pairbus.ledger.store import Store

with needs("spark"):
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "pairbus-ledger-files"

FILES_A_TASK = 64
"""Files that one task reads at most: each is a round trip or two."""

BATCH_ROWS = 10_000


def read_remote(spark: SparkSession, table: str, location: str, names: Sequence[str]) -> DataFrame:
    """Return the rows of some files of a ledger, with all columns."""
    spark.dataSource.register(LedgerFiles)
    return (
        spark.read.format(FORMAT)
        .option("table", table)
        .option("location", location)
        .option("names", json.dumps(list(names)))
        .load()
    )


class LedgerFiles(DataSource):
    """Named files of one table of a ledger."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Return the table's schema."""
        return spark_schema(self.options["table"])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the files."""
        return LedgerFilesReader(self.options)


class LedgerFilesReader(DataSourceReader):
    """Reads files whole, in batches."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._table = options["table"]
        self._location = options["location"]
        self._names: list[str] = json.loads(options["names"])

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the list of files into tasks: at least two, and none too long."""
        count = max(-(-len(self._names) // FILES_A_TASK), min(len(self._names), 2))
        return [InputPartition(self._names[number::count]) for number in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the files of one task."""
        import pyarrow as pa

        store = Store(self._location)
        # as Spark has it: every column may be null
        schema = pa.schema([f.with_nullable(True) for f in arrow_schema(self._table)])
        for name in partition.value:
            rows = read_rows(store, name).select(schema.names).cast(schema)
            yield from rows.to_batches(max_chunksize=BATCH_ROWS)
