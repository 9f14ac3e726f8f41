"""The health of one primary entity: facts in, commands out, time as an argument.

Sends to an entity go to the primary (`HEALTHY`). The first outage starts a timer (`SUSPECT`); when
`failover_interval` passes without a successful send, the entity fails over (`FAILED_OVER`): sends
go to a backlog queue and the primary is pinged. The first successful ping or send ends the failover
immediately. If a ping finds the entity missing or disabled, the entity stays failed over, but is
*refused*: sends raise that error until a ping succeeds, because the syphon could not deliver.

With `recovery="drain_first"` the entity is `DRAINING` first: sends continue to the backlog until
the syphon has delivered everything before them, so that nothing overtakes (`core.draining`). Pings
continue, because no send would notice a new outage; a ping that fails makes the entity failed over
again.

An operator may force either route. While forced, no result of a send or ping changes the route, no
timer runs and nothing is pinged (a ping would be charged and change nothing).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pairbus.pairing.core.ping import first_gap
from pairbus.pairing.core.timing import Timing


class Phase(enum.Enum):
    """Where the sends of one entity go, and why."""

    HEALTHY = "healthy"  # sends go to the primary
    SUSPECT = "suspect"  # primary failing; failover_interval is running
    FAILED_OVER = "failed_over"  # sends go to a backlog queue; the primary is pinged
    DRAINING = "draining"  # the primary is back; sends follow the backlog until it is delivered


@dataclass(frozen=True, slots=True)
class Health:
    """The health of one entity.

    `since` is when the phase began, `failing_since` the first outage, `refused` the error of a
    ping that found the entity missing or disabled, `forced` the operator's route.
    """

    phase: Phase = Phase.HEALTHY
    since: float = 0.0
    failing_since: float = 0.0
    reason: str = ""
    refused: str = ""
    forced: str = ""  # "", "primary" or "backlog"

    @property
    def is_failed_over(self) -> bool:
        """Whether sends go to a backlog queue."""
        return self.phase is Phase.FAILED_OVER or self.phase is Phase.DRAINING

    @property
    def is_pinged(self) -> bool:
        """Whether the primary is pinged: while failed over, unless an operator forced it."""
        return self.is_failed_over and not self.forced


# Facts: what happened.


@dataclass(frozen=True, slots=True)
class SendSucceeded:
    """The primary took a send."""


@dataclass(frozen=True, slots=True)
class SendFailed:
    """A send to the primary, or the opening of a sender, met an outage."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that was armed has run out."""


@dataclass(frozen=True, slots=True)
class PingSucceeded:
    """The primary took a ping."""


@dataclass(frozen=True, slots=True)
class PingFailed:
    """A ping met an outage, or was refused for a temporary reason."""

    reason: str = ""
    is_outage: bool = True


@dataclass(frozen=True, slots=True)
class PingRefused:
    """A ping found the entity missing or disabled."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class BacklogForced:
    """An operator sends everything to the backlog."""


@dataclass(frozen=True, slots=True)
class PrimaryForced:
    """An operator sends everything to the primary."""


@dataclass(frozen=True, slots=True)
class Released:
    """An operator no longer forces a route."""


@dataclass(frozen=True, slots=True)
class BacklogDrained:
    """Everything that was sent to the backlog for this entity has been delivered."""


@dataclass(frozen=True, slots=True)
class DrainEnded:
    """An operator decided not to wait until the backlog is delivered."""


Fact: TypeAlias = (
    SendSucceeded
    | SendFailed
    | TimerFired
    | PingSucceeded
    | PingFailed
    | PingRefused
    | BacklogForced
    | PrimaryForced
    | Released
    | BacklogDrained
    | DrainEnded
)

# Commands: what the shell must do.


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Report `TimerFired` at this time."""

    at: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget the timer."""


@dataclass(frozen=True, slots=True)
class StartPings:
    """Ping the primary, the first time at `at`, then as `PingSchedule` says."""

    at: float


@dataclass(frozen=True, slots=True)
class StopPings:
    """Stop pinging the primary."""


@dataclass(frozen=True, slots=True)
class StartDrain:
    """Send fences, and report `BacklogDrained` when they were answered."""


@dataclass(frozen=True, slots=True)
class StopDrain:
    """Ignore the fences that were sent."""


Command: TypeAlias = ArmTimer | CancelTimer | StartPings | StopPings | StartDrain | StopDrain
Decision: TypeAlias = tuple[Health, Sequence[Command]]


def step(h: Health, fact: Fact, *, now: float, options: Timing) -> Decision:
    """Apply one fact; return the new health and what the shell must do."""
    match h.phase, fact:
        case _, BacklogForced() if h.forced == "backlog":
            return h, []
        case _, BacklogForced():
            since = h.since if h.is_failed_over else now
            forced = Health(Phase.FAILED_OVER, since, now, "forced by an operator", "", "backlog")
            return forced, [CancelTimer(), StopPings(), *_stop_drain(h)]
        case _, PrimaryForced() if h.forced == "primary":
            return h, []
        case _, PrimaryForced():
            return Health(since=now, forced="primary"), [
                CancelTimer(),
                StopPings(),
                *_stop_drain(h),
            ]
        case Phase.FAILED_OVER, Released() if h.forced:
            # Ping immediately: sends neither fail in an outage that continues nor stay in the
            # backlog without need.
            return replace(h, reason="released by an operator", forced=""), [StartPings(now)]
        case _, Released() if h.forced:
            return Health(since=now), []
        case _ if h.forced:
            # The operator decided; facts of sends and pings in flight change nothing.
            return h, []
        case Phase.HEALTHY, SendFailed(reason) if options.failover_interval > 0:
            deadline = now + options.failover_interval
            return Health(Phase.SUSPECT, now, now, reason), [ArmTimer(deadline)]
        case Phase.HEALTHY, SendFailed(reason):
            return _failed_over(now, now, reason, options)
        case Phase.SUSPECT, SendSucceeded():
            return Health(since=now), [CancelTimer()]
        case Phase.SUSPECT, (TimerFired() | SendFailed()) if _is_due(h, now, options):
            # A failure that arrives before its late timer has the same effect.
            reason = fact.reason if isinstance(fact, SendFailed) else h.reason
            return _failed_over(now, h.failing_since, reason, options)
        case Phase.SUSPECT, SendFailed(reason):
            return replace(h, reason=reason), []
        case Phase.FAILED_OVER, PingSucceeded() | SendSucceeded() if options.drains_first:
            return Health(Phase.DRAINING, now, h.failing_since), [StartDrain()]
        case Phase.FAILED_OVER, PingSucceeded() | SendSucceeded():
            return Health(since=now), [StopPings()]
        case Phase.DRAINING, BacklogDrained() | DrainEnded():
            return Health(since=now), [StopPings(), StopDrain()]
        case Phase.DRAINING, PingRefused(reason):
            return Health(Phase.FAILED_OVER, now, now, reason, reason), [StopDrain()]
        case Phase.DRAINING, PingFailed(reason, True):
            return Health(Phase.FAILED_OVER, now, now, reason), [StopDrain()]
        case Phase.FAILED_OVER, PingRefused(reason):
            return replace(h, reason=reason, refused=reason), []
        case Phase.FAILED_OVER, PingFailed(reason):
            return replace(h, reason=reason), []
        case _:
            # A send in flight when we failed over, a stale timer, a ping that ended after the
            # failover did, a fence of an earlier outage: facts that change nothing.
            return h, []


def resume(h: Health, *, now: float, options: Timing) -> Sequence[Command]:
    """The commands that start the timers and pings of `h`, where none are running."""
    if h.phase is Phase.SUSPECT:
        return [ArmTimer(h.failing_since + options.failover_interval)]
    if h.is_pinged:
        draining = [StartDrain()] if h.phase is Phase.DRAINING else []
        return [StartPings(now + first_gap(options)), *draining]
    return []


def _stop_drain(h: Health) -> list[Command]:
    return [StopDrain()] if h.phase is Phase.DRAINING else []


def _is_due(h: Health, now: float, options: Timing) -> bool:
    return now >= h.failing_since + options.failover_interval


def _failed_over(now: float, failing_since: float, reason: str, options: Timing) -> Decision:
    health = Health(Phase.FAILED_OVER, now, failing_since, reason)
    return health, [CancelTimer(), StartPings(now + first_gap(options))]
