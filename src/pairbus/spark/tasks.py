"""The tasks of the source: peek an entity, or receive the available messages of some queues.

They run on executors, with the connections of their process, and never wait for messages.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pairbus.envelope.encoded import Opened, open_message
from pairbus.spark.executor import open_browser, open_reader, runtime
from pairbus.spark.options import ConnectorOptions
from pairbus.spark.partitions import PeekPartition, ReceivePartition, columns_of
from pairbus.syphon._sync.receiving import Browser
from pairbus.syphon.rows import RowMaker

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["browse", "peek", "receive"]


def peek(options: ConnectorOptions, partition: PeekPartition) -> "Iterator[pa.RecordBatch]":
    """Browse an entity."""
    maker = RowMaker(columns_of(options))
    for page in browse(open_browser(options, "reader"), partition, aliases=options["aliases"]):
        now = int(runtime.time() * 1e6)
        messages = [(None, message) for message, _ in page]
        yield maker.batch_of(partition.entity, now, messages, [opened for _, opened in page])


def browse(
    browser: Browser, partition: PeekPartition, *, aliases: bool = False
) -> Iterator[list[tuple[bytes, Opened]]]:
    """Browse the messages of a partition; yield them page by page, as bytes and parsed."""
    first, end = partition.start, partition.end
    left = 1 << 62 if partition.most is None else partition.most
    while left > 0 and (end is None or first < end):
        found = browser.peek(partition.entity, first, min(left, 250))
        page = [(message, open_message(message, aliases=aliases)) for message in found]
        page = [one for one in page if end is None or (one[1].sequence_number or 0) < end]
        if not page:
            return
        yield page
        first = 1 + max(opened.sequence_number or 0 for _, opened in page)
        left -= len(page)


def receive(options: ConnectorOptions, partition: ReceivePartition) -> "Iterator[pa.RecordBatch]":
    """Receive the available messages, queue by queue, up to each queue's grant."""
    reader = open_reader(options, is_stream=partition.epoch >= 0)
    maker = RowMaker(columns_of(options))
    for batch in reader.read(
        partition.epoch, partition.grants, partition.pace, must_read=partition.must_read
    ):
        yield maker.batch_of(batch.queue, batch.received_at, batch.messages, batch.opened)
