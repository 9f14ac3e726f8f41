"""Chooses the backlog queue of a sender; random number and time are arguments.

Each sender picks a queue at random and stays with it. A queue that fails while others work leaves
the rotation for every sender of the paired client. It returns after a cool-down and a successful
probe, or when it accepts a message, because it is also tried when no other queue is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Removed:
    """Why a queue is out of the rotation, since when, when to probe it, when it failed last."""

    reason: str
    since: float
    until: float
    failed_at: float


@dataclass(frozen=True, slots=True)
class Rotation:
    """The backlog queues of a paired client: those in rotation, and those that are out.

    Attributes:
        available: The paths in rotation, in order; computed once, because every send reads it.
    """

    paths: tuple[str, ...]
    removed: tuple[tuple[str, Removed], ...] = ()
    available: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        out = {path for path, _ in self.removed}
        available = tuple(path for path in self.paths if path not in out)
        object.__setattr__(self, "available", available)

    def pick(
        self, draw: float, *, current: str | None = None, avoid: Collection[str] = ()
    ) -> str | None:
        """The queue for a sender: its `current` one if that is in rotation, else a random one.

        `draw` is a number in [0, 1). None if every queue in rotation is in `avoid`.
        """
        available = self.available
        if current is not None and current in available and current not in avoid:
            return current
        if avoid:
            available = tuple(path for path in available if path not in avoid)
        if not available:
            return None
        return available[min(int(draw * len(available)), len(available) - 1)]

    def failed_longest_ago(self, *, avoid: Collection[str] = ()) -> str | None:
        """The removed queue whose last failure is the oldest; None if there is none."""
        candidates = [entry for entry in self.removed if entry[0] not in avoid]
        if not candidates:
            return None
        return min(candidates, key=lambda entry: entry[1].failed_at)[0]

    def remove(self, path: str, reason: str, *, now: float, cooldown: float) -> Rotation:
        """The rotation without `path`. If it is already out, only its last failure is updated."""
        if path in self.available:
            entry = (path, Removed(reason, now, now + cooldown, now))
            return Rotation(self.paths, (*self.removed, entry))
        return self._changed(path, lambda out: replace(out, reason=reason, failed_at=now))

    def due(self, now: float) -> tuple[str, ...]:
        """The removed queues whose cool-down has passed: probe them."""
        return tuple(path for path, out in self.removed if now >= out.until)

    def next_due(self) -> float | None:
        """When the first removed queue may be probed; None if all are in rotation."""
        return min((out.until for _, out in self.removed), default=None)

    def restore(self, path: str) -> Rotation:
        """The rotation with `path` back in it."""
        return Rotation(self.paths, tuple(entry for entry in self.removed if entry[0] != path))

    def probe_failed(self, path: str, reason: str, *, now: float, cooldown: float) -> Rotation:
        """The rotation with another cool-down for `path`, which stays out."""
        return self._changed(
            path, lambda out: Removed(reason, out.since, now + cooldown, failed_at=now)
        )

    def _changed(self, path: str, change: Callable[[Removed], Removed]) -> Rotation:
        entries = ((p, change(out) if p == path else out) for p, out in self.removed)
        return Rotation(self.paths, tuple(entries))
