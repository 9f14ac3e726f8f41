"""The whole drain on asyncio: coordinator, doorbell, reader and deliverer, without Spark."""

import asyncio

import pyarrow as pa

from pairbus import broker
from pairbus.runtime import AsyncioRuntime
from pairbus.syphon._async.backlog import BacklogQueues
from pairbus.syphon._async.connections import ConnectionPool, NamespaceConnections
from pairbus.syphon._async.coordinator import Coordinator
from pairbus.syphon._async.deliverer import Deliverer
from pairbus.syphon._async.destinations import Destinations
from pairbus.syphon._async.doorbell import Doorbell
from pairbus.syphon._async.reader import BacklogReader
from pairbus.syphon._async.receiving import QueueReceiver
from pairbus.syphon.columns import select
from pairbus.syphon.held import HeldMessages
from pairbus.syphon.journal import Journal
from pairbus.syphon.planner import Planner
from pairbus.syphon.rows import RowMaker
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.target import Target
from tests.syphon.conftest import PREFIX, Pair, backlog_message, make_queues
from tests.syphon.fakes import FakeOperations
from tests.syphon.test_deliverer import COLUMNS, restored

QUEUES = [f"{PREFIX}/{number}" for number in (0, 1)]


class Drain:
    """What Spark does, in one event loop: plan, read, deliver, again and again."""

    def __init__(self, pair, folder):
        self.runtime = AsyncioRuntime()
        pool = ConnectionPool(self.runtime)

        self.opened = []

        def connections(namespace, role):
            made = NamespaceConnections(pool, Target(namespace.connection_string), role)
            self.opened.append(made)
            return made

        self.state = StateDirectory(folder, self.runtime)
        self.backlog = BacklogQueues(self.runtime, connections(pair.secondary, "coordinator"))
        self.reading = connections(pair.secondary, "reader")
        self.writing = connections(pair.primary, "writer")
        self.doorbell = Doorbell(self.runtime, connections(pair.secondary, "doorbell"), 5.0)
        self.coordinator = Coordinator(
            self.runtime, self.state, self.backlog, self.doorbell, FakeOperations(),
            Planner(QUEUES, per_queue=40), HeldMessages(), until_empty=True,
        )  # fmt: skip

    async def run(self):
        self.coordinator.start()
        epoch = 0
        async with asyncio.timeout(30):
            while not self.state.progress().is_empty:
                grants = await self.coordinator.plan(epoch)
                if grants:
                    epoch += 1
                    await self.move(epoch, grants)
                else:
                    await asyncio.sleep(0.02)
        await self.coordinator.close()
        await self.doorbell.close()
        for connections in self.opened:
            await connections.drop()

    async def move(self, epoch, grants):
        reader = BacklogReader(
            self.runtime, QueueReceiver(self.reading, is_ordered=True),
            BacklogQueues(self.runtime, self.reading), namespace="contoso-dr", state=self.state,
            journal=Journal(self.state.path, self.runtime), batch_size=20,
        )  # fmt: skip
        deliverer = Deliverer(
            self.runtime, Destinations(self.writing, 10), self.backlog, lambda _table: None,
            self.state.report,
        )  # fmt: skip
        maker = RowMaker(select(COLUMNS, aliases=True))
        pace = self.coordinator.pace(1)
        async for batch in reader.read(epoch, grants, pace):
            rows = maker.batch_of(batch.queue, batch.received_at, batch.messages, batch.opened)
            assert isinstance(rows, pa.RecordBatch)
            await deliverer.deliver(restored(rows))
        await deliverer.finish()


def test_a_backlog_drains_in_order_on_asyncio(tmp_path):
    with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
        make_queues(secondary, 2)
        primary.create_queue("orders")
        pair = Pair(primary, secondary, 2, tmp_path)
        for index in (0, 1):
            messages = [backlog_message("orders", n, more={"q": index}) for n in range(100)]
            pair.fill(messages, index)
        drain = Drain(pair, tmp_path / "state")
        asyncio.run(drain.run())
        got = [one.message.application_properties for one in pair.take("orders", 200)]
        for index in (0, 1):
            assert [p["n"] for p in got if p["q"] == index] == list(range(100))
        assert drain.state.progress().forwarded == 200
        pair.close()
