"""A simulated pair: applications send through an outage, and every message is accounted for.

Two brokers, two or more applications with paired clients of `pairbus.aio`, and faults that the seed
draws. At the end everything is healed, sends must go to the primary again, and each message that an
application was told to be sent must be in a queue of the primary or in a backlog queue.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from pairbus.aio import PairedClient, SendAvailabilityPairedNamespaceOptions, pair_namespace
from pairbus.broker.entities.model import QueueDescription
from pairbus.broker.settings import BrokerSettings, Tier
from pairbus.client import Received
from pairbus.client.aio import BulkConnection
from pairbus.events import Event, FailedOver
from pairbus.names import backlog_paths
from simulation.broker import SimulatedBroker
from simulation.faults import KINDS, Planned, Side, draw_plan
from simulation.history import History, Verdict, Window, judge
from simulation.http import admin_client
from simulation.loop import SimulatedLoop
from simulation.runtime import SimulatedRuntime

ENTITIES = ("orders", "invoices")
BACKLOG_QUEUES = 3
SEND_TIMEOUT = 10.0
FAULTS_UNTIL = 90.0  # seconds in which faults may begin
HEALED_WITHIN = 300.0  # seconds after the last fault until sends must go to the primary


@dataclass
class Report:
    """The result of one run."""

    seed: int
    digest: str
    seconds: float
    plan: list[Planned]
    verdict: Verdict
    messages: int
    failovers: int
    redirected: int
    strikes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each kind of fault struck in each phase."""
    timeline: list[str] = field(default_factory=list)
    unhealed: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """What must not be."""
        return [*self.verdict.problems, *self.unhealed]


class PairRun:
    """One run."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._random = random.Random(f"plan {loop.seed}")
        self._history = History()
        self._windows: list[Window] = []
        self._strikes: Counter[tuple[str, str]] = Counter()
        self._failovers = 0
        self._is_healed = False
        self._problems: list[str] = []
        self._timeline: list[str] = []
        self._clients: list[PairedClient] = []
        self._sides: dict[str, Side] = {}

    async def run(self) -> Report:
        """Do everything, and judge it."""
        for name in ("primary", "secondary"):
            self._sides[name] = await self._start(name)
        plan = draw_plan(self._random, self._random.randint(5, 9), FAULTS_UNTIL)
        count = self._random.randint(2, 3)
        applications = [self._loop.create_task(self._application(n)) for n in range(count)]
        await asyncio.gather(*(self._strike(planned) for planned in plan))
        self._is_healed = True
        self._note("everything is healed")
        await asyncio.gather(*applications)
        delivered = await self._collect("primary", ENTITIES)
        backlog = await self._collect("secondary", backlog_paths("contoso", BACKLOG_QUEUES))
        verdict = judge(
            self._history,
            [*delivered, *backlog],
            self._windows,
            deadline=2 * SEND_TIMEOUT + 5.0,
            aftermath=60.0,
        )
        for client in self._clients:
            await client.close()
        for side in self._sides.values():
            await side.broker.close()
        return Report(
            seed=self._loop.seed,
            digest=self._loop.trace.digest,
            seconds=self._loop.time(),
            plan=plan,
            verdict=verdict,
            messages=len(self._history.calls),
            failovers=self._failovers,
            redirected=len(backlog),
            strikes=self._strikes,
            timeline=self._timeline,
            unhealed=self._problems,
        )

    def _note(self, what: str) -> None:
        self._timeline.append(f"{self._loop.time():9.3f}  {what}")
        self._loop.network.note(what)

    async def _start(self, name: str) -> Side:
        broker = SimulatedBroker(BrokerSettings(namespace=name, tier=Tier.STANDARD))
        port = await broker.start(0)
        for entity in ENTITIES if name == "primary" else ():
            await broker.do(lambda ns, e=entity: ns.admin.create_queue(QueueDescription(e)))  # type: ignore[misc]
        return Side(name, broker, self._loop.network, "127.0.0.1", port)

    def _text(self, name: str) -> str:
        side = self._sides[name]
        return side.broker.settings.connection_string(side.port)

    # -- faults

    async def _strike(self, planned: Planned) -> None:
        await asyncio.sleep(planned.at)
        side = self._sides[planned.side]
        if planned.kind == "kill" and not side.broker.is_running:
            return  # one kill at a time
        phases = {entity.phase for client in self._clients for entity in client.status().entities}
        phase = "failed over" if "failed_over" in phases else "healthy"
        self._strikes[planned.kind, phase] += 1
        self._note(f"{planned.kind} strikes the {planned.side} for {planned.seconds:.1f} s")
        began = self._loop.time()
        await KINDS[planned.kind](side, planned.seconds, self._random)
        self._windows.append(Window(planned.kind, began, self._loop.time()))
        self._note(f"{planned.kind} of the {planned.side} is over")

    # -- applications

    async def _application(self, number: int) -> None:
        name = f"app{number}"
        client = await self._pair(name)
        entity = ENTITIES[number % len(ENTITIES)]
        sent = 0
        async with client.get_queue_sender(entity) as sender:
            while sent < 50 or not self._is_healed:
                await self._send(sender, name, f"{name}-{sent}")
                sent += 1
                await asyncio.sleep(self._random.uniform(0.0, 2.5))
            await self._heal(client, entity, sender, name)

    async def _pair(self, name: str) -> PairedClient:
        options = SendAvailabilityPairedNamespaceOptions(
            secondary=ServiceBusClient.from_connection_string(self._text("secondary")),
            secondary_admin=admin_client(self._text("secondary")),
            backlog_queue_count=BACKLOG_QUEUES,
            failover_interval=self._random.choice([0.0, 3.0, 10.0]),
            ping_primary_interval=self._random.choice([1.0, 5.0, 15.0]),
            primary_namespace="contoso",
            send_timeout=SEND_TIMEOUT,
            backlog_cooldown=10.0,
            observers=[lambda event: self._observe(name, event)],
        )
        primary = ServiceBusClient.from_connection_string(self._text("primary"))
        client = await pair_namespace(primary, options)
        self._clients.append(client)
        return client

    def _observe(self, name: str, event: Event) -> None:
        self._failovers += isinstance(event, FailedOver)
        if type(event).__name__ not in ("MessageBacklogged", "PingSent"):
            self._note(f"{name}: {type(event).__name__}")

    async def _send(self, sender: object, application: str, message: str) -> bool:
        call = self._history.begin(message, application, self._loop.time())
        try:
            await sender.send_messages(ServiceBusMessage(message, message_id=message))  # type: ignore[attr-defined]
            call.outcome = "ok"
        except ServiceBusError as error:
            self._note(f"{message} failed: {type(error).__name__}")
        call.ended = self._loop.time()
        return call.outcome == "ok"

    async def _heal(self, client: PairedClient, entity: str, sender: object, name: str) -> None:
        """Wait until sends go to the primary again; that takes a ping, or a send."""
        end = self._loop.time() + HEALED_WITHIN
        number = 0
        while self._loop.time() < end:
            before = _counts(client, entity)
            is_sent = await self._send(sender, name, f"{name}-heal-{number}")
            number += 1
            if is_sent and _counts(client, entity) > before:
                return
            await asyncio.sleep(5.0)
        self._problems.append(f"{name}: sends to {entity} do not go to the primary again")

    # -- what arrived

    async def _collect(self, name: str, entities: list[str] | tuple[str, ...]) -> list[str]:
        found: list[str] = []
        runtime = SimulatedRuntime(self._loop, f"collector {name}")
        async with BulkConnection(self._text(name), runtime=runtime) as connection:
            for entity in entities:
                receiver = await connection.receiver(entity)
                while received := await receiver.receive_now(500):
                    found += [_body(one) for one in received]
        return [body for body in found if body]  # pings have no body


def _counts(client: PairedClient, entity: str) -> int:
    """How many messages went to the primary."""
    return sum(
        status.counts.sent_primary for status in client.status().entities if status.entity == entity
    )


async def run_pair(loop: SimulatedLoop) -> Report:
    """One run, for `simulation.run`."""
    return await PairRun(loop).run()


def _body(received: Received) -> str:
    body = received.message.body
    parts = body if isinstance(body, list | tuple) else [body]
    return b"".join(bytes(part) for part in parts if part).decode()
