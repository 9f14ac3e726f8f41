"""A bare PySpark streaming query: one micro-batch from a Python data source to a Python sink.

What a cold start of the syphon is compared with: `python -m benchmarks.bare_stream FILE` writes the
time at which the sink got the row into FILE. With `count` instead it counts one row.
"""

# ruff: noqa: N802  (Spark names these methods)

import os
import sys
import time
from pathlib import Path

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)


class Reader(DataSourceStreamReader):
    """One row."""

    def initialOffset(self):
        return {"n": 0}

    def latestOffset(self, start, limit):
        return {"n": 1}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        yield (1,)


class Writer(DataSourceStreamWriter):
    """Writes the time of the first row."""

    def __init__(self, path):
        self.path = path

    def write(self, iterator):
        for _ in iterator:
            Path(self.path).write_text(str(time.time()))
        return WriterCommitMessage()


class Bare(DataSource):
    """Source and sink."""

    @classmethod
    def name(cls):
        return "bare"

    def schema(self):
        return "n int"

    def streamReader(self, schema):
        return Reader()

    def streamWriter(self, schema, overwrite):
        return Writer(self.options["file"])


def main() -> None:
    from pyspark.sql import SparkSession

    from pairbus.spark.archive import base_of
    from pairbus.spark.java import ensure_java, find_java
    from pairbus.spark.session import prepare_environment

    base = base_of(find_java(), Path(ensure_java()))
    if base.is_file():
        os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:SharedArchiveFile={base}"  # no archive of ours
    prepare_environment()  # Java and Python; no setting of ours
    file = sys.argv[1]
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    if file == "count":
        print(spark.range(1).count())
        spark.stop()
        return
    spark.dataSource.register(Bare)
    query = (
        spark.readStream.format("bare").load().writeStream.format("bare").option("file", file)
        .option("checkpointLocation", f"{file}.checkpoint").trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
