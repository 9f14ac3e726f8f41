"""The tasks of the source: peek an entity, or receive the available messages of some queues.

They run on executors, with the connections of their process, and never wait for messages.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pairbus.envelope.encoded import open_message
from pairbus.spark.executor import open_browser, open_reader, runtime
from pairbus.spark.options import ConnectorOptions
from pairbus.spark.partitions import PeekPartition, ReceivePartition, columns_of
from pairbus.syphon.rows import RowMaker

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["peek", "receive"]


def peek(options: ConnectorOptions, partition: PeekPartition) -> "Iterator[pa.RecordBatch]":
    """Browse an entity."""
    browser, maker = open_browser(options, "reader"), RowMaker(columns_of(options))
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
    reader, maker = (
        open_reader(options, is_stream=partition.epoch >= 0),
        RowMaker(columns_of(options)),
    )
    for batch in reader.read(
        partition.epoch, partition.grants, partition.pace, must_read=partition.must_read
    ):
        yield maker.batch_of(batch.queue, batch.received_at, batch.messages, batch.opened)
