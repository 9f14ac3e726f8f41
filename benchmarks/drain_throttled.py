"""A drain into a namespace of the Standard tier that also takes live traffic.

The parts of the syphon run in threads, without Spark; the primary throttles by credits. The figures
are for 30 % and 60 % of the credits used by live sends, as 300 and 600 of 1,000 would be.
"""

from __future__ import annotations

import tempfile
import threading
import time

from pairbus import broker
from pairbus.client import BulkConnection
from pairbus.runtime import ThreadRuntime
from pairbus.syphon._sync.backlog import BacklogQueues
from pairbus.syphon._sync.connections import ConnectionPool, NamespaceConnections
from pairbus.syphon._sync.coordinator import Coordinator
from pairbus.syphon._sync.deliverer import Deliverer
from pairbus.syphon._sync.destinations import Destinations
from pairbus.syphon._sync.reader import BacklogReader
from pairbus.syphon._sync.receiving import QueueReceiver
from pairbus.syphon.columns import select
from pairbus.syphon.held import HeldMessages
from pairbus.syphon.journal import Journal
from pairbus.syphon.planner import Planner
from pairbus.syphon.rates import ceiling_of
from pairbus.syphon.rows import RowMaker
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.target import Target
from tests.syphon.conftest import PREFIX, backlog_message, make_queues
from tests.syphon.fakes import FakeBell, FakeOperations
from tests.syphon.test_deliverer import COLUMNS, restored

CREDITS = 300  # a second, so that the machine itself is no limit
QUEUE = f"{PREFIX}/0"
SECONDS = 20


class Drain:
    """What Spark does: plan, read and deliver, one micro-batch after the other."""

    def __init__(self, primary, secondary, folder):
        self.runtime = ThreadRuntime()
        pool = ConnectionPool(self.runtime)

        def connections(namespace, role):
            return NamespaceConnections(pool, Target(namespace.connection_string), role)

        self.state = StateDirectory(folder)
        self.reading = connections(secondary, "reader")
        self.backlog = BacklogQueues(self.runtime, self.reading)
        self.destinations = Destinations(connections(primary, "writer"), 10)
        self.coordinator = Coordinator(
            self.runtime, self.state, self.backlog, FakeBell(), FakeOperations(),
            Planner([QUEUE], ready=[QUEUE], ceiling=ceiling_of(CREDITS, 1 / 3)), HeldMessages(),
        )  # fmt: skip

    def run(self, ended):
        epoch = 0
        while not ended.is_set():
            grants = self.coordinator.plan(epoch)
            if grants:
                epoch += 1
                self.move(epoch, grants)
            time.sleep(0.1)  # Spark takes a moment between two micro-batches

    def move(self, epoch, grants):
        reader = BacklogReader(
            self.runtime, QueueReceiver(self.reading, is_ordered=True), self.backlog,
            namespace="contoso-dr", state=self.state, journal=Journal(self.state.path),
        )  # fmt: skip
        deliverer = Deliverer(
            self.runtime, self.destinations, self.backlog, lambda _table: None, self.state.report
        )
        maker = RowMaker(select(COLUMNS, aliases=True), aliases=True)
        for batch in reader.read(epoch, grants, self.coordinator.pace(1)):
            deliverer.deliver(
                restored(
                    maker.batch_of(batch.queue, batch.received_at, batch.messages, batch.opened)
                )
            )
        deliverer.finish()


class LiveTraffic:
    """An application that sends single messages evenly, and counts the refused ones."""

    def __init__(self, namespace, per_second):
        self.namespace, self.per_second = namespace, per_second
        self.sent = self.refused = 0

    def run(self, ended):
        body = b"\x00\x53\x75\xa0\x04live"
        with BulkConnection(self.namespace.connection_string) as connection:
            sender = connection.sender("live")
            due = time.monotonic()
            while not ended.is_set():
                (outcome,) = sender.send_each([body])
                self.sent += 1
                self.refused += not outcome.is_accepted
                due += 1 / self.per_second
                time.sleep(max(0.0, due - time.monotonic()))


def run():
    for live in (90, 180):
        yield from measure(live)


def measure(live):
    with (
        tempfile.TemporaryDirectory() as folder,
        broker.run("contoso", tier="standard", credits_per_second=CREDITS) as primary,
        broker.run("contoso-dr", tier="premium") as secondary,
    ):
        make_queues(secondary, 1)
        primary.create_queue("orders")
        primary.create_queue("live")
        with BulkConnection(secondary.connection_string) as connection:
            sender = connection.sender(QUEUE)
            sender.send_batch([backlog_message("orders", n) for n in range(6000)])
        drain, traffic = Drain(primary, secondary, folder), LiveTraffic(primary, live)
        ended = threading.Event()
        threads = [threading.Thread(target=one.run, args=(ended,)) for one in (drain, traffic)]
        for thread in threads:
            thread.start()
        try:
            time.sleep(10)  # to find the rate
            before = (drain.coordinator.tick() or drain.state.progress(), traffic.sent)
            refused = traffic.refused
            time.sleep(SECONDS)
            drain.coordinator.tick()
            after = (drain.state.progress(), traffic.sent)
            refused = traffic.refused - refused
        finally:
            ended.set()
            for thread in threads:
                thread.join()
    rate = (after[0].forwarded - before[0].forwarded) / SECONDS
    allowed = min(CREDITS * 2 / 3, CREDITS - live)
    name = f"drain_throttled_live_{live}_of_{CREDITS}"
    messages = after[0].received / max(1, after[0].forwarded)
    yield f"{name}_share_of_allowed {rate / allowed:.2f} ratio"
    yield f"{name}_live_refused {refused / (after[1] - before[1]):.4f} ratio"
    yield f"{name}_receives_per_forwarded {messages:.2f} ratio"
