"""A micro-batch driver that does to the syphon what Spark may do to a query.

It keeps Spark's two logs: an epoch is planned before it runs and committed after it. A task reads
in one worker and writes in another, with a few Arrow batches between them, and workers are reused.
While faults are allowed, the seed decides for each attempt and each driver whether it dies, and
after how many steps: between any two. A lost attempt is retried; a driver that believes it lost may
leave it running beside the retry. A planned epoch that was not committed is replayed by the next
driver, while workers of the last one may still be at work.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pairbus.syphon._async.coordinator import Coordinator
from pairbus.syphon.lease import Lease
from pairbus.syphon.limits import Grant
from pairbus.syphon.rates import Pace
from simulation.files import SimulatedFiles
from simulation.loop import SimulatedLoop
from simulation.process import Process, settle
from simulation.syphon import SyphonParts

TRIGGER = 0.5  # seconds between two micro-batches
ATTEMPTS = 4  # of a task, before the query fails
RESTARTS = 5  # of a query that fails without progress, as in pairbus.spark.handle
PARTITIONS = 2


class QueryFailedError(Exception):
    """A task failed too often."""


@dataclass(frozen=True)
class SparkFaults:
    """How likely each fault of Spark is, for each attempt or micro-batch."""

    lose_worker: float = 0.0
    run_twice: float = 0.0
    lose_driver: float = 0.0

    @classmethod
    def draw(cls, chance: random.Random) -> SparkFaults:
        """Some of them, rare or frequent."""
        likely = [0.0, 0.0, 0.1, 0.4]
        return cls(*(chance.choice(likely) for _ in range(3)))


class MicroBatchDriver:
    """Runs one syphon, and restarts it.

    Args:
        loop: the run.
        name: of the syphon.
        parts: what it is made of.
        files: the shared file system of driver and workers.
        faults: what Spark does to it.
        note: adds to the timeline.
        strike: counts a fault in effect.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        name: str,
        parts: SyphonParts,
        files: SimulatedFiles,
        faults: SparkFaults,
        note: Callable[[str], None],
        strike: Callable[[str], None],
    ) -> None:
        self.name = name
        self.has_faults = True
        self.has_failed = False
        self._loop = loop
        self._parts = parts
        self._files = files
        self._faults = faults
        self._random = random.Random(f"spark {name} {loop.seed}")
        self._note = note
        self._strike = strike
        self._planned = self._committed = 0  # Spark's checkpoint
        self._processes: list[Process] = []  # all, by their process id
        self._driver: Process | None = None
        self._idle: dict[str, list[Process]] = {"reader": [], "writer": []}
        self._busy: dict[Process, None] = {}
        self._is_stopped = False
        self._is_paused = False
        self.counts: Counter[str] = Counter()

    # -- life

    async def run(self) -> None:
        """Run until `stop`; a driver that ended is replaced."""
        failures, progress = 0, -1
        while not self._is_stopped:
            reason = await self._run_driver()
            self._note(f"{self.name}: the driver {reason}")
            if reason.startswith("failed"):
                forwarded = self._parts.state(self._new("observer")).progress().forwarded
                failures = failures + 1 if forwarded == progress else 1
                progress = forwarded
                if failures > RESTARTS:
                    self.has_failed = True
                    return
            self._lose_workers()
            if not self._is_stopped:
                await asyncio.sleep(self._random.uniform(0.5, 5.0))

    def heal(self) -> None:
        """No faults from now on."""
        self.has_faults = False
        for process in self._processes:
            process.spare()

    async def stop(self) -> None:
        """End it permanently."""
        self._is_stopped = True
        for process in self._processes:
            process.kill()

    async def restart(self) -> bool:
        """Ask it to finish, as `SyphonHandle.stop` does, and start it again; whether it ran."""
        driver = self._driver
        if driver is None or not driver.is_alive:
            return False
        state = self._parts.state(self._new("operator"))
        state.ask_to_stop()
        for _ in range(300):
            await asyncio.sleep(0.1)
            if driver is not self._driver:
                return True
            if state.progress().is_released and not self._busy and not state.has_reports():
                break
        driver.kill()
        return True

    async def freeze(self, seconds: float) -> bool:
        """Let a worker or the driver stand still for so long; False if none worked soon."""
        for _ in range(200):
            found = [one for one in (*self._busy, self._driver) if one is not None and one.is_alive]
            if len(found) > 1:  # a task is running
                process = self._random.choice(found)
                self._note(f"{process.name} stands still")
                self._loop.freeze(process)
                await asyncio.sleep(seconds)
                self._loop.thaw(process)
                self._note(f"{process.name} continues")
                return True
            await asyncio.sleep(0.05)
        return False

    def pause(self, is_paused: bool) -> None:
        """Pause or resume it, as an operator does."""
        self._parts.state(self._new("operator")).change_controls(paused=is_paused)

    def _new(self, name: str) -> Process:
        process = Process(self._loop, f"{self.name} {name} {len(self._processes)}", self._files)
        self._processes.append(process)
        return process

    def _is_hit(self, likelihood: float) -> bool:
        return self.has_faults and self._random.random() < likelihood

    # -- the driver

    async def _run_driver(self) -> str:
        self._driver = driver = self._new("driver")
        ended: asyncio.Future[str] = self._loop.create_future()
        driver.on_death = partial(settle, ended, "was killed")
        driver.start(self._drive(driver, ended))
        reason = await ended
        driver.on_death = lambda: None
        driver.kill()
        return reason

    async def _drive(self, process: Process, ended: asyncio.Future[str]) -> None:
        try:
            await self._query(process)
        except Exception as error:  # noqa: BLE001 - Spark reports any failure of a query
            settle(ended, f"failed: {type(error).__name__}: {error}")

    async def _query(self, process: Process) -> None:
        parts, path = self._parts, Path(self._parts.path)
        state = parts.state(process).create()
        pid = self._processes.index(process)
        lease = Lease(process.runtime, path, host="driver", pid=pid, started_at=self._started_at)
        lease.acquire()
        state.begin_run()
        parts.open_probe(process).start()
        coordinator = parts.open_coordinator(process)
        coordinator.start()
        while True:
            if not lease.renew():
                raise QueryFailedError("another syphon has taken over")
            if self._is_hit(self._faults.lose_driver):
                process.kill_after(
                    self._random.randint(1, 400), partial(self._strike, "lose_driver")
                )
            if self._planned == self._committed:
                if not await coordinator.plan(self._committed):
                    await process.runtime.sleep(TRIGGER)
                    continue
                self._planned = self._committed + 1
            else:
                self._note(f"{self.name}: epoch {self._planned} is replayed")
                self.counts["replayed epochs"] += 1
            await self._run_epoch(coordinator, self._planned)
            self._committed = self._planned

    def _started_at(self, pid: int) -> str | None:
        return "" if self._processes[pid].is_alive else None

    async def _run_epoch(self, coordinator: Coordinator, epoch: int) -> None:
        grants = coordinator.grants(epoch)
        count = min(len(grants), PARTITIONS)
        pace = coordinator.pace(count)
        await asyncio.gather(
            *(self._run_task(epoch, grants[number::count], pace) for number in range(count))
        )
        self.counts["epochs"] += 1

    async def _run_task(self, epoch: int, grants: tuple[Grant, ...], pace: Pace | None) -> None:
        for _ in range(ATTEMPTS):
            if await self._attempt(epoch, grants, pace):
                return
            self.counts["retried tasks"] += 1
            await asyncio.sleep(self._random.uniform(0.0, 0.5))
        raise QueryFailedError(f"a task of epoch {epoch} failed {ATTEMPTS} times")

    # -- attempts

    async def _attempt(self, epoch: int, grants: tuple[Grant, ...], pace: Pace | None) -> bool:
        reader, writer = self._take_worker("reader"), self._take_worker("writer")
        batches: asyncio.Queue[Any] = asyncio.Queue(2)
        ended: asyncio.Future[bool] = self._loop.create_future()
        end = partial(settle, ended)
        for worker in (reader, writer):
            worker.on_death = partial(end, False)
            self._busy[worker] = None
        reader.start(self._read(reader, batches, epoch, grants, pace, end))
        writer.start(self._write(writer, batches, end))
        if self._is_hit(self._faults.lose_worker):
            lost = self._random.choice([reader, writer])
            lost.kill_after(self._random.randint(1, 150), partial(self._strike, "lose_worker"))
        if self._is_hit(self._faults.run_twice):
            self._loop.call_later(self._random.uniform(0.0, 0.3), self._give_up, ended)
        is_done = await ended
        self._release(reader, writer, is_done)
        return is_done

    def _give_up(self, ended: asyncio.Future[bool]) -> None:
        """Believe an attempt to be lost that is still at work."""
        if self.has_faults and not ended.done():
            self._strike("run_twice")
            settle(ended, False)

    def _take_worker(self, role: str) -> Process:
        while self._idle[role]:
            worker = self._idle[role].pop()
            if worker.is_alive:
                return worker
        return self._new(role)

    def _release(self, reader: Process, writer: Process, is_done: bool) -> None:
        for role, worker in (("reader", reader), ("writer", writer)):
            worker.on_death = lambda: None
            if is_done:
                self._busy.pop(worker, None)
                self._idle[role].append(worker)
            else:
                self._lose(worker)

    def _lose(self, worker: Process) -> None:
        """Kill a worker, or let it go on for a while without anybody who listens."""
        if self._random.random() < 0.5:
            self._kill(worker)
        else:
            seconds = self._random.uniform(0.0, 15.0)
            # In a context of its own: the driver that lost the worker may be dead by then.
            self._loop.call_later(seconds, self._kill, worker, context=contextvars.Context())

    def _kill(self, worker: Process) -> None:
        worker.kill()
        self._busy.pop(worker, None)

    def _lose_workers(self) -> None:
        for worker in self._busy:
            worker.on_death = lambda: None
        for worker in list(self._busy):
            self._lose(worker)
        for workers in self._idle.values():
            while workers:
                workers.pop().kill()

    async def _read(
        self,
        process: Process,
        batches: asyncio.Queue[Any],
        epoch: int,
        grants: tuple[Grant, ...],
        pace: Pace | None,
        end: Callable[[bool], None],
    ) -> None:
        try:
            async for batch in self._parts.read(process, epoch, grants, pace):
                await batches.put(batch)
            await batches.put(None)
        except Exception as error:  # noqa: BLE001 - as Spark does
            self._note(f"{process.name}: {type(error).__name__}: {error}")
            end(False)

    async def _write(
        self, process: Process, batches: asyncio.Queue[Any], end: Callable[[bool], None]
    ) -> None:
        try:
            deliverer = self._parts.open_deliverer(process)
            while (batch := await batches.get()) is not None:
                await deliverer.deliver(batch)
            await deliverer.finish()
            end(True)
        except Exception as error:  # noqa: BLE001 - as Spark does
            self._note(f"{process.name}: {type(error).__name__}: {error}")
            end(False)
