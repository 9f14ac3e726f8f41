"""The columns of `format("servicebus")` as a Spark schema."""

from collections.abc import Sequence

from pyspark.sql import types as t

from pairbus.syphon.columns import Column

__all__ = ["spark_schema"]

_KINDS = {
    "string": t.StringType(),
    "bigint": t.LongType(),
    "int": t.IntegerType(),
    "binary": t.BinaryType(),
    "timestamp": t.TimestampType(),
    "map<string,string>": t.MapType(t.StringType(), t.StringType()),
}


def spark_schema(columns: Sequence[Column]) -> t.StructType:
    """Return the columns as a Spark schema (needs no session)."""
    return t.StructType([t.StructField(c.name, _KINDS[c.type], True) for c in columns])
