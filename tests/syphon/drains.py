"""The whole syphon without Spark: coordinator, doorbell, reader and deliverer on one thread."""

import sys
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace

from pairbus.runtime import ThreadRuntime
from pairbus.syphon._sync.answers import FenceAnswers
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.connections import ConnectionPool, NamespaceConnections, check_access
from pairbus.syphon._sync.coordinator import Coordinator
from pairbus.syphon._sync.deliverer import Deliverer
from pairbus.syphon._sync.destinations import Destinations
from pairbus.syphon._sync.doorbell import Doorbell
from pairbus.syphon._sync.primary_probe import PrimaryProbe
from pairbus.syphon._sync.reader import BacklogReader
from pairbus.syphon._sync.receiving import QueueReceiver
from pairbus.syphon.backoff import Backoff
from pairbus.syphon.columns import select
from pairbus.syphon.delivery_settings import DeliverySettings
from pairbus.syphon.held import HeldMessages
from pairbus.syphon.journal import Journal
from pairbus.syphon.planner import Planner
from pairbus.syphon.rows import RowMaker
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.target import Target
from tests.syphon.fakes import FakeOperations
from tests.syphon.test_deliverer import COLUMNS, restored


class RunningDrain:
    """Plans, reads and delivers until it is stopped; a context manager."""

    def __init__(
        self,
        primary,
        secondary,
        queues,
        folder,
        *,
        syphon="syphon-1",
        ceiling=None,
        pause=0.02,
        **holding,
    ):
        self.runtime = ThreadRuntime()
        self._pool = ConnectionPool(self.runtime)
        self._opened = []
        self._primary = Target(primary.connection_string)
        secondary = Target(secondary.connection_string)
        self.state = StateDirectory(folder, self.runtime)
        self._settling = self._connections(secondary, "settler")
        self._reading = self._connections(secondary, "reader")
        self._writing = self._connections(self._primary, "writer")
        self._doorbell = Doorbell(self.runtime, self._connections(secondary, "doorbell"), 5.0)
        self.held = HeldMessages(destination=Backoff(first=0.5), **holding)
        self.coordinator = Coordinator(
            self.runtime, self.state,
            BacklogQueues(self.runtime, self._connections(secondary, "coordinator")),
            self._doorbell, FakeOperations(), Planner(queues, ceiling=ceiling), self.held,
        )  # fmt: skip
        self._probe = PrimaryProbe(
            self.runtime, self.state,
            lambda: check_access(self.runtime, self._primary, "$cbs", 2.0) is None,
        )  # fmt: skip
        self._syphon = syphon
        self._pause = pause  # seconds between two micro-batches
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.failure = None

    def _connections(self, target, role):
        made = NamespaceConnections(self._pool, target, role, timeout=5.0)
        self._opened.append(made)
        return made

    def __enter__(self):
        self.coordinator.start()
        self._probe.start()
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._stop.set()
        self._thread.join(30)
        self._probe.close()
        self.coordinator.close()
        self._doorbell.close()
        for connections in self._opened:
            connections.drop()
        assert self.failure is None, self.failure

    def join(self):
        self._thread.join()

    def _run(self):
        epoch = 0
        while not self._stop.is_set():
            try:
                grants = self.coordinator.plan(epoch)
                if grants:
                    epoch += 1
                    self._move(epoch, grants)
                self._stop.wait(self._pause)
            except Exception:
                self.failure = traceback.format_exc()
                return

    def _move(self, epoch, grants):
        reader = BacklogReader(
            self.runtime, QueueReceiver(self._reading, is_ordered=True),
            BacklogQueues(self.runtime, self._reading), namespace="contoso-dr", state=self.state,
            journal=Journal(self.state.path, self.runtime), batch_size=100,
        )  # fmt: skip
        deliverer = Deliverer(
            self.runtime, Destinations(self._writing, 5),
            BacklogQueues(self.runtime, self._settling), lambda _table: None, self.state.report,
            DeliverySettings(blocked=self.state.blocked(), waits_for_missing=True),
            answering=FenceAnswers(self.runtime, self._settling, self._syphon),
        )  # fmt: skip
        maker = RowMaker(select(COLUMNS, aliases=True))
        for batch in reader.read(epoch, grants, self.coordinator.pace(1)):
            rows = maker.batch_of(batch.queue, batch.received_at, batch.messages, batch.opened)
            deliverer.deliver(restored(rows))
        deliverer.finish()


def main(primary, secondary, folder, *queues):
    """Run until the process is killed."""
    places = [SimpleNamespace(connection_string=text) for text in (primary, secondary)]
    with RunningDrain(*places, list(queues), Path(folder)) as running:
        running.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
