"""Build the coordinator that runs beside Spark's driver: its connections, doorbell and ledger."""

from collections.abc import Callable

from pairbus.spark.executor import connections, runtime
from pairbus.spark.options import ConnectorOptions
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.coordinator import Coordinator
from pairbus.syphon._sync.doorbell import Doorbell
from pairbus.syphon.backoff import Backoff
from pairbus.syphon.held import HeldMessages
from pairbus.syphon.planner import Planner
from pairbus.syphon.rates import ceiling_of
from pairbus.syphon.records import OperationCount
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.status_records import LedgerState

__all__ = ["open_coordinator"]


class LedgerOperations:
    """Counts operations in a ledger."""

    def __init__(self, location: str, client_id: str) -> None:
        from pairbus.ledger.writer import LedgerWriter

        self._location = location
        self._writer: LedgerWriter = LedgerWriter(location, client_id=client_id)
        self.flush: Callable[[], bool] = self._writer.flush

    def add(self, *counts: OperationCount) -> None:
        """Count operations."""
        for one in counts:
            self._writer.count(
                one.namespace,
                one.entity,
                one.stage,
                one.operation,
                messages=one.messages,
                size=one.size,
                billable=one.billable,
                calls=one.calls,
            )

    def probe(self) -> str | None:
        """Return why no receipt could be written now; None if one could."""
        from pairbus.ledger import receipts

        return receipts.probe(self._location)

    def state(self) -> LedgerState:
        """Whether the counts reach the ledger."""
        return LedgerState(self._writer.dropped_rows, self._writer.problem)


class NoLedger:
    """Counts nothing."""

    def add(self, *counts: OperationCount) -> None:
        """There is no ledger."""

    def flush(self) -> None:
        """There is no ledger."""

    def probe(self) -> str | None:
        """There is no ledger that could be broken."""
        return None

    def state(self) -> LedgerState:
        """There is no ledger that could be broken."""
        return LedgerState()


def open_coordinator(options: ConnectorOptions) -> Coordinator:
    """Return a coordinator for the stream with these options."""
    ledger, queues = options["ledger"], options.entities()
    is_snapshot = options["enqueuedBefore"] is not None
    return Coordinator(
        runtime,
        StateDirectory(options["stateLocation"], runtime),
        BacklogQueues(runtime, connections(options.target, "coordinator")),
        Doorbell(runtime, connections(options.target, "doorbell"), options["longPoll"]),
        LedgerOperations(ledger, options["clientId"]) if ledger else NoLedger(),
        Planner(
            queues,
            per_queue=options["maxMessagesPerTrigger"],
            bytes_per_queue=options["maxBytesPerTrigger"],
            max_messages=options["maxMessages"],
            ready=queues if is_snapshot else (options["readyQueues"] or ()),
            ceiling=ceiling_of(options["creditsPerSecond"], options["liveTrafficShare"]),
            max_tasks=options["maxPartitions"],
        ),
        HeldMessages(
            destination=Backoff(first=options["retryAfter"]),
            missing_timeout=options["missingDestinationTimeout"],
        ),
        namespace=options["namespaceName"] or options.target.namespace,
        until_empty=options["untilEmpty"],
        defers=options["aliases"],  # deferred messages of other queues are not the syphon's
    )
