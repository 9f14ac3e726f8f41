"""`format("servicebus")`: the data source class, and its readers.

The class only parses options and builds readers; `pairbus.spark.tasks` reads.

A queue cannot rewind. The offset of a stream that receives is therefore a counter of micro-batches,
and `read()` means one more bounded receive; a stream that peeks has sequence numbers as offsets and
can be replayed.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pairbus.spark.options import ConnectorOptions, parse
from pairbus.spark.partitions import PeekPartition, ReceivePartition, columns_of
from pairbus.spark.schema import spark_schema
from pairbus.syphon.limits import Grant
from pairbus.syphon.target import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from pairbus.syphon._sync.coordinator import Coordinator

__all__ = ["ServiceBusSource"]

LONGEST_WAIT = 360.0  # seconds: the longest lock, and some time to check the queue after it
PLAN_AGAIN = 0.5  # seconds


class ServiceBusSource(DataSource):
    """Queues, topics and subscriptions of Azure Service Bus as a Spark data source."""

    @classmethod
    def name(cls) -> str:
        """The format's short name."""
        return "servicebus"

    def schema(self) -> StructType:
        """The selected columns."""
        return spark_schema(columns_of(parse(self.options, "read")))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A bounded read of the messages available now."""
        return BatchReader(parse(self.options, "read"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """A stream: replayable if it peeks, otherwise a sequence of bounded receives."""
        options = parse(self.options, "read")
        if options["mode"] == "peek":
            return PeekStream(options)
        if not options["stateLocation"]:  # tasks report there which queues are empty
            mode = options["mode"]
            raise OptionError(f"servicebus: stateLocation: is missing (a {mode} stream needs it)")
        return ReceiveStream(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Send the rows of a DataFrame."""
        from pairbus.spark.sink import BatchWriter

        return BatchWriter(parse(self.options, "write"), schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Send the rows of a stream."""
        from pairbus.spark.sink import StreamWriter

        return StreamWriter(parse(self.options, "write"), schema)


class TaskReader:
    """Reads the messages of a partition, in a task."""

    def __init__(self, options: ConnectorOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Arrow batches of messages."""
        from pairbus.spark.tasks import peek, receive

        if isinstance(partition, PeekPartition):
            return peek(self._options, partition)
        assert isinstance(partition, ReceivePartition)
        return receive(self._options, partition)


class BatchReader(TaskReader, DataSourceReader):
    """Reads the messages available now, once."""

    def partitions(self) -> Sequence[InputPartition]:
        """One for each entity."""
        options = self._options
        given = "maxMessagesPerTrigger" in options.given
        most = options["maxMessagesPerTrigger"] if given else None
        if options["mode"] == "peek":
            first = options["fromSequenceNumber"]
            return [PeekPartition(e, first, None, most) for e in options.entities()]
        size = options["maxBytesPerTrigger"] if "maxBytesPerTrigger" in options.given else 1 << 62
        return [
            ReceivePartition(-1, (Grant(e, most or 1 << 62, size),), must_read=True)
            for e in options.entities()
        ]


class PeekStream(TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Browses; offsets are the sequence numbers that come next."""

    def __init__(self, options: ConnectorOptions) -> None:
        super().__init__(options)
        self._target: dict[str, int] | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read the messages available now, and none that come later."""
        self._target = self._find_end(self.initialOffset(), 1 << 62)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Where to begin."""
        return dict.fromkeys(self._options.entities(), self._options["fromSequenceNumber"])

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        """The offsets of the messages available now, up to the limit."""
        end = self._find_end(start, self._options["maxMessagesPerTrigger"])
        if self._target is not None:
            return {e: max(start.get(e, 0), min(n, self._target[e])) for e, n in end.items()}
        return end

    def _find_end(self, start: dict[str, int], most: int) -> dict[str, int]:
        """Browse from `start`; return the offsets after at most `most` messages of each entity."""
        from pairbus.spark.executor import open_browser
        from pairbus.spark.tasks import browse

        browser = open_browser(self._options, "doorbell")
        end = dict(start)
        for entity in self._options.entities():
            end[entity] = start.get(entity, 0)
            for page in browse(browser, PeekPartition(entity, end[entity], None, most)):
                end[entity] = 1 + max(opened.sequence_number or 0 for _, opened in page)
        return end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One for each entity that has new messages."""
        return [
            PeekPartition(entity, start.get(entity, 0), last, None)
            for entity, last in end.items()
            if last > start.get(entity, 0)
        ]


class ReceiveStream(TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Receives; the offset counts micro-batches. The coordinator plans each."""

    def __init__(self, options: ConnectorOptions) -> None:
        super().__init__(options)
        self._coordinator: Coordinator | None = None
        self._is_bounded = False

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_coordinator": None, "_is_bounded": False}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read until each queue was found empty once, and do not poll."""
        self._is_bounded = True
        self._running().empty_once()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Nothing was received yet."""
        return {"epoch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        """One more micro-batch if there are messages to read now, else none.

        With the trigger `availableNow` Spark ends the query when there is none. So it waits for
        queues that cannot be read now because their messages may be locked by a lost reader.
        """
        epoch, coordinator = int(start["epoch"]), self._running()
        deadline = time.monotonic() + LONGEST_WAIT
        while not coordinator.plan(epoch):
            waiting = coordinator.uncertain_queues() if self._is_bounded else []
            if not waiting:
                return {"epoch": epoch}
            if time.monotonic() > deadline:
                raise RuntimeError(f"servicebus: {waiting[0]}: cannot be checked for lost locks")
            time.sleep(PLAN_AGAIN)
        return {"epoch": epoch + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The queues to read, shared among at most `maxPartitions` tasks."""
        epoch = int(end["epoch"])
        if epoch == int(start["epoch"]):
            return []  # Spark's first batch, which it runs even if there is nothing to read
        grants = self._running().grants(epoch)
        count = min(len(grants), self._options["maxPartitions"])
        pace = self._running().pace(count)
        return [
            ReceivePartition(epoch, grants[number::count], pace, must_read=self._is_bounded)
            for number in range(count)
        ]

    def stop(self) -> None:
        """The process ends (Spark calls this only when it was killed itself)."""
        if self._coordinator is not None:
            self._coordinator.close()

    def _running(self) -> "Coordinator":
        if self._coordinator is None:
            from pairbus.spark.driver import open_coordinator

            self._coordinator = open_coordinator(self._options)
            self._coordinator.start()
        return self._coordinator
