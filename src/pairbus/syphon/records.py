"""The records that the syphon's processes exchange through files, each with its JSON form.

Tasks write a `TaskReport`; the coordinator reads it and writes `HeldRecord` and `BlockedRecord`,
and the totals and the status of `pairbus.syphon.status_records`; the operator sets `Control`. A
reader accepts the files of earlier versions: a field that is missing has its default, and a field
that is unknown is ignored.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pairbus.syphon.codec import Record, Row
from pairbus.syphon.deferred import DeferredNumbers, from_ranges, to_ranges
from pairbus.syphon.rates import AdaptiveRate

__all__ = [
    "BlockedRecord",
    "Control",
    "HeldMessage",
    "HeldRecord",
    "OperationCount",
    "QueueRead",
    "TaskReport",
]

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Control:
    """The operator's settings of a running syphon; None is no limit."""

    paused: bool = False
    max_messages_per_second: float | None = None
    max_bytes_per_second: float | None = None

    @classmethod
    def from_json(cls, data: Json) -> "Control":
        """Read the controls; a value that makes no sense counts as not set."""
        return cls(
            paused=bool(data.get("paused", False)),
            max_messages_per_second=_rate(data.get("max_messages_per_second")),
            max_bytes_per_second=_rate(data.get("max_bytes_per_second")),
        )

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of the controls."""
        return [field.name for field in fields(cls)]

    def to_files(self) -> dict[str, dict[str, Any]]:
        """Return the JSON form of `controls/*.json`, by control."""
        return {name: {"value": getattr(self, name)} for name in self.names()}

    @classmethod
    def from_files(cls, files: Mapping[str, Json], together: Json) -> "Control":
        """Read the files of the controls; `control.json` has those that have no file."""
        values = {name: data.get("value") for name, data in files.items() if data}
        return cls.from_json({**together, **values})


def _rate(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 < value < math.inf else None


@dataclass(frozen=True, slots=True)
class OperationCount(Row):
    """Operations of one kind on one entity, for the ledger."""

    namespace: str
    stage: str
    entity: str
    operation: str
    calls: int = 1
    messages: int = 0
    size: int = 0
    billable: int = 0


@dataclass(frozen=True, slots=True)
class HeldMessage(Row):
    """A message that stays locked because its destination cannot accept it now.

    Args:
        queue: the backlog queue.
        token: the lock token, in hexadecimal.
        sequence: the sequence number.
        destination: the destination in lower case, or `*` for the primary as a whole.
        locked_until: when the lock expires, in seconds since 1970.
    """

    queue: str
    token: str
    sequence: int
    destination: str
    locked_until: float


@dataclass(frozen=True, slots=True)
class QueueRead(Record):
    """The messages that a task read from one queue.

    Args:
        messages: how many.
        size: their encoded bytes.
        has_more: whether the queue had more messages when the task stopped.
        is_finished: a snapshot has all messages of this queue.
        lock_seconds: how long a lock lasts, if a message was received.
        oldest: when the last batch's first message was enqueued, in milliseconds since 1970.
        busy: how often the secondary answered server-busy.
    """

    messages: int = 0
    size: int = 0
    has_more: bool = False
    is_finished: bool = False
    lock_seconds: float | None = None
    oldest: int | None = None
    busy: int = 0


@dataclass(frozen=True, slots=True)
class TaskReport(Record):
    """The results of one task, for the coordinator.

    Args:
        forwarded: messages that a destination confirmed and that were settled.
        size: their encoded bytes.
        dead_lettered: messages that were dead-lettered, by reason.
        operations: operations for the ledger.
        read: the messages that were read, by queue.
        held: messages that stay locked.
        failed: destinations (or `*`) that refused, with the AMQP condition.
        delivered: destinations that accepted a message.
        uncertain: queues where messages may be locked that could not be returned.
        stalled: why nothing can be delivered.
        busy: how often the primary answered server-busy.
        sending: the task's share of the rate of sending, as it has adapted it.
        has_ended: the task sends nothing more.
        deferred: messages that are about to be deferred.
        undeferred: sequence numbers, by queue, that are not deferred any more.
        locked: queues with deferred messages that cannot be received now.
    """

    forwarded: int = 0
    size: int = 0
    dead_lettered: Mapping[str, int] = field(default_factory=dict)
    operations: tuple[OperationCount, ...] = ()
    read: Mapping[str, QueueRead] = field(default_factory=dict)
    held: tuple[HeldMessage, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    delivered: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    stalled: str | None = None
    busy: int = 0
    sending: AdaptiveRate | None = None
    has_ended: bool = False
    deferred: tuple[DeferredNumbers, ...] = ()
    undeferred: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    locked: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        undeferred = {queue: to_ranges(numbers) for queue, numbers in self.undeferred.items()}
        return {**super(TaskReport, self).to_json(), "undeferred": undeferred}

    @classmethod
    def from_json(cls, data: Json) -> "TaskReport":
        """Read the JSON form."""
        found = data.get("undeferred") or {}
        undeferred = {queue: tuple(from_ranges(ranges)) for queue, ranges in found.items()}
        return replace(super(TaskReport, cls).from_json(data), undeferred=undeferred)


@dataclass(frozen=True, slots=True)
class HeldRecord(Record):
    """`held.json`: the messages that stay locked, for the next coordinator.

    Args:
        held: the messages.
        failed: destinations that are waited for, with the AMQP condition.
        missing_since: destinations that do not exist, and since when they are waited for.
        expired: destinations that were waited for in vain.
    """

    held: tuple[HeldMessage, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    missing_since: Mapping[str, float] = field(default_factory=dict)
    expired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockedRecord(Record):
    """`waiting.json`: destinations that tasks must not send to, and how fast they may send.

    Args:
        blocked: destinations, each with the one message (queue, sequence number) that may be sent
            as a probe.
        primary_until: until when nothing is sent, in seconds since 1970.
        expired: destinations that do not exist and are waited for no longer.
        deferring: those of the blocked destinations whose messages are deferred, not held.
        fetched: the queues of which only deferred messages are read now, each with the lowest and
            the highest sequence number; these messages may be sent.
        sending: how fast each task may send; None for no limit.
    """

    blocked: Mapping[str, tuple[str, int] | None] = field(default_factory=dict)
    primary_until: float = 0.0
    expired: tuple[str, ...] = ()
    deferring: tuple[str, ...] = ()
    fetched: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    sending: AdaptiveRate | None = None

    def is_fetched(self, queue: str, sequence: int) -> bool:
        """Whether a message was received by its number."""
        bounds = self.fetched.get(queue)
        return bounds is not None and bounds[0] <= sequence <= bounds[1]

    def allows(self, destination: str, queue: str, sequence: int) -> bool:
        """Whether a message may be sent to a destination."""
        if destination not in self.blocked or self.is_fetched(queue, sequence):
            return True
        return self.blocked[destination] == (queue, sequence)
