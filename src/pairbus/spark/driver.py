"""Build the coordinator that runs beside Spark's driver: its connections, doorbell and ledger."""

from pairbus.spark.executor import connections, runtime
from pairbus.spark.ledger import SyphonLedger
from pairbus.spark.options import ConnectorOptions
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.coordinator import Coordinator
from pairbus.syphon._sync.doorbell import Doorbell
from pairbus.syphon.backoff import Backoff
from pairbus.syphon.held import HeldMessages
from pairbus.syphon.planner import Planner
from pairbus.syphon.rates import ceiling_of
from pairbus.syphon.state import StateDirectory

__all__ = ["open_coordinator"]


def open_coordinator(options: ConnectorOptions) -> Coordinator:
    """Return a coordinator for the stream with these options."""
    queues = options.entities()
    is_snapshot = options["enqueuedBefore"] is not None
    return Coordinator(
        runtime,
        StateDirectory(options["stateLocation"], runtime),
        BacklogQueues(runtime, connections(options.target, "coordinator")),
        Doorbell(runtime, connections(options.target, "doorbell"), options["longPoll"]),
        SyphonLedger(options["ledger"], options["clientId"]),
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
