"""The tasks of the source: peek an entity, or receive the available messages of some queues.

They run on executors, with the connections of their process, and never wait for more messages than
there are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pairbus.envelope.encoded import open_message
from pairbus.spark.executor import open_browser, open_reader, runtime
from pairbus.spark.options import ConnectorOptions
from pairbus.syphon.columns import Column, select
from pairbus.syphon.limits import Grant
from pairbus.syphon.rates import Pace
from pairbus.syphon.rows import RowMaker

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PeekPartition", "ReceivePartition", "columns_of", "peek", "receive"]


@dataclass(frozen=True)
class PeekPartition(InputPartition):
    """Browse one entity: from sequence number `start` on, before `end`, at most `most` messages."""

    entity: str
    start: int
    end: int | None
    most: int | None


@dataclass(frozen=True)
class ReceivePartition(InputPartition):
    """Receive from some queues, one after the other; an epoch below 0 is a batch read."""

    epoch: int
    grants: tuple[Grant, ...]
    pace: Pace | None = None


def columns_of(options: ConnectorOptions) -> list[Column]:
    """Return the selected columns."""
    return select(options["columns"], aliases=options["aliases"])


def _maker(options: ConnectorOptions) -> RowMaker:
    return RowMaker(columns_of(options), aliases=options["aliases"])


def peek(options: ConnectorOptions, partition: PeekPartition) -> "Iterator[pa.RecordBatch]":
    """Browse an entity."""
    browser, maker = open_browser(options, "reader"), _maker(options)
    first, left = partition.start, partition.most if partition.most is not None else 1 << 62
    while left > 0 and (partition.end is None or first < partition.end):
        found = browser.peek(partition.entity, first, min(left, 250))
        pairs = [(m, open_message(m, aliases=options["aliases"])) for m in found]
        if partition.end is not None:
            pairs = [p for p in pairs if (p[1].sequence_number or 0) < partition.end]
        if not pairs:
            return
        first = 1 + max(opened.sequence_number or 0 for _, opened in pairs)
        left -= len(pairs)
        now = int(runtime.time() * 1e6)
        yield maker.batch_of(
            partition.entity, now, [(None, m) for m, _ in pairs], [o for _, o in pairs]
        )


def receive(options: ConnectorOptions, partition: ReceivePartition) -> "Iterator[pa.RecordBatch]":
    """Receive the available messages, queue by queue, up to each queue's grant."""
    reader, maker = open_reader(options, is_stream=partition.epoch >= 0), _maker(options)
    for batch in reader.read(partition.epoch, partition.grants, partition.pace):
        yield maker.batch_of(batch.queue, batch.received_at, batch.messages, batch.opened)
