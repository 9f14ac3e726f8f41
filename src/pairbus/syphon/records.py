"""The records that the syphon's processes exchange through files, each with its JSON form.

Tasks write a `TaskReport`; the coordinator reads it, adds it up and writes `ProgressRecord`,
`HeldRecord` and `BlockedRecord`; the driver writes `SyphonStatus`; the operator sets `Control`. A
reader accepts the files of earlier versions: a field that is missing has its default, and a field
that is unknown is ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "BlockedRecord",
    "Control",
    "HeldMessage",
    "HeldRecord",
    "OperationCount",
    "ProgressRecord",
    "QueueCounts",
    "QueueRead",
    "SyphonStatus",
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


def _rate(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None


@dataclass(frozen=True, slots=True)
class OperationCount:
    """Operations of one kind on one entity, for the ledger."""

    namespace: str
    stage: str
    entity: str
    operation: str
    calls: int = 1
    messages: int = 0
    size: int = 0
    billable: int = 0

    def to_json(self) -> list[Any]:
        """Return the fields in their order."""
        return [
            self.namespace, self.stage, self.entity, self.operation,
            self.calls, self.messages, self.size, self.billable,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class HeldMessage:
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

    def to_json(self) -> list[Any]:
        """Return the fields in their order."""
        return [self.queue, self.token, self.sequence, self.destination, self.locked_until]


@dataclass(frozen=True, slots=True)
class QueueRead:
    """What a task read from one queue.

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

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "messages": self.messages,
            "bytes": self.size,
            "more": self.has_more,
            "done": self.is_finished,
            "lock": self.lock_seconds,
            "oldest": self.oldest,
            "busy": self.busy,
        }

    @classmethod
    def from_json(cls, data: Json) -> "QueueRead":
        """Read the JSON form."""
        return cls(
            messages=data.get("messages", 0),
            size=data.get("bytes", 0),
            has_more=data.get("more", False),
            is_finished=data.get("done", False),
            lock_seconds=data.get("lock"),
            oldest=data.get("oldest"),
            busy=data.get("busy", 0),
        )


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task did, written for the coordinator.

    Args:
        forwarded: messages that a destination confirmed and that were settled.
        size: their encoded bytes.
        dead_lettered: messages that were dead-lettered, by reason.
        operations: operations for the ledger.
        read: what was read, by queue.
        held: messages that stay locked.
        failed: destinations (or `*`) that refused, with the AMQP condition.
        delivered: destinations that accepted a message.
        uncertain: queues where messages may be locked that could not be returned.
        stalled: why nothing can be delivered.
        busy: how often the primary answered server-busy.
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

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "forwarded": self.forwarded,
            "bytes": self.size,
            "dead_lettered": dict(self.dead_lettered),
            "operations": [one.to_json() for one in self.operations],
            "read": {queue: read.to_json() for queue, read in self.read.items()},
            "held": [one.to_json() for one in self.held],
            "failed": dict(self.failed),
            "delivered": list(self.delivered),
            "doubtful": list(self.uncertain),
            "stalled": self.stalled,
            "busy": self.busy,
        }

    @classmethod
    def from_json(cls, data: Json) -> "TaskReport":
        """Read the JSON form."""
        return cls(
            forwarded=data.get("forwarded", 0),
            size=data.get("bytes", 0),
            dead_lettered=dict(data.get("dead_lettered", {})),
            operations=tuple(OperationCount(*row) for row in data.get("operations", [])),
            read={q: QueueRead.from_json(read) for q, read in data.get("read", {}).items()},
            held=tuple(HeldMessage(*row) for row in data.get("held", [])),
            failed=dict(data.get("failed", {})),
            delivered=tuple(data.get("delivered", [])),
            uncertain=tuple(data.get("doubtful", [])),
            stalled=data.get("stalled"),
            busy=data.get("busy", 0),
        )


@dataclass(frozen=True, slots=True)
class HeldRecord:
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

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "held": [one.to_json() for one in self.held],
            "failed": dict(self.failed),
            "missing_since": dict(self.missing_since),
            "expired": list(self.expired),
        }

    @classmethod
    def from_json(cls, data: Json) -> "HeldRecord":
        """Read the JSON form."""
        held = tuple(HeldMessage(*row) for row in data.get("held", []))
        return cls(
            held,
            dict(data.get("failed", {})),
            dict(data.get("missing_since", {})),
            tuple(data.get("expired", ())),
        )


@dataclass(frozen=True, slots=True)
class BlockedRecord:
    """`waiting.json`: destinations that tasks must not send to.

    Args:
        blocked: destinations, each with the one message (queue, sequence number) that may be sent
            as a probe.
        primary_until: until when nothing is sent, in seconds since 1970.
        expired: destinations that do not exist and are waited for no longer.
    """

    blocked: Mapping[str, tuple[str, int] | None] = field(default_factory=dict)
    primary_until: float = 0.0
    expired: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        probes = {name: list(probe) if probe else None for name, probe in self.blocked.items()}
        return {
            "blocked": probes,
            "primary_until": self.primary_until,
            "expired": list(self.expired),
        }

    @classmethod
    def from_json(cls, data: Json) -> "BlockedRecord":
        """Read the JSON form."""
        blocked = {
            name: (str(probe[0]), int(probe[1])) if probe else None
            for name, probe in data.get("blocked", {}).items()
        }
        return cls(blocked, data.get("primary_until", 0.0), tuple(data.get("expired", ())))


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """`progress.json`: totals of all runs, and where the coordinator of this run stands.

    Args:
        forwarded: messages forwarded.
        size: their bytes.
        dead_lettered: messages dead-lettered, by reason.
        received: messages received.
        waiting: messages held.
        waiting_for: destinations that are waited for, with the AMQP condition.
        in_flight: messages that the running micro-batch may read.
        problem: why nothing can move.
        is_started: the coordinator runs.
        is_empty: a drain until empty found the queues empty.
        is_listening: the doorbell listens.
        is_drained: a bounded drain has read all that it may.
        is_released: after a stop everything that was held was returned.
        uncertain: queues that wait until orphaned locks have expired.
        suspect: queues that would be uncertain if the coordinator died now.
        oldest: when the oldest message that was seen was enqueued, in milliseconds since 1970.
        allowed_rate: messages a second that the namespaces allow; None for no limit.
        throttled_by: `primary` or `secondary`, if it was busy a moment ago.
    """

    forwarded: int = 0
    size: int = 0
    dead_lettered: Mapping[str, int] = field(default_factory=dict)
    received: int = 0
    waiting: int = 0
    waiting_for: Mapping[str, str] = field(default_factory=dict)
    in_flight: int = 0
    problem: str | None = None
    is_started: bool = False
    is_empty: bool = False
    is_listening: bool = False
    is_drained: bool = False
    is_released: bool = False
    uncertain: tuple[str, ...] = ()
    suspect: tuple[str, ...] = ()
    oldest: int | None = None
    allowed_rate: float | None = None
    throttled_by: str | None = None

    @property
    def settled(self) -> int:
        """Messages that left the backlog, forwarded or dead-lettered."""
        return self.forwarded + sum(self.dead_lettered.values())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "forwarded": self.forwarded,
            "bytes": self.size,
            "dead_lettered": dict(self.dead_lettered),
            "received": self.received,
            "waiting": self.waiting,
            "waiting_for": dict(self.waiting_for),
            "in_flight": self.in_flight,
            "problem": self.problem,
            "begun": self.is_started,
            "empty": self.is_empty,
            "listening": self.is_listening,
            "drained": self.is_drained,
            "released": self.is_released,
            "doubtful": list(self.uncertain),
            "suspect": list(self.suspect),
            "oldest": self.oldest,
            "allowed_rate": self.allowed_rate,
            "throttled_by": self.throttled_by,
        }

    @classmethod
    def from_json(cls, data: Json) -> "ProgressRecord":
        """Read the JSON form."""
        return cls(
            forwarded=data.get("forwarded", 0),
            size=data.get("bytes", 0),
            dead_lettered=dict(data.get("dead_lettered", {})),
            received=data.get("received", 0),
            waiting=data.get("waiting", 0),
            waiting_for=dict(data.get("waiting_for", {})),
            in_flight=data.get("in_flight", 0),
            problem=data.get("problem"),
            is_started=data.get("begun", False),
            is_empty=data.get("empty", False),
            is_listening=data.get("listening", False),
            is_drained=data.get("drained", False),
            is_released=data.get("released", False),
            uncertain=tuple(data.get("doubtful", [])),
            suspect=tuple(data.get("suspect", [])),
            oldest=data.get("oldest"),
            allowed_rate=data.get("allowed_rate"),
            throttled_by=data.get("throttled_by"),
        )

    def for_new_run(self) -> "ProgressRecord":
        """Keep the totals and the suspect queues; forget the state of the run that ended."""
        return ProgressRecord(
            forwarded=self.forwarded,
            size=self.size,
            dead_lettered=self.dead_lettered,
            received=self.received,
            suspect=self.suspect,
        )


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Message counts of one backlog queue."""

    path: str
    active: int
    dead_letters: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "path": self.path,
            "active": self.active,
            "oldest": None,
            "dead_letters": self.dead_letters,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonStatus:
    """`status.json`, and the syphon's file among the ledger's status files. Times are ISO 8601."""

    id: str
    host: str
    pid: int
    primary: str
    secondary: str
    updated_at: str
    state: str
    stalled: str | None
    forwarded: int
    bytes: int
    remaining: int | None
    in_flight: int
    waiting: int
    waiting_for: Mapping[str, str]
    uncertain: tuple[str, ...]
    dead_lettered: Mapping[str, int]
    oldest_age: float | None
    rate: float
    allowed_rate: float | None
    throttled_by: str | None
    eta: float | None
    last_progress: str | None
    next_attempt: str | None
    control: Control
    queues: tuple[QueueCounts, ...]
    checkpoint: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "kind": "syphon",
            "version": 1,
            "id": self.id,
            "host": self.host,
            "pid": self.pid,
            "primary": self.primary,
            "secondary": self.secondary,
            "updated_at": self.updated_at,
            "state": self.state,
            "stalled": self.stalled,
            "forwarded": self.forwarded,
            "bytes": self.bytes,
            "remaining": self.remaining,
            "in_flight": self.in_flight,
            "waiting": self.waiting,
            "waiting_for": dict(self.waiting_for),
            "doubtful": list(self.uncertain),
            "dead_lettered": dict(self.dead_lettered),
            "oldest_age": self.oldest_age,
            "rate": self.rate,
            "allowed_rate": self.allowed_rate,
            "throttled_by": self.throttled_by,
            "eta": self.eta,
            "last_progress": self.last_progress,
            "next_attempt": self.next_attempt,
            "limits": {
                "max_messages_per_second": self.control.max_messages_per_second,
                "max_bytes_per_second": self.control.max_bytes_per_second,
            },
            "queues": [queue.to_json() for queue in self.queues],
            "checkpoint": self.checkpoint,
        }
