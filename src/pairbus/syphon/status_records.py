"""The totals and the status of a syphon, as files: see `pairbus.syphon.records`."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pairbus.syphon.codec import Record
from pairbus.syphon.records import TaskReport

__all__ = ["LedgerState", "ProgressRecord", "QueueCounts", "SyphonStatus"]


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
class ProgressRecord(Record):
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
        ledger_dropped_rows: rows that the coordinator could not write to the ledger in time.
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
    ledger_dropped_rows: int = 0
    ledger_problem: str | None = None

    @property
    def settled(self) -> int:
        """Messages that left the backlog, forwarded or dead-lettered."""
        return self.forwarded + sum(self.dead_lettered.values())

    def plus(self, report: TaskReport) -> "ProgressRecord":
        """Add the report of a task to the totals."""
        return replace(
            self,
            forwarded=self.forwarded + report.forwarded,
            size=self.size + report.size,
            dead_lettered=dict(Counter(self.dead_lettered) + Counter(report.dead_lettered)),
            received=self.received + sum(read.messages for read in report.read.values()),
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
class QueueCounts(Record):
    """Message counts of one backlog queue."""

    path: str = "?"
    active: int = 0
    dead_letters: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**super(QueueCounts, self).to_json(), "oldest": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonStatus(Record):
    """`status.json`, and the syphon's file among the ledger's status files. Times are ISO 8601.

    `machine` and `process_started` identify the process as in the lease: see `LeaseRecord`.
    """

    id: str = "?"
    host: str = ""
    pid: int = 0
    primary: str = ""
    secondary: str = ""
    updated_at: str = ""
    state: str = "running"
    stalled: str | None = None
    forwarded: int = 0
    bytes: int = 0
    remaining: int | None = None
    in_flight: int = 0
    waiting: int = 0
    waiting_for: Mapping[str, str] = field(default_factory=dict)
    waiting_counts: Mapping[str, int] = field(default_factory=dict)
    uncertain: tuple[str, ...] = ()
    dead_lettered: Mapping[str, int] = field(default_factory=dict)
    oldest_age: float | None = None
    rate: float = 0.0
    allowed_rate: float | None = None
    throttled_by: str | None = None
    eta: float | None = None
    last_progress: str | None = None
    next_attempt: str | None = None
    ledger_dropped_rows: int = 0
    ledger_problem: str | None = None
    limits: Mapping[str, float | None] = field(default_factory=dict)
    queues: tuple[QueueCounts, ...] = ()
    checkpoint: str = ""
    started_at: str = ""
    machine: str = ""
    process_started: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"kind": "syphon", "version": 1, **super(SyphonStatus, self).to_json()}
