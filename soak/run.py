"""One soak: start or resume, strike, heal, judge."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from simulation.history import Verdict, judge
from soak.application import ENTITIES, SEND_TIMEOUT
from soak.faults import draw_plan, strike
from soak.ledger import contradictions, out_of_order, read_messages
from soak.processes import kill_leftovers
from soak.records import (
    Journal,
    State,
    Struck,
    last_call,
    read_history,
    read_lines,
    read_restarts,
    read_struck,
    windows,
)
from soak.world import World

DEADLINE = 2 * SEND_TIMEOUT + 40.0  # of a call; the machine is busy
AFTERMATH = 180.0  # seconds after a fault in which it may still duplicate a message
HEALED_WITHIN = 600.0


@dataclass(frozen=True, slots=True)
class Result:
    """What a soak showed.

    Attributes:
        struck: The faults, with those that had no effect.
        verdict: The history against the messages that arrived.
        detected: Duplicates in the queue that detects them; there must be none.
        others: Everything else that must not be, in words.
        messages: Calls of all applications.
        failovers: How often an application failed over.
        forwarded: Messages that the syphon forwarded.
        seconds: How long it took.
    """

    struck: list[Struck]
    verdict: Verdict
    detected: list[str]
    others: list[str]
    messages: int
    failovers: int
    forwarded: int
    seconds: float

    @property
    def problems(self) -> list[str]:
        """Everything that must not be."""
        found = [*self.verdict.problems, *self.others]
        if self.detected:
            found.append(f"duplicated where duplicates are detected: {', '.join(self.detected)}")
        return found


class Soak:
    """A soak in a folder, new or to be resumed.

    Args:
        folder: where everything is.
        faults: how many faults in all.
        seed: of the plan, for a new soak.
        pause: seconds between the sends of an application.
        gap: seconds between faults, about.
        show: called with each line of progress.
    """

    def __init__(
        self,
        folder: Path,
        *,
        faults: int,
        seed: int,
        pause: float,
        gap: float,
        show: Callable[[str], None],
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._gap = gap
        self._show = show
        self._state = State.load(folder) or State(seed, faults)
        self._state.faults = faults
        self._ended_at = last_call(folder)  # of the run before, which may have been killed
        if self._state.runs and (killed := kill_leftovers(folder)):
            show(f"ended {killed} processes of a soak that was killed")
        self._state.runs += 1
        self._world = World(folder, self._state, pause=pause)
        self._problems = Journal(folder / "problems.jsonl")
        self._began = time.monotonic()

    def run(self) -> Result:
        """Make the faults that are left, heal, and judge."""
        done = len(read_struck(self._folder))
        self._show(f"{done} of {self._state.faults} faults are done; starting all processes")
        try:
            self._world.start()
            if self._ended_at is not None:  # that all processes ended is a fault, too
                restarts = Journal(self._folder / "restarts.jsonl")
                restarts.add(began=self._ended_at - DEADLINE, ended=time.time())
            self._state.save(self._folder)
            self._strike_all()
            self._show("healing")
            for text in self._world.heal(HEALED_WITHIN):
                self._problems.add(problem=text)
            return self._judge()
        finally:
            self._world.close()
            self._state.seconds += time.monotonic() - self._began
            self._state.save(self._folder)

    def _strike_all(self) -> None:
        journal = Journal(self._folder / "faults.jsonl")
        plan = draw_plan(self._state.seed, self._state.faults)
        chance = random.Random(f"gaps {self._state.seed} {self._state.runs}")
        time.sleep(self._gap)
        for planned in plan[len(read_struck(self._folder)) :]:
            began = time.time()
            detail = strike(self._world, planned)
            hit = Struck(
                planned.number, planned.kind, detail or "", began, time.time(), detail is not None
            )
            journal.add(**asdict(hit))
            time.sleep(chance.uniform(0.5, 1.5) * self._gap)
            for text in self._world.ended_by_themselves():
                self._problems.add(problem=text)
                self._show(f"  {text}")
            self._progress(hit)

    def _progress(self, hit: Struck) -> None:
        calls = read_history(self._folder).calls.values()
        good = sum(call.outcome == "ok" for call in calls)
        note = hit.detail if hit.took_effect else "no effect"
        self._show(
            f"[{hit.number + 1:3}/{self._state.faults}] {hit.kind:18}  {note:24}  "
            f"{len(calls):,} calls, {good:,} ok, {self._world.failovers()} failovers, "
            f"{self._world.forwarded():,} forwarded"
        )

    def _judge(self) -> Result:
        history, struck = read_history(self._folder), read_struck(self._folder)
        arrived = self._world.collect()
        verdict = judge(
            history,
            [name for ids in arrived.values() for name in ids],
            [*windows(struck), *read_restarts(self._folder)],
            deadline=DEADLINE,
            aftermath=AFTERMATH,
        )
        detecting = arrived[ENTITIES[0]]
        others = [line["problem"] for line in read_lines(self._folder / "problems.jsonl")]
        if dead := self._world.dead_letters():
            others.append(f"{dead} messages of the backlog were dead-lettered")
        rows = read_messages(self._folder / "ledger")
        others += contradictions(rows, arrived)
        jumps = [one for one in windows(struck) if one.kind == "clock secondary"]
        if found := out_of_order(history, rows, arrived, jumps, detecting=ENTITIES[:1]):
            others.append(f"overtaken: {', '.join(found)}")
        return Result(
            struck=struck,
            verdict=verdict,
            detected=sorted({name for name in detecting if detecting.count(name) > 1})
            if len(set(detecting)) < len(detecting)
            else [],
            others=others,
            messages=len(history.calls),
            failovers=self._world.failovers(),
            forwarded=self._world.forwarded(),
            seconds=self._state.seconds + time.monotonic() - self._began,
        )
