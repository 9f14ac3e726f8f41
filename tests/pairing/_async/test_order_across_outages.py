"""`recovery="drain_first"` under seeded outages: nothing overtakes, and nothing is lost.

Two paired clients, as of two processes, send without a pause: single messages one after the other,
bursts that are coalesced, lists, and messages with sessions. Their primary fails again and again,
also while the backlog is being drained. The syphon is the real one without Spark.
"""

import itertools
import random
import subprocess
import sys
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus import events
from pairbus.pairing.runtime import AEvent, asleep, aspawn
from pairbus.testing import FaultProxy
from tests.pairing._async.conftest import BACKLOG
from tests.syphon.drains import RunningDrain

pytestmark = [
    pytest.mark.sdk,
    pytest.mark.slow,
    # The SDK does not close the stream of a connection that breaks while it is being opened.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

QUEUES = [f"{BACKLOG}/0", f"{BACKLOG}/1"]
SEEDS = range(1, 4)
OUTAGES = 25
LOCK = timedelta(seconds=5)  # so that what a killed syphon held comes back soon


class Application:
    """One sender object that sends numbered steps, each when the one before is taken."""

    def __init__(self, sender, name, chance, pause):
        self.sender, self.name = sender, name
        self.steps = 0
        self.refused = 0
        self.stop, self.ended = AEvent(), AEvent()
        self.failure = None
        self._chance, self._pause = chance, pause

    async def run(self):
        try:
            while not self.stop.is_set():
                try:
                    await self._step()
                except ServiceBusError:
                    self.refused += 1  # throttled, or in doubt: the same step again
                    await asleep(0.05)
                else:
                    self.steps += 1
                    await asleep(self._chance.uniform(0, self._pause))
        except Exception as error:  # the test looks at it
            self.failure = error
        self.ended.set()

    async def _step(self):
        await self.sender.send_messages(self._message(0))

    def orders(self, arrived):
        """Split what arrived into lists that must be sorted."""
        return [arrived]

    def _message(self, part, session=None):
        body = f"{self.name} {self.steps} {part}"
        return ServiceBusMessage(body, session_id=session)


class ListApplication(Application):
    """Sends a list in each step."""

    async def _step(self):
        await self.sender.send_messages([self._message(part) for part in range(5)])


class BurstApplication(Application):
    """Sends five messages at the same time in each step: they are coalesced."""

    async def _step(self):
        ended = [AEvent() for _ in range(5)]
        failures = []
        for part, end in enumerate(ended):
            aspawn(self._one, part, end, failures)
        for end in ended:
            assert await end.wait(60)
        if failures:
            raise failures[0]

    def orders(self, arrived):
        return [[step for step, _ in arrived]]

    async def _one(self, part, end, failures):
        try:
            await self.sender.send_messages(self._message(part))
        except Exception as error:  # the step fails
            failures.append(error)
        end.set()


class SessionApplication(Application):
    """Sends with one of three session ids."""

    async def _step(self):
        await self.sender.send_messages(self._message(0, session=f"s{self.steps % 3}"))

    def orders(self, arrived):
        return [[one for one in arrived if one[0] % 3 == session] for session in range(3)]


class Syphon:
    """The syphon in a process of its own, so that it can be killed."""

    def __init__(self, primary, secondary, folder):
        self._strings = primary.connection_string, secondary.connection_string
        self._folder = folder
        self._process = None

    def __enter__(self):
        self.start()
        return self

    def start(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.syphon.drains", *self._strings, self._folder, *QUEUES]
        )

    def kill(self):
        self._process.kill()
        self._process.wait(30)

    def __exit__(self, *exc):
        assert self._process.poll() is None, "the syphon has ended by itself"
        self.kill()


async def test_nothing_overtakes_when_the_primary_fails_again_while_it_is_drained(world, tmp_path):
    with FaultProxy(world.primary.connection_string) as proxy:
        clients, applications = await started(world, proxy, 7, clients=1, pause=0.1)
        with RunningDrain(proxy, world.secondary, QUEUES, tmp_path):
            for mode in ("cut", "refuse"):
                proxy.mode = mode
                await until(clients, lambda phase: phase == "failed_over")
                proxy.mode = "pass"
                await until(clients, lambda phase: phase != "failed_over")
            await finished(clients, applications)

    assert inversions(world, applications) == []


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_order_of_sends_is_the_order_of_arrival_across_many_outages(
    world, tmp_path, seed
):
    # Given applications that never pause, a syphon, and a primary behind a proxy
    chance = random.Random(seed)
    with FaultProxy(world.primary.connection_string) as proxy:
        clients, applications = await started(world, proxy, seed)
        with Syphon(proxy, world.secondary, tmp_path) as syphon:
            # When the primary fails in many ways, now and then while it is being drained
            for outage in range(OUTAGES):
                await asleep(chance.uniform(0, 0.3))
                await fail(world, proxy, syphon, chance)
                if outage % 3:
                    await until(clients, lambda phase: phase != "failed_over")
                else:
                    await until(clients, lambda phase: phase == "healthy")
            await finished(clients, applications)

    # Then each sender's messages arrived in the order of its sends
    assert inversions(world, applications) == []
    assert all(application.steps > OUTAGES for application in applications)
    assert world.seen.of(events.Draining)


async def fail(world, proxy, syphon, chance):
    """One outage, of a random kind."""
    kind = chance.choice(
        ["refuse", "reset", "cut", "stall", "deaf", "flap", "throttle", "hang", "kill"]
    )
    if kind == "throttle":
        # Server-busy is no outage for a sender, but the syphon must not reorder what was refused.
        world.primary.faults.throttle(nth=chance.randint(1, 4), times=chance.randint(1, 30))
        proxy.mode = "reset"
        await asleep(chance.uniform(0.1, 0.5))
    elif kind == "hang":
        world.primary.faults.hang(take=chance.random() < 0.5, times=chance.randint(1, 3))
        proxy.mode = "reset"
        await asleep(chance.uniform(0.1, 0.5))
    elif kind == "flap":
        for _ in range(chance.randint(3, 8)):
            proxy.mode = chance.choice(["refuse", "reset", "cut"])
            await asleep(chance.uniform(0.02, 0.3))
            proxy.mode = "pass"
            await asleep(chance.uniform(0.02, 0.3))
    elif kind == "kill":
        proxy.mode = "refuse"
        await asleep(chance.uniform(0.2, 1.0))
        proxy.mode = "pass"
        await asleep(chance.uniform(0, 1.0))
        syphon.kill()
        syphon.start()
    else:
        proxy.mode = kind
        await asleep(chance.uniform(0.1, 1.5))
    proxy.mode = "pass"


async def started(world, proxy, seed, *, clients=2, pause=0.05):
    """Clients, and their applications, which are running."""
    world.primary.create_queue("invoices")
    world.primary.create_queue("shipments", requires_session=True)
    for path in QUEUES:
        world.secondary.create_queue(path, lock_duration=LOCK)
    made, applications = [], []
    for number in range(clients):
        primary = world.primary_client(proxy.connection_string)
        client = await world.pair(primary, recovery="drain_first", send_timeout=4)
        made.append(client)
        for kind, entity in (
            (Application, "orders"),
            (BurstApplication, "orders"),
            (ListApplication, "invoices"),
            (SessionApplication, "shipments"),
        ):
            sender = world.keep(client.get_queue_sender(entity))
            name = f"{entity}-{number}-{kind.__name__}"
            applications.append(kind(sender, name, random.Random(f"{seed} {name}"), pause))
    for application in applications:
        aspawn(application.run)
    return made, applications


async def finished(clients, applications):
    """Wait until everything is delivered, and stop the applications."""
    await until(clients, lambda phase: phase == "healthy")
    for application in applications:
        application.stop.set()
    for application in applications:
        assert await application.ended.wait(120)
        assert application.failure is None
    await until(clients, lambda phase: phase == "healthy")


async def until(clients, holds, seconds=240):
    """Wait until the phases of all entities are as wanted."""
    for _ in range(int(seconds / 0.02)):
        if all(holds(entity.phase) for client in clients for entity in client.status().entities):
            return
        await asleep(0.02)
    raise AssertionError("\n".join(str(client.status()) for client in clients))


def inversions(world, applications):
    """Messages that arrived behind one of a later send, and steps that are missing.

    A message may arrive twice; its first arrival counts. The order of an entity is not promised if
    one of its senders changed its backlog queue, as it may on a busy machine.
    """
    lost = {event.entity for event in world.seen.of(events.OrderNotKept)}
    found = []
    arrived = {
        entity: [body.decode().split() for body in world.bodies(world.primary, entity)]
        for entity in ("orders", "invoices", "shipments")
    }
    for application in applications:
        entity = application.name.partition("-")[0]
        mine = [
            (int(step), int(part)) for who, step, part in arrived[entity] if who == application.name
        ]
        missing = set(range(application.steps)) - {step for step, _ in mine}
        found += [(application.name, "missing", step) for step in sorted(missing)[:10]]
        if entity in lost:
            continue
        for order in application.orders(list(dict.fromkeys(mine))):
            late = [pair for pair in itertools.pairwise(order) if pair[0] > pair[1]]
            found += [(application.name, "inverted", pair) for pair in late[:10]]
    return found
