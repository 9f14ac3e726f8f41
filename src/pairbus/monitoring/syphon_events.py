"""Events of a syphon, for the timeline: derived from the changes between its status files."""

import dataclasses
from collections import deque
from collections.abc import Iterable

from pairbus.monitoring.records import Row, SyphonState
from pairbus.monitoring.timeline import age
from pairbus.status import parse_time

KEPT = 100  # events per syphon


@dataclasses.dataclass
class _Seen:
    """The state of one syphon in the previous snapshots."""

    pid: int
    state: str
    dead: dict[str, int]
    drain_began_at: str
    drain_began_with: int  # messages that were forwarded before the drain began
    forwarded: int
    throttled_by: str | None
    events: deque[Row] = dataclasses.field(default_factory=lambda: deque(maxlen=KEPT))


class SyphonEvents:
    """Keeps the events of each syphon since the monitor started."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def update(self, syphons: Iterable[SyphonState], at: str) -> list[tuple[str, list[Row]]]:
        """Take the syphons of a snapshot; return the events of each."""
        for syphon in syphons:
            self._compare(syphon, at)
        return [(name, list(seen.events)) for name, seen in self._seen.items()]

    def _compare(self, syphon: SyphonState, at: str) -> None:
        """Add the events of one syphon since the previous snapshot."""
        name, state = syphon.id, syphon.state
        forwarded, dead = syphon.forwarded, dict(syphon.dead_lettered)
        seen = self._seen.get(name)
        if seen is None or (seen.pid != syphon.pid and state != "stopped"):
            events = seen.events if seen else deque(maxlen=KEPT)
            self._seen[name] = seen = _Seen(
                syphon.pid, state, dead, at, forwarded, forwarded, None, events
            )
            if state not in ("stopped", "silent"):
                self._add(
                    seen, syphon.started_at or at, "SyphonStarted", reason=f"on {syphon.host}"
                )
            if state == "stalled":
                self._add(seen, at, "SyphonStalled", reason=syphon.problem)
            return
        for reason, number in dead.items():
            if number > seen.dead.get(reason, 0):
                added = number - seen.dead.get(reason, 0)
                self._add(seen, at, "SyphonDeadLettered", messages=added, reason=reason)
        if state != seen.state:
            self._change_state(seen, syphon, at, forwarded)
        throttled_by = syphon.throttled_by or (seen.throttled_by if state == "running" else None)
        if throttled_by != seen.throttled_by and throttled_by:
            self._add(seen, at, "SyphonThrottled", reason=f"by the {throttled_by}")
        seen.state, seen.dead, seen.forwarded = state, dead, forwarded
        seen.throttled_by = throttled_by  # one event for a drain, even if it is throttled often

    def _change_state(self, seen: _Seen, syphon: SyphonState, at: str, forwarded: int) -> None:
        state = syphon.state
        if state == "stalled":
            self._add(seen, at, "SyphonStalled", reason=syphon.problem)
        elif state in ("paused", "stopped", "silent"):
            self._add(seen, at, "Syphon" + state.capitalize())
        elif seen.state in ("paused", "stalled", "silent"):
            self._add(seen, at, "SyphonResumed")
        if state == "running":
            seen.drain_began_at, seen.drain_began_with = at, seen.forwarded
        elif state == "idle" and forwarded > seen.drain_began_with:
            now = parse_time(at)
            seconds = age(seen.drain_began_at, now) if now else None
            drained = forwarded - seen.drain_began_with
            self._add(seen, at, "SyphonDrained", messages=drained, seconds=seconds)
            seen.drain_began_with = forwarded

    @staticmethod
    def _add(seen: _Seen, at: str, event: str, **data: object) -> None:
        seen.events.append({"event": event, "at": at, "entity": "", **data})
