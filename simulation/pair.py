"""A simulated pair: applications send through an outage, and every message is accounted for.

Two brokers, two or more applications with paired clients of `pairbus.aio`, one or two syphons, and
faults that the seed draws. At the end everything is healed: sends must go to the primary again, the
backlog must become empty, and each message whose send succeeded must be in a queue of the
primary.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from pairbus.broker.settings import BrokerSettings, Limits, Tier
from pairbus.client import Received
from pairbus.client.aio import BulkConnection
from pairbus.events import Event, FailedOver, PingSent, Restored
from pairbus.names import backlog_paths, reply_queue_path
from pairbus.options import Recovery
from pairbus.syphon.target import Target
from simulation.applications import (
    BACKLOG_QUEUES,
    SEND_TIMEOUT,
    Application,
    Habits,
)
from simulation.broker import SimulatedBroker, body_of
from simulation.destinations import PRIMARY, SESSIONS, Destination
from simulation.faults import KINDS, Planned, Side, draw_plan
from simulation.files import SimulatedFiles
from simulation.history import NEVER, History, Window
from simulation.judgement import Evidence, Report
from simulation.ledger import Ledger
from simulation.loop import SimulatedLoop
from simulation.runtime import SimulatedRuntime
from simulation.shrink import Choice
from simulation.spark import MicroBatchDriver, SparkFaults
from simulation.syphon import SyphonParts

BACKLOG = tuple(backlog_paths("contoso", BACKLOG_QUEUES))
FAULTS_UNTIL = 60.0  # seconds in which faults may begin
FAULTS_END = 2000.0  # seconds after which all must be over
DRAINED_WITHIN = 900.0  # seconds after the last fault until the backlog must be empty
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a disk in memory is faster


class PairRun:
    """One run."""

    def __init__(self, loop: SimulatedLoop, folder: Path | None, choice: Choice) -> None:
        self._loop = loop
        self._choice = choice
        self._random = random.Random(f"plan {loop.seed}")
        self._folder = folder
        self._history = History()
        self._windows: list[Window] = []
        self._strikes: Counter[tuple[str, str]] = Counter()
        self._failovers: list[tuple[float, str]] = []
        self._restored: dict[str, float] = {}  # by application, while it is not failed over
        self._problems: list[str] = []
        self._timeline: list[str] = []
        self._ledger = Ledger(
            loop, SimulatedFiles(random.Random(f"ledger {loop.seed}"), loop.wall_time)
        )
        self._sides: dict[str, Side] = {}
        self._syphons: list[MicroBatchDriver] = []
        self._applications: list[Application] = []
        self._recovery: Recovery = self._random.choice(["direct", "direct", "drain_first"])

    async def run(self) -> Report:
        """Do everything, and judge it."""
        with self._ledger.in_use():
            return await self._run()

    async def _run(self) -> Report:
        for name in ("primary", "secondary"):
            self._sides[name] = await self._start(name)
        plan = draw_plan(self._random, self._random.randint(5, 9), FAULTS_UNTIL)
        if self._choice.faults is not None:
            plan = [plan[place] for place in self._choice.faults if place < len(plan)]
        self._make_applications(self._random.randint(2, 3))
        self._make_syphons(self._random.choice([1, 1, 1, 2]))
        sending = [self._loop.create_task(one.run(50)) for one in self._applications]
        draining = [self._loop.create_task(one.run()) for one in self._syphons]
        async with asyncio.timeout(FAULTS_END):
            await asyncio.gather(*(self._strike(planned) for planned in plan))
        self._note("everything is healed")
        for application in self._applications:
            application.heal()
        for syphon in self._syphons:
            syphon.heal()
        await asyncio.gather(*sending)
        await self._drain()
        for syphon in self._syphons:
            await syphon.stop()
        for task in draining:
            task.cancel()
        arrived = [*self._sides["primary"].rescued, *await self._collect()]
        report = self._judge(plan, arrived)
        for side in self._sides.values():
            await side.broker.close()
        return report

    def _note(self, what: str) -> None:
        self._timeline.append(f"{self._loop.time():9.3f}  {what}")
        self._loop.network.note(what)

    # -- what there is

    async def _start(self, name: str) -> Side:
        folder = self._folder and self._folder / name
        broker = SimulatedBroker(
            BrokerSettings(
                namespace=name,
                tier=Tier.STANDARD,
                memory=folder is None,
                data=folder,
                durability=self._random.choice(["normal", "full"]),
                limits=Limits(
                    credits_per_second=self._credits() if name == "primary" else None,
                    idle_link_timeout=self._random.choice([None, None, 8.0]),
                ),
            )
        )
        port = await broker.start(0)
        entities: tuple[Destination, ...] = PRIMARY
        if name == "primary":
            for entity in PRIMARY:
                await broker.do(lambda ns, entity=entity: entity.create(ns.admin))  # type: ignore[misc]
        else:
            paths = [*BACKLOG]
            if self._recovery == "drain_first":
                paths.append(reply_queue_path("contoso"))
            entities = tuple(map(Destination, paths))
        return Side(
            name,
            broker,
            self._loop.network,
            "127.0.0.1",
            port,
            entities,
            self._ledger,
            self._syphons,
        )

    def _text(self, name: str) -> str:
        side = self._sides[name]
        return side.broker.settings.connection_string(side.port)

    def _make_applications(self, count: int) -> None:
        texts = self._text("primary"), self._text("secondary")
        for number in range(count):
            habits = Habits.draw(self._random, self._random.choice(PRIMARY), self._recovery)
            if not self._choice.applications:
                habits = replace(habits, cancels=0.0, dies=0.0)
            self._applications.append(
                Application(
                    self._loop,
                    f"app{number}",
                    habits,
                    texts,
                    self._history,
                    self._observe,
                    self._note,
                    self._count,
                )
            )

    def _credits(self) -> int | None:
        """In some runs the primary allows only a few messages a second."""
        chance = random.Random(f"credits of the primary {self._loop.seed}")
        return chance.randint(10, 40) if chance.random() < 0.25 else None

    def _make_syphons(self, count: int) -> None:
        for number in range(count):
            name = f"syphon{number}"
            chance = random.Random(f"files {name} {self._loop.seed}")
            files = SimulatedFiles(chance, self._loop.wall_time)
            path = Path("/", name)
            files.make_folder(path)
            is_small = random.Random(f"max_bytes {self._loop.seed}").random() < 0.25
            parts = SyphonParts(
                Target(self._text("primary")),
                Target(self._text("secondary")),
                BACKLOG,
                path,
                self._ledger,
                per_queue=self._random.choice([5, 20, 5000]),
                batch_size=self._random.choice([3, 10, 1000]),
                max_bytes=500 if is_small else 1_000_000,  # 500: a few messages
                long_poll=self._random.choice([5.0, 60.0]),
                # The default is 2; most faults are over by then.
                most_locks=self._random.choice([0.1, 2.0]),
            )
            faults = SparkFaults.draw(self._random)
            if not self._choice.spark:
                faults = SparkFaults()
            self._syphons.append(
                MicroBatchDriver(self._loop, name, parts, files, faults, self._note, self._count)
            )

    # -- faults

    def _phase(self) -> str:
        if any(one.phase == "failed_over" for one in self._applications):
            return "failed over"
        if self._is_drained() and all(one.phase == "healthy" for one in self._applications):
            return "healthy"
        return "draining"

    def _is_drained(self) -> bool:
        broker = self._sides["secondary"].broker
        if not broker.is_running:
            return False
        catalog = broker.namespace.catalog
        found = [catalog.entity(path) for path in BACKLOG if path.lower() in catalog.by_key]
        return not any(len(entity.main.store.messages) for entity in found)

    def _count(self, kind: str) -> None:
        """A fault of an application or a syphon takes effect now."""
        now = self._loop.time()
        self._strikes[kind, self._phase()] += 1
        self._windows.append(Window(kind, now, now, "syphon"))
        self._note(kind)

    async def _strike(self, planned: Planned) -> None:
        await asyncio.sleep(planned.at)
        side = self._sides[planned.side]
        if planned.kind == "kill" and not side.broker.is_running:
            return  # one kill at a time
        phase = self._phase()
        self._note(f"{planned.kind} strikes the {planned.side} for {planned.seconds:.1f} s")
        began = self._loop.time()
        if await KINDS[planned.kind](side, planned.seconds, self._random):
            self._strikes[planned.kind, phase] += 1
        self._windows.append(Window(planned.kind, began, self._loop.time(), planned.side))
        self._note(f"{planned.kind} of the {planned.side} is over")

    def _observe(self, name: str, event: Event) -> None:
        now = self._loop.time()
        if isinstance(event, FailedOver):
            self._failovers.append((now, name))
            self._restored.pop(name, None)
        elif isinstance(event, Restored):
            self._restored[name] = now
        elif isinstance(event, PingSent) and now > self._restored.get(name, NEVER) + SEND_TIMEOUT:
            self._problems.append(f"{name} pings a healthy primary at {now:.1f}")
        if type(event).__name__ not in ("MessageBacklogged", "PingSent"):
            self._note(f"{name}: {type(event).__name__}")

    # -- the end

    async def _drain(self) -> None:
        end = self._loop.time() + DRAINED_WITHIN
        while not self._is_drained():
            if self._loop.time() > end or any(one.has_failed for one in self._syphons):
                self._problems.append("the backlog does not become empty")
                return
            await asyncio.sleep(1.0)
        self._note("the backlog is empty")

    async def _collect(self) -> list[str]:
        """Receive the messages that arrived, as an application does."""
        last = max((call.due or 0.0 for call in self._history.calls.values()), default=0.0)
        await asyncio.sleep(max(0.0, last - self._loop.wall_time()) + 1.0)  # all are due then
        self._sides["primary"].broker.throttle.is_on = False
        found: list[str] = []
        runtime = SimulatedRuntime(self._loop, "collector")
        async with BulkConnection(self._text("primary"), runtime=runtime) as connection:
            for entity in PRIMARY:
                for session in SESSIONS if entity.has_sessions else (None,):
                    receiver = await connection.receiver(entity.receiving_path, session_id=session)
                    while received := await receiver.receive_now(500):
                        for one in received:
                            self._compare(name := body_of(one.payload), one)
                            found.append(name)
        return [body for body in found if body]  # pings have no body

    def _compare(self, name: str, received: Received) -> None:
        """See whether a message has arrived as it was sent."""
        call, message = self._history.calls.get(name), received.message
        if call is None:
            return
        session = message.properties.group_id if message.properties else None
        time_to_live = message.header.ttl if message.header else None
        if call.session != session:
            self._problems.append(f"changed: {name} lost its session")
        if call.time_to_live != time_to_live:
            self._problems.append(f"changed: {name} has another time to live: {time_to_live}")

    def _judge(self, plan: list[Planned], arrived: list[str]) -> Report:
        primary, secondary = (self._sides[name].broker for name in ("primary", "secondary"))
        backlog = secondary.taken
        evidence = Evidence(
            self._history,
            self._windows,
            arrived,
            primary.taken,
            backlog,
            self._failovers,
            self._applications,
            len(self._syphons),
            self._ledger,
            {**secondary.ids, **primary.ids},
            {
                "ping": primary.billed("ping") + secondary.billed("ping"),
                "receive_backlog": secondary.billed("receive", "deferred"),
                "settle": secondary.billed("settle"),
            },
        )
        return Report(
            seed=self._loop.seed,
            digest=self._loop.trace.digest,
            seconds=self._loop.time(),
            plan=plan,
            verdict=evidence.verdict(),
            messages=len(self._history.calls),
            applications=len(self._applications),
            failovers=len(self._failovers),
            redirected=len({name for *_, name in backlog if name}),
            forwarded=sum(row["event"] == "forwarded" for row in self._ledger.read("messages")[0]),
            strikes=self._strikes,
            timeline=self._timeline,
            others=[*self._problems, *evidence.problems()],
        )


async def run_pair(loop: SimulatedLoop, choice: Choice | None = None) -> Report:
    """One run, for `simulation.run`; a choice leaves out some of its faults."""
    choice = choice or Choice()
    if random.Random(f"store {loop.seed}").random() < 0.4:
        return await PairRun(loop, None, choice).run()
    folder = Path(tempfile.mkdtemp(prefix="pairbus-simulation-", dir=MEMORY))
    try:
        return await PairRun(loop, folder, choice).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
