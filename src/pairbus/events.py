"""Events of a pair: frozen dataclasses that observers receive.

Each event has `at` (UTC), `pair` (primary and secondary namespace, as `primary>secondary`) and
`entity` (the queue or topic, or the backlog queue, that it is about; empty where it is about the
client). An observer is any `Callable[[Event], None]`, for sync and async clients. Observers are
called in order, after the fact; the exception of one that raises is logged and affects nothing.

Events carry reasons as text: exceptions of the SDK do not survive pickling, and text never holds
a key or a body.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

__all__ = [
    "BacklogQueueRemoved",
    "BacklogQueueRestored",
    "ClientClosed",
    "ClientFaulted",
    "Draining",
    "Event",
    "FailedOver",
    "FenceOverdue",
    "MessageBacklogged",
    "OrderNotKept",
    "OversizeMessage",
    "PairUnavailable",
    "PingSent",
    "PrimaryRefused",
    "PrimarySuspected",
    "Protected",
    "Restored",
    "RoutingForced",
    "RoutingReleased",
    "Unprotected",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a pair."""

    at: datetime
    pair: str
    entity: str

    @property
    def name(self) -> str:
        """The event's name: that of its class."""
        return type(self).__name__

    def as_dict(self) -> dict[str, Any]:
        """The event as plain data that JSON can carry: `event` is its name, times are ISO UTC."""
        data = {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in asdict(self).items()
        }
        return {"event": self.name, **data}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimarySuspected(Event):
    """A send failed because of an outage. The entity fails over at `deadline` if none succeeds."""

    reason: str
    deadline: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedOver(Event):
    """Sends to the entity now go to a backlog queue. `failing_since` is the first failure."""

    reason: str
    failing_since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(Event):
    """Sends to the entity go to the primary again, after `seconds` of failover.

    `by` names the evidence that the primary is back: `ping`, `send` or `operator`; `fence` after a
    drain.
    """

    by: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining(Event):
    """The primary is back, but sends go to the backlog until it is delivered (`drain_first`).

    `by` names the evidence that the primary is back: `ping` or `send`.
    """

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceOverdue(Event):
    """A fence in `backlog_queue` was not answered for `seconds`: check whether a syphon runs.

    Sends to the entity continue to go to the backlog until the fence is answered, or an operator
    ends the wait.
    """

    backlog_queue: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderNotKept(Event):
    """With `drain_first`, the order of sends to the entity is not kept, for `reason`."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryRefused(Event):
    """A ping found the entity missing or disabled: sends raise that error until a ping succeeds."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBacklogged(Event):
    """`backlog_queue` accepted `messages` messages for the entity.

    `message_ids` are in the order of the send; `size` is their encoded size together, in bytes.
    `is_uncertain` says that an earlier attempt of the same call was sent and not answered: another
    copy may be in the primary, or in another backlog queue.
    """

    backlog_queue: str
    messages: int
    size: int
    message_ids: tuple[str, ...] = ()
    is_uncertain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PingSent(Event):
    """The primary was pinged. If not `succeeded`, `reason` says why."""

    succeeded: bool
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQueueRemoved(Event):
    """The backlog queue `entity` left the rotation until `until` at the earliest."""

    reason: str
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQueueRestored(Event):
    """The backlog queue `entity` answered a probe and is in the rotation again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairUnavailable(Event):
    """Neither namespace accepted a send: the caller got `PairUnavailableError`."""

    primary: str
    secondary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OversizeMessage(Event):
    """A message that fits the primary would not fit a backlog queue; the primary has it."""

    size: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingForced(Event):
    """An operator fixed the route of the entity's messages to `to`: `primary` or `backlog`."""

    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingReleased(Event):
    """An operator released the entity: pairbus chooses its route again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unprotected(Event):
    """The secondary cannot take messages, for `reason`: in an outage, sends would fail."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected(Event):
    """The secondary can take messages now; the pair was unprotected before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientClosed(Event):
    """The paired client was closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFaulted(Event):
    """One of the two clients was faulted, for `reason`; every use of it raises now."""

    side: str
    reason: str
