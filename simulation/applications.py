"""Applications that send through a paired client, one message or list after the other.

An application is a process: it may be killed in the middle of a send, and is then started again
with a new client. Some sends are cancelled, and some messages are scheduled. Every message is in
the history before it is sent.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from pairbus.aio import PairedClient, SendAvailabilityPairedNamespaceOptions, pair_namespace
from pairbus.events import Draining, Event, FailedOver, OrderNotKept, Restored
from pairbus.exceptions import ReservedPropertyError
from pairbus.options import Recovery
from simulation.destinations import SESSIONS, Destination
from simulation.history import Call, History
from simulation.http import admin_client
from simulation.ledger import LOCATION
from simulation.loop import SimulatedLoop
from simulation.process import Process, settle

BACKLOG_QUEUES = 3
SEND_TIMEOUT = 10.0
HEALED_WITHIN = 300.0  # seconds after the last fault until sends must go to the primary
TIME_TO_LIVE = 86_400_000  # milliseconds, of some messages
_PHASES = {FailedOver: "failed_over", Draining: "draining", Restored: "healthy"}


@dataclass(frozen=True)
class Times:
    """The timeouts of all applications, in seconds."""

    send_timeout: float = SEND_TIMEOUT
    open_timeout: float = 5.0


@dataclass(frozen=True)
class Habits:
    """How an application sends."""

    entity: Destination
    recovery: Recovery
    failover_interval: float
    ping_interval: float
    pause: float  # seconds between two sends, at most
    cancels: float  # how likely a send is cancelled
    dies: float  # how likely the process is killed during a send
    schedules: float  # how likely messages are scheduled
    mistakes: float  # how likely messages are refused because of a reserved property

    @classmethod
    def draw(cls, chance: random.Random, entity: Destination, recovery: Recovery) -> Habits:
        """As the seed decides."""
        return cls(
            entity,
            recovery,
            failover_interval=chance.choice([0.0, 0.0, 3.0, 10.0]),
            ping_interval=chance.choice([1.0, 5.0, 15.0]),
            pause=chance.choice([2.0, 4.0]),
            cancels=chance.choice([0.0, 0.0, 0.1]),
            dies=chance.choice([0.0, 0.0, 0.02]),
            schedules=chance.choice([0.0, 0.0, 0.1]),
            mistakes=chance.choice([0.0, 0.0, 0.05]),
        )


class Application:
    """One application.

    Args:
        loop: the run.
        name: of the application.
        habits: how it sends.
        texts: connection strings of primary and secondary.
        history: gets every send.
        observe: gets every event of the paired client.
        note: adds to the timeline.
        strike: counts a fault in effect.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        name: str,
        habits: Habits,
        texts: tuple[str, str],
        history: History,
        observe: Callable[[str, Event], None],
        note: Callable[[str], None],
        strike: Callable[[str], None],
    ) -> None:
        self.name = name
        self.habits = habits
        self.problems: list[str] = []
        self._loop = loop
        self._texts = texts
        self._history = history
        self._observe = observe
        self._note = note
        self._strike = strike
        self._random = random.Random(f"{name} {loop.seed}")
        self._next = 0
        self._has_faults = True
        self._lives = 0
        self._process: Process | None = None
        self.phase = "healthy"
        """The health of its entity, by its events: the whole status takes a while."""
        self.unordered: set[int] = set()
        """The lives in which the paired client reported that it cannot promise an order."""

    def heal(self) -> None:
        """No faults from now on."""
        self._has_faults = False
        if self._process is not None:
            self._process.spare()

    async def run(self, messages: int) -> None:
        """Send at least so many messages, and until `heal` was called; then see that it heals."""
        while True:
            self._lives += 1
            self._process = process = Process(self._loop, f"{self.name}.{self._lives}")
            ended: asyncio.Future[bool] = self._loop.create_future()
            process.on_death = partial(settle, ended, False)
            process.start(self._guard(process, messages, ended))
            if await ended:
                return
            self._note(f"{self.name} was killed")
            self.phase = "healthy"
            await asyncio.sleep(self._random.uniform(0.1, 3.0))

    async def _guard(self, process: Process, messages: int, ended: asyncio.Future[bool]) -> None:
        """Live; an application that cannot open its sender ends, and is started again."""
        try:
            await self._live(process, messages, ended)
        except ServiceBusError as error:
            self._note(f"{self.name} cannot start: {type(error).__name__}")
            process.kill()
        except Exception as error:  # noqa: BLE001 - whatever it is, an application never expects it
            self.problems.append(f"{self.name} failed: {type(error).__name__}: {error}")
            settle(ended, True)

    async def _live(self, process: Process, messages: int, ended: asyncio.Future[bool]) -> None:
        client = await self._pair()
        async with self.habits.entity.sender(client) as sender:
            while self._next < messages or self._has_faults:
                if self._has_faults and self._random.random() < self.habits.dies:
                    steps = self._random.randint(1, 60)
                    process.kill_after(steps, partial(self._strike, "lose_application"))
                await self._send(sender)
                await asyncio.sleep(self._random.uniform(0.0, self.habits.pause))
            await self._heal(client, sender)
        await client.close()
        settle(ended, True)

    async def _pair(self) -> PairedClient:
        primary, secondary = self._texts
        options = SendAvailabilityPairedNamespaceOptions(
            secondary=ServiceBusClient.from_connection_string(secondary),
            secondary_admin=admin_client(secondary),
            backlog_queue_count=BACKLOG_QUEUES,
            failover_interval=self.habits.failover_interval,
            ping_primary_interval=self.habits.ping_interval,
            primary_namespace="contoso",
            send_timeout=Times().send_timeout,
            open_timeout=Times().open_timeout,
            backlog_cooldown=10.0,
            recovery=self.habits.recovery,
            ledger=LOCATION,
            observers=[self._on_event],
        )
        return await pair_namespace(ServiceBusClient.from_connection_string(primary), options)

    def _on_event(self, event: Event) -> None:
        self.phase = _PHASES.get(type(event), self.phase)
        if isinstance(event, OrderNotKept):
            self.unordered.add(self._lives)
        self._observe(self.name, event)

    async def _send(self, sender: Any, count: int | None = None) -> bool:
        count = count or self._random.choice([1, 1, 1, self._random.randint(2, 5)])
        names = [f"{self.name}-{self._next + n}" for n in range(count)]
        self._next += count
        is_before = self.phase != "healthy"
        calls = [self._history.begin(name, self.name, self._loop.time()) for name in names]
        has_id = self._random.random() < 0.7  # otherwise the paired client gives one
        is_scheduled = self._has_faults and self._random.random() < self.habits.schedules
        is_wrong = self._random.random() < self.habits.mistakes
        due = self._loop.wall_time() + self._random.uniform(1.0, 40.0) if is_scheduled else None
        for call in calls:
            call.life, call.due = self._lives, due
            if self.habits.entity.has_sessions:  # the messages of a list have one session
                call.session = calls[0].session or self._random.choice(SESSIONS)
            else:
                call.session = self._random.choice((*SESSIONS, None))
            call.time_to_live = self._random.choice([None, TIME_TO_LIVE])
        messages = [
            ServiceBusMessage(
                call.message,
                message_id=call.message if has_id else None,
                session_id=call.session,
                time_to_live=_seconds(call.time_to_live),
                application_properties={"x-ms-path": "elsewhere"} if is_wrong else None,
            )
            for call in calls
        ]
        what = messages if count > 1 else messages[0]
        sending = (
            sender.send_messages(what)
            if due is None
            else sender.schedule_messages(what, datetime.fromtimestamp(due, UTC))
        )
        task = self._loop.create_task(sending, name=f"send {names[0]}")
        if self._has_faults and self._random.random() < self.habits.cancels:
            self._strike("cancel_send")
            self._loop.call_later(self._random.uniform(0.0, 1.0), task.cancel)
        outcome = "ok"
        try:
            await task
        except ReservedPropertyError:
            outcome = "failed"  # before anything was sent
        except ServiceBusError as error:
            outcome = "unknown"
            self._note(f"{names[0]} failed: {type(error).__name__}")
        except asyncio.CancelledError:
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise  # the run ends
            outcome = "unknown"
            self._note(f"{names[0]} was cancelled")
        if is_wrong and outcome == "ok":
            self.problems.append(f"{self.name}: {names[0]} was sent with a reserved property")
        self._end(calls, outcome, is_redirected=is_before and self.phase != "healthy")
        return outcome == "ok"

    def _end(self, calls: list[Call], outcome: str, *, is_redirected: bool) -> None:
        for call in calls:
            call.outcome, call.ended = outcome, self._loop.time()
            call.is_redirected = is_redirected

    async def _heal(self, client: PairedClient, sender: Any) -> None:
        """Wait until sends go to the primary again; that takes a ping, or a send."""
        entity, end = self.habits.entity.name, self._loop.time() + HEALED_WITHIN
        while self._loop.time() < end:
            before = _sent_to_primary(client, entity)
            if await self._send(sender, 1) and _sent_to_primary(client, entity) > before:
                return
            await asyncio.sleep(5.0)
        self.problems.append(f"{self.name}: sends to {entity} do not go to the primary again")


def _seconds(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


def _sent_to_primary(client: PairedClient, entity: str) -> int:
    statuses = client.status().entities
    return sum(status.counts.sent_primary for status in statuses if status.entity == entity)
