"""`recovery="drain_first"`: sends follow the backlog home, so that none overtakes."""

import random

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus import events
from pairbus.pairing.runtime import AEvent, asleep, aspawn
from pairbus.testing import FaultProxy
from tests.pairing._async.conftest import BACKLOG
from tests.syphon.drains import RunningDrain

pytestmark = [pytest.mark.sdk, pytest.mark.slow]

QUEUES = [f"{BACKLOG}/0", f"{BACKLOG}/1"]


class Sends:
    """One sender that sends numbered messages all the time, until it is told to stop."""

    def __init__(self, world, sender, name):
        self.world, self.sender, self.name = world, sender, name
        self.sent = 0
        self.stop = AEvent()
        self.ended = AEvent()

    async def run(self):
        while not self.stop.is_set():
            body = f"{self.name} {self.sent}"
            await self.sender.send_messages(ServiceBusMessage(body, message_id=body))
            self.sent += 1
            await asleep(0.002)
        self.ended.set()


@pytest.mark.parametrize("outages", [3, pytest.param(25, marks=pytest.mark.long)])
@pytest.mark.timeout(600)
async def test_the_order_of_sends_is_the_order_of_arrival(world, tmp_path, outages):
    # Given senders that never pause, a syphon, and a primary that fails at random
    chance = random.Random(20260811)
    world.primary.create_queue("invoices")
    with FaultProxy(world.primary.connection_string) as proxy:
        primary = world.primary_client(proxy.connection_string)
        client = await world.pair(primary, recovery="drain_first")
        running = []
        for name in ("orders", "orders", "invoices"):
            sender = world.keep(client.get_queue_sender(name))
            running.append(Sends(world, sender, f"{name}-{len(running)}"))
        with RunningDrain(proxy, world.secondary, QUEUES, tmp_path):
            for sends in running:
                aspawn(sends.run)
            # When it fails again and again, now and then while the backlog is being drained
            for outage in range(outages):
                await asleep(chance.uniform(0.05, 0.3))
                proxy.mode = chance.choice(["refuse", "reset", "cut"])
                await until(client, lambda phase: phase != "healthy")
                await asleep(chance.uniform(0.05, 0.5))
                proxy.mode = "pass"
                if outage % 3 == 0:
                    await until(client, lambda phase: phase != "failed_over")
                else:
                    await until(client, lambda phase: phase == "healthy")
            await until(client, lambda phase: phase == "healthy")
            for sends in running:
                sends.stop.set()
                assert await sends.ended.wait(30)
        await client.close()

    # Then each sender's messages arrived in the order of its sends, each at least once
    for sends in running:
        entity = sends.name.partition("-")[0]
        bodies = [body.decode().split() for body in world.bodies(world.primary, entity)]
        numbers = [int(number) for name, number in bodies if name == sends.name]
        assert list(dict.fromkeys(numbers)) == list(range(sends.sent))
    assert world.seen.of(events.Draining)
    assert world.seen.of(events.OrderNotKept) == []


async def until(client, holds):
    """Wait until the phases of all entities are as wanted."""
    for _ in range(3000):
        if all(holds(entity.phase) for entity in client.status().entities):
            return
        await asleep(0.02)
    raise AssertionError(str(client.status()))
