"""The sink of `format("servicebus")`: rows to queues and topics, in batches and in streams.

What a task does is in `deliver`; here are Spark's classes around it, and the rows of users who have
no encoded message but columns.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pairbus.spark.options import ConnectorOptions, OptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from pairbus.syphon.deliverer import Deliverer

__all__ = ["BatchWriter", "StreamWriter"]


@dataclass
class Done(WriterCommitMessage):
    """A task is done; what it did is in its reports and receipts."""


class BatchWriter(DataSourceArrowWriter):
    """Sends the rows of a DataFrame."""

    def __init__(self, options: ConnectorOptions, schema: StructType) -> None:
        _check(options, schema)
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Send one partition's rows."""
        return write(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of a stream."""

    def __init__(self, options: ConnectorOptions, schema: StructType) -> None:
        _check(options, schema)
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Send one partition's rows."""
        return write(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do: each task settled what it sent."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing can be undone: what a task sent is sent, and what it settled is settled."""


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


def write(options: ConnectorOptions, batches: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
    """Deliver the rows of one task."""
    deliverer = open_deliverer(options)
    for batch in batches:
        if "message" not in batch.schema.names:
            from pairbus.spark.encode import with_messages

            batch = with_messages(batch)
        deliverer.take(batch)
    deliverer.finish()
    return Done()


def open_deliverer(options: ConnectorOptions) -> "Deliverer":
    """A deliverer on this process's connections."""
    from pairbus.syphon.connections import settle_in
    from pairbus.syphon.control_files import StateDir
    from pairbus.syphon.deliverer import Deliverer
    from pairbus.syphon.wire import Sends, Settles, namespace_of

    settle_in()
    location = options["stateLocation"]
    state = StateDir(location) if location else None
    waiting: dict[str, Any] = state.read("waiting.json") if state else {}
    ledger, client = options["ledger"], options["clientId"]
    receipts: Callable[[pa.Table], None] | None = None
    probe: Callable[[], str | None] = lambda: None  # noqa: E731 - replaced where there is a ledger
    if ledger:
        from pairbus.ledger import receipts as ledger_receipts

        def receipts(table: "pa.Table") -> None:
            ledger_receipts.write_receipts(ledger, table, client_id=client)

        def probe() -> str | None:
            return ledger_receipts.probe(ledger)

    return Deliverer(
        sending=Sends(options.target, options["sendTimeout"]),
        settling=Settles(options.settle_target) if options.settle_target else None,
        receipts=receipts,
        report=state.report if state else lambda _report: None,
        destination=options.destination(),
        blocked={
            name: tuple(probe) if probe else None
            for name, probe in waiting.get("blocked", {}).items()
        },
        max_bytes=options["maxBatchBytes"],
        names=(
            options["namespaceName"] or namespace_of(options.target),
            options["settleNamespaceName"] or namespace_of(options.settle_target or options.target),
        ),
        probe=probe,
        stopping=(lambda: state.stopping) if state else bool,
    )
