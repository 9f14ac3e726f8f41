"""Rows as they leave Spark, or enter it as a file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row

BATCH = 10_000


def plain(row: Row) -> dict[str, Any]:
    """Return a row as a dict, its times in UTC (Spark collects them in the process's zone)."""
    return {
        name: value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value
        for name, value in row.asDict().items()
    }


def save_rows(rows: Iterable[Mapping[str, Any]], schema: pa.Schema, file: str) -> int:
    """Write rows as one Parquet file, a batch at a time; return how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    written, left = 0, iter(rows)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while batch := list(islice(left, BATCH)):
            writer.write_table(pa.Table.from_pylist(batch, schema))
            written += len(batch)
    return written
