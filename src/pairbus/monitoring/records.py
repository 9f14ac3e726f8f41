"""The records of a snapshot. As JSON they are objects with the same names; times are ISO UTC."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from pairbus.status import BacklogQueueStatus, Counts, EntityStatus
from pairbus.syphon.status_records import QueueCounts

Row = dict[str, Any]
"""An event: its keys depend on its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientState:
    """A paired client, as its status file describes it.

    `is_stale`: it is open, but has not written its file for a minute.
    """

    client_id: str
    host: str | None = None
    pid: int | None = None
    primary_namespace: str | None = None
    primary: str | None = None
    secondary: str | None = None
    state: str = "open"
    updated_at: datetime | None = None
    is_stale: bool = False
    unprotected: str | None = None
    ledger_problem: str | None = None
    ledger_dropped_rows: int = 0
    entities: Sequence[EntityStatus] = ()
    backlog_queues: Sequence[BacklogQueueStatus] = ()

    @property
    def name(self) -> str:
        """What messages and metrics call it."""
        return self.client_id


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityState:
    """An entity, as all clients together see it: the worst phase counts."""

    entity: str
    phase: str
    since: datetime | None
    seconds: float | None
    last_error: str | None
    next_ping: datetime | None
    next_ping_in: float | None
    forced: str | None
    overdue_fences: Sequence[str]
    backlog_queues: Sequence[str]
    clients: int
    clients_failed_over: int
    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """The counts of a backlog queue, and when its oldest message came; None where not known."""

    path: str
    active: int | None = None
    dead_letters: int | None = None
    size: int | None = None
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """A backlog queue: its counts, and whether clients send to it in an outage."""

    path: str
    active: int | None
    dead_letters: int | None
    oldest_age: float | None
    size: int | None
    in_rotation: bool | None
    reason: str | None
    until: datetime | None
    level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogState:
    """All backlog queues. `source` is `secondary`, `syphon` (its last counts) or `none`."""

    source: str
    active: int | None
    dead_letters: int | None
    oldest_age: float | None
    queues: Sequence[QueueState]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonState:
    """A syphon, as its status file describes it, with plain texts for its problems."""

    id: str
    host: str = ""
    pid: int = 0
    updated_at: str = ""
    stalled: str | None = None
    forwarded: int = 0
    remaining: int | None = None
    in_flight: int = 0
    dead_lettered: Mapping[str, int] = field(default_factory=dict)
    oldest_age: float | None = None
    rate: float = 0.0
    allowed_rate: float | None = None
    throttled_by: str | None = None
    eta: float | None = None
    last_progress: str | None = None
    started_at: str = ""
    ledger_problem: str | None = None
    ledger_dropped_rows: int = 0
    checkpoint: str = ""
    queues: Sequence[QueueCounts] = ()
    state: str = "running"
    is_stale: bool = False
    waits_for_primary: bool = False
    next_attempt_in: float | None = None
    problem: str = ""
    waits: Sequence[str] = ()

    @property
    def name(self) -> str:
        """What messages and metrics call it."""
        return self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHealth:
    """Whether an embedded broker answers; `detail` is why not."""

    role: str
    namespace: str | None = None
    host: str
    is_up: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Messages, operations and money of one stage, or of one entity."""

    messages: int = 0
    operations: int
    amount: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost(Cost):
    """The cost of one stage."""

    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityCost(Cost):
    """The cost of one entity."""

    entity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """The cost of the operations in the ledger so far, and per hour at the present rate."""

    currency: str
    symbol: str = ""
    operations: int = 0
    total: Decimal = Decimal(0)
    per_hour: Decimal = Decimal(0)
    since: datetime | None = None
    stages: Sequence[StageCost] = ()
    entities: Sequence[EntityCost] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a pair at one time."""

    version: int = 1
    at: datetime
    pair: str
    primary_namespace: str | None
    level: str
    headline: str
    problems: Sequence[str]
    clients: Sequence[ClientState]
    entities: Sequence[EntityState]
    backlog: BacklogState
    syphons: Sequence[SyphonState]
    brokers: Sequence[BrokerHealth]
    money: Money | None
    events: Sequence[Row]

    @property
    def writers(self) -> list[ClientState | SyphonState]:
        """Clients and syphons: all that write to the ledger."""
        return [*self.clients, *self.syphons]
