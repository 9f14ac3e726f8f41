"""Load the classes of Spark that the jobs and the syphon use, so that an archive contains them.

`pairbus.spark.archive` runs this as a process of its own.
"""

# ruff: noqa: N802, N803 - Spark names these methods and arguments

import datetime as dt
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)

from pairbus.ledger import LedgerWriter
from pairbus.reports.cost_report import cost_report
from pairbus.reports.price_lists import load_prices
from pairbus.reports.reconciliation import balance
from pairbus.spark.session import get_session, job_settings


class OneRow(DataSource, DataSourceStreamReader):
    """A stream that ends after its row, and a sink that ignores it."""

    @classmethod
    def name(cls) -> str:
        """The format's short name."""
        return "one_row"

    def schema(self) -> str:
        """One number."""
        return "number int"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """A stream that ends after its row."""
        return self

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        """A sink that ignores its rows."""
        return Ignore()

    def initialOffset(self) -> dict[str, int]:
        """Nothing was read yet."""
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """There is one row."""
        return {"row": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One partition."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """The row."""
        yield (1,)


class Ignore(DataSourceStreamWriter):
    """Writes nothing."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Read the rows."""
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing."""


def warm_up(spark: SparkSession, folder: Path) -> None:
    """Run both jobs over a small ledger, and a stream of one micro-batch."""
    ledger = str(folder / "ledger")
    writer = LedgerWriter(ledger, client_id="warm-up")
    writer.count("contoso", "orders", "send_primary", "send", messages=1, size=1, billable=1)
    message = {"destination": "orders", "backlog_queue": "contoso/x/0", "size": 1}
    writer.backlogged([{**message, "message_id": name} for name in ("delivered", "lost")])
    writer.close()
    cost_report(spark, ledger, load_prices(), start=dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
    balance(spark, ledger)
    spark.dataSource.register(OneRow)
    stream = spark.readStream.format("one_row").load().writeStream.format("one_row")
    query = stream.option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """Start Spark as the commands do, and use it."""
    spark = get_session("local[2]", app_name="pairbus warm-up", config=job_settings(0))
    with tempfile.TemporaryDirectory() as folder:
        warm_up(spark, Path(folder))
    spark.stop()


if __name__ == "__main__":
    main()
