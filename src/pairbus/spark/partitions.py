"""The partitions of the source: the messages that one task reads.

Spark starts a Python process for each step of planning a query, and each imports the source. So the
modules that it needs for planning import little; `pairbus.spark.tasks` is imported by tasks only.
"""

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from pairbus.spark.options import ConnectorOptions
from pairbus.syphon.columns import Column, select
from pairbus.syphon.limits import Grant
from pairbus.syphon.rates import Pace

__all__ = ["PeekPartition", "ReceivePartition", "columns_of"]


@dataclass(frozen=True)
class PeekPartition(InputPartition):
    """Browse one entity: from sequence number `start` on, before `end`, at most `most` messages."""

    entity: str
    start: int
    end: int | None
    most: int | None


@dataclass(frozen=True)
class ReceivePartition(InputPartition):
    """Receive from some queues, one after the other; an epoch below 0 is a batch read.

    With `must_read` the task fails if a queue cannot be read.
    """

    epoch: int
    grants: tuple[Grant, ...]
    pace: Pace | None = None
    must_read: bool = False


def columns_of(options: ConnectorOptions) -> list[Column]:
    """Return the selected columns."""
    return select(options["columns"], aliases=options["aliases"])
