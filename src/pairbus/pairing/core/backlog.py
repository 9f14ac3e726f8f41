"""Decides for one call which backlog queue to try, for how long, and which queues to remove.

A failed attempt can have three causes: this queue fails, the whole secondary namespace is
unreachable, or a single connection broke. A broken connection is no evidence against a queue, so
the same queue is tried again, with back-off. If a queue answers with an error, or does not answer,
another queue is tried; if that one accepts the message, the first is removed from the rotation. If
all queues fail in the same way, the namespace fails: no queue is removed, and the attempts continue
until the call's deadline.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from pairbus.pairing.core.rotation import Rotation

FIRST_WAIT = 0.05  # seconds before the first retry after a broken connection; it doubles
MAX_WAIT = 0.4
CROWD = 8  # if more calls than this wait for a retry, each waits longer
SHORTEST_ATTEMPT = 2.0  # seconds: opening a link needs a while
PROMPT = 2.0  # an answer within this time shows that the namespace works


class Failure(enum.Enum):
    """How an attempt on a backlog queue failed."""

    BROKEN = "broken"  # the connection broke or was refused: not the queue's fault
    SILENT = "silent"  # no answer in time
    ERROR = "error"  # the service reported an error of its own, or detached the link twice
    UNUSABLE = "unusable"  # full, deleted or disabled


@dataclass(slots=True)
class BacklogCall:
    """The attempts of one call, from `started` to `deadline` in monotonic seconds."""

    started: float
    deadline: float
    failed: dict[str, Failure] = field(default_factory=dict)  # in this round
    _wait: float = FIRST_WAIT
    _attempted_at: float = 0.0
    _fallback: str | None = None  # the queue out of the rotation that this round has tried

    def pick(
        self, rotation: Rotation, *, current: str | None, now: float, draw: float
    ) -> str | None:
        """The queue for the next attempt; None if the call must give up."""
        if now >= self.deadline:
            return None
        path = rotation.pick(draw, current=current, avoid=self.failed) or self._removed(rotation)
        if path is None and any(f is not Failure.UNUSABLE for f in self.failed.values()):
            self.failed.clear()
            self._fallback = None
            path = rotation.pick(draw, current=current) or self._removed(rotation)
        self._attempted_at = now
        return path

    def _removed(self, rotation: Rotation) -> str | None:
        """The one queue out of the rotation that a round may try; None if it has failed."""
        if self._fallback is None:
            self._fallback = rotation.failed_longest_ago(avoid=self.failed)
        return self._fallback if self._fallback not in self.failed else None

    def attempt_deadline(self, rotation: Rotation, path: str, now: float) -> float:
        """When to stop waiting for `path`: half-way, if another queue could be tried then."""
        half = self._half
        if now < half:
            for other in rotation.available:
                if other != path and other not in self.failed:
                    return min(max(half, now + SHORTEST_ATTEMPT), self.deadline)
        return self.deadline

    def note_failure(
        self,
        path: str,
        failure: Failure,
        rotation: Rotation,
        *,
        now: float,
        draw: float,
        others: int = 0,
    ) -> float:
        """Record a failed attempt; returns how long to wait before the next one, in seconds.

        `others` is how many calls of the client wait for a retry; the first success wakes them all.
        """
        if failure is not Failure.BROKEN or now >= self._half:
            self.failed[path] = failure
        if failure in (Failure.SILENT, Failure.UNUSABLE):
            return 0.0
        if failure is Failure.ERROR and rotation.pick(0.0, avoid=self.failed) is not None:
            return 0.0
        wait, self._wait = self._wait, min(2 * self._wait, MAX_WAIT)
        # Spread the retries of senders that lost their connections in the same moment.
        alone = wait * (0.5 + draw)
        if others <= CROWD:
            return alone
        # From 0 on: with a minimum wait, no call would notice meanwhile that the secondary is back.
        together = wait * 2 * draw * others / CROWD
        return max(alone, min(together, (self.deadline - now) / 4))

    def bad_queues(self, path: str, now: float) -> list[str]:
        """The queues that failed while `path` took the message: remove them."""
        is_prompt = now - self._attempted_at <= PROMPT
        return [
            other
            for other, failure in self.failed.items()
            if other != path
            and (failure is Failure.ERROR or (failure is Failure.SILENT and is_prompt))
        ]

    @property
    def _half(self) -> float:
        return (self.started + self.deadline) / 2
