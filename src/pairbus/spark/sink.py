"""The sink of `format("servicebus")`: rows to queues and topics, in batches and in streams.

`pairbus.syphon` delivers; here are Spark's classes around it. Rows without an encoded message are
encoded from their columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pairbus.spark.options import ConnectorOptions
from pairbus.syphon.target import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchWriter", "StreamWriter"]


@dataclass
class Done(WriterCommitMessage):
    """A task has ended; its reports and receipts say what it did."""


class RowWriter:
    """Checks the columns when it is made, and sends the rows of a task."""

    def __init__(self, options: ConnectorOptions, schema: StructType) -> None:
        _check(options, schema)
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Send one partition's rows."""
        from pairbus.spark.encode import with_messages
        from pairbus.spark.executor import open_deliverer

        deliverer = open_deliverer(self._options)
        for batch in iterator:
            has_message = "message" in batch.schema.names
            deliverer.deliver(batch if has_message else with_messages(batch))
        deliverer.finish()
        return Done()


class BatchWriter(RowWriter, DataSourceArrowWriter):
    """Sends the rows of a DataFrame."""


class StreamWriter(RowWriter, DataSourceStreamArrowWriter):
    """Sends the rows of a stream."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: each task has settled its messages."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: a send or a settlement cannot be undone."""


def _check(options: ConnectorOptions, schema: StructType) -> None:
    names = set(schema.fieldNames())
    problems = []
    if not names & {"message", "body"}:
        problems.append("the rows have neither a column message nor a column body")
    if "destination" not in names and not options.destination():
        problems.append("queue: is missing (or topic, or a column destination)")
    if options["settle"]:
        missing = {"entity", "lockToken"} - names
        if missing:
            problems.append(f"settle: the rows have no column {' and no column '.join(missing)}")
    if problems:
        raise OptionError("servicebus: " + "; ".join(problems))
