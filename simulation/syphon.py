"""The parts of the syphon, put together on simulated processes as `pairbus.spark` does on Spark's.

The coordinator, the reader, the deliverer, the probe and the ledger are the syphon's own. One small
function stands in for what needs Spark: `restored` does with Arrow what `pairbus.spark.restore`
does with a DataFrame.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute  # its C code must see the real datetime

from pairbus.syphon._async.answers import FenceAnswers
from pairbus.syphon._async.backlog import BacklogQueues
from pairbus.syphon._async.connections import NamespaceConnections, check_access
from pairbus.syphon._async.coordinator import Coordinator
from pairbus.syphon._async.deliverer import Deliverer
from pairbus.syphon._async.destinations import Destinations
from pairbus.syphon._async.doorbell import Doorbell
from pairbus.syphon._async.primary_probe import PrimaryProbe
from pairbus.syphon._async.reader import BacklogReader
from pairbus.syphon._async.receiving import QueueReceiver
from pairbus.syphon.backoff import Backoff
from pairbus.syphon.columns import select
from pairbus.syphon.delivery_settings import DeliverySettings
from pairbus.syphon.held import HeldMessages
from pairbus.syphon.journal import Journal
from pairbus.syphon.limits import Grant
from pairbus.syphon.planner import Planner
from pairbus.syphon.rates import Pace
from pairbus.syphon.rows import RowMaker
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.target import Target
from simulation.ledger import Ledger
from simulation.process import Process

_COLUMNS = (
    "entity", "sequenceNumber", "enqueuedTime", "lockToken", "lockedUntil", "receivedTime", "size",
    "messageId", "message",
)  # fmt: skip
_RESTORED = {
    "aliasPath": "destination",
    "aliasSessionId": "sessionId",
    "aliasTimeToLive": "timeToLive",
    "aliasScheduledEnqueueTime": "scheduledEnqueueTime",
}


@dataclass(frozen=True)
class SyphonParts:
    """What one syphon is made of; each method opens one part of it in a process.

    Args:
        primary: where messages go.
        secondary: where the backlog queues are.
        queues: the backlog queues.
        path: the state directory.
        ledger: where receipts and operations are recorded.
        per_queue: most messages of one queue in a micro-batch.
        batch_size: most messages of one Arrow batch.
        max_bytes: most bytes of one batch that is sent to a destination.
        long_poll: seconds that the doorbell waits.
        most_locks: for how many locks messages stay locked before they are deferred.
        send_timeout: seconds that a destination may take.
    """

    primary: Target
    secondary: Target
    queues: tuple[str, ...]
    path: Path
    ledger: Ledger
    per_queue: int
    batch_size: int
    max_bytes: int
    long_poll: float
    most_locks: float
    send_timeout: float = 10.0

    def state(self, process: Process) -> StateDirectory:
        """The state directory, as a process sees it."""
        return StateDirectory(self.path, process.runtime)

    def _connections(
        self, process: Process, target: Target, role: str, timeout: float = 30.0
    ) -> NamespaceConnections:
        return NamespaceConnections(process.pool, target, role, timeout=timeout)

    def open_coordinator(self, process: Process) -> Coordinator:
        """The coordinator, beside Spark's driver."""
        runtime = process.runtime
        return Coordinator(
            runtime,
            self.state(process),
            BacklogQueues(runtime, self._connections(process, self.secondary, "coordinator")),
            Doorbell(
                runtime, self._connections(process, self.secondary, "doorbell"), self.long_poll
            ),
            self.ledger.operations(self.path.name),
            Planner(self.queues, per_queue=self.per_queue),
            HeldMessages(destination=Backoff(first=2.0), most_locks=self.most_locks),
        )

    def open_probe(self, process: Process) -> PrimaryProbe:
        """The probe of an unreachable primary."""
        runtime = process.runtime

        async def is_reachable() -> bool:
            return await check_access(runtime, self.primary, "$management", 2.0) is None

        return PrimaryProbe(runtime, self.state(process), is_reachable)

    async def read(
        self, process: Process, epoch: int, grants: tuple[Grant, ...], pace: Pace | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """What one task reads, ready to be delivered."""
        link = self._connections(process, self.secondary, "reader")
        reader = BacklogReader(
            process.runtime,
            QueueReceiver(link, is_ordered=True),
            BacklogQueues(process.runtime, link),
            namespace="secondary",
            state=self.state(process),
            journal=Journal(self.path, process.runtime),
            batch_size=self.batch_size,
        )
        maker = RowMaker(select(_COLUMNS, aliases=True))
        async for batch in reader.read(epoch, grants, pace):
            yield restored(
                maker.batch_of(batch.queue, batch.received_at, batch.messages, batch.opened)
            )

    def open_deliverer(self, process: Process) -> Deliverer:
        """The deliverer of one task."""
        state, receipts = self.state(process), self.ledger.receipts(process.name)
        writer = self._connections(process, self.primary, "writer", self.send_timeout)
        settler = self._connections(process, self.secondary, "settler")
        return Deliverer(
            process.runtime,
            Destinations(writer, self.send_timeout),
            BacklogQueues(process.runtime, settler),
            receipts.write,
            state.report,
            DeliverySettings(
                blocked=state.blocked(), max_bytes=self.max_bytes, waits_for_missing=True
            ),
            probe=receipts.probe,
            is_stopping=lambda: state.is_stopping,
            answering=FenceAnswers(process.runtime, settler, self.path.name),
        )


def restored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with their destinations, and a verdict for each."""
    columns = {
        _RESTORED.get(name, name): batch.column(name)
        for name in batch.schema.names
        if name != "aliasProblem"
    }
    wrong = batch.column("aliasProblem").to_pylist()
    paths = batch.column("aliasPath").to_pylist()
    good = [problem is None and bool(path) for problem, path in zip(wrong, paths, strict=True)]
    columns["verdict"] = pa.array(["deliver" if one else "dead-letter" for one in good])
    columns["reason"] = pa.array([None if one else "WrongAlias" for one in good], pa.string())
    return pa.RecordBatch.from_pydict(columns)
