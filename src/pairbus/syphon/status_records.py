"""The totals and the status of a syphon, as files: see `pairbus.syphon.records`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pairbus.syphon.records import Control

__all__ = ["LedgerState", "ProgressRecord", "QueueCounts", "SyphonStatus"]

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LedgerState:
    """Whether the rows of a process reach the ledger.

    Args:
        dropped: rows that could not be written in time.
        problem: why rows are not written now; None if there is no problem.
    """

    dropped: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """`progress.json`: totals of all runs, and where the coordinator of this run stands.

    Args:
        forwarded: messages forwarded.
        size: their bytes.
        dead_lettered: messages dead-lettered, by reason.
        received: messages received.
        waiting: messages that wait for their destinations, held or deferred.
        waiting_counts: how many wait for each destination.
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
        ledger_dropped: rows that the coordinator could not write to the ledger in time.
        ledger_problem: why it cannot write to the ledger now.
    """

    forwarded: int = 0
    size: int = 0
    dead_lettered: Mapping[str, int] = field(default_factory=dict)
    received: int = 0
    waiting: int = 0
    waiting_for: Mapping[str, str] = field(default_factory=dict)
    waiting_counts: Mapping[str, int] = field(default_factory=dict)
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
    ledger_dropped: int = 0
    ledger_problem: str | None = None

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
            "waiting_counts": dict(self.waiting_counts),
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
            "ledger_dropped": self.ledger_dropped,
            "ledger_problem": self.ledger_problem,
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
            waiting_counts=dict(data.get("waiting_counts", {})),
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
            ledger_dropped=data.get("ledger_dropped", 0),
            ledger_problem=data.get("ledger_problem"),
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
    waiting_counts: Mapping[str, int]
    uncertain: tuple[str, ...]
    dead_lettered: Mapping[str, int]
    oldest_age: float | None
    rate: float
    allowed_rate: float | None
    throttled_by: str | None
    eta: float | None
    last_progress: str | None
    next_attempt: str | None
    ledger_dropped: int
    ledger_problem: str | None
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
            "waiting_counts": dict(self.waiting_counts),
            "doubtful": list(self.uncertain),
            "dead_lettered": dict(self.dead_lettered),
            "oldest_age": self.oldest_age,
            "rate": self.rate,
            "allowed_rate": self.allowed_rate,
            "throttled_by": self.throttled_by,
            "eta": self.eta,
            "last_progress": self.last_progress,
            "next_attempt": self.next_attempt,
            "ledger_dropped": self.ledger_dropped,
            "ledger_problem": self.ledger_problem,
            "limits": {
                "max_messages_per_second": self.control.max_messages_per_second,
                "max_bytes_per_second": self.control.max_bytes_per_second,
            },
            "queues": [queue.to_json() for queue in self.queues],
            "checkpoint": self.checkpoint,
        }
