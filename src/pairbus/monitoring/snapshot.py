"""The snapshot of a pair: one document, made of the data of all sources by one function.

The live page, its `.json` twins, the stream, the metrics and `pairbus check` all show it.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from pairbus.monitoring.formatting import brief, duration
from pairbus.monitoring.records import (
    BacklogState,
    BrokerHealth,
    ClientState,
    EntityState,
    Money,
    QueueDepth,
    QueueState,
    Row,
    Snapshot,
    SyphonState,
)
from pairbus.monitoring.syphon_problems import (
    explain_stall,
    explain_waits,
    stands_still,
    waits_for_primary,
)
from pairbus.monitoring.timeline import age, merge_events
from pairbus.status import BacklogQueueStatus, Counts, EntityStatus, PairStatus
from pairbus.syphon.status_records import SyphonStatus

PHASES = ("healthy", "draining", "suspect", "failed_over")
NAMES_OF_A_CLIENT = ("primary_namespace", "primary", "secondary")
STALE_AFTER = 60.0  # a status file is rewritten every few seconds while its owner runs


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The data of all sources, at one time."""

    now: dt.datetime
    pair: str = "default"
    primary_namespace: str | None = None
    statuses: Sequence[PairStatus | SyphonStatus] = ()
    past_events: Sequence[tuple[str, Sequence[Row]]] = ()  # of clients that are gone, and syphons
    status_problem: str | None = None
    backlog: Sequence[QueueDepth] | None = None  # None: not read, or the secondary is silent
    backlog_problem: str | None = None
    money: Money | None = None
    money_problem: str | None = None
    brokers: Sequence[BrokerHealth] = ()


def assemble(facts: Facts) -> Snapshot:
    """Return the snapshot."""
    reports = [s for s in facts.statuses if isinstance(s, PairStatus)]
    clients = [read_client(s, facts.now) for s in reports]
    fresh = [s for s, c in zip(reports, clients, strict=True) if not c.is_stale]
    syphons = [read_syphon(s, facts.now) for s in facts.statuses if isinstance(s, SyphonStatus)]
    entities = merge_entities([s for s in fresh if s.state == "open"], facts.now)
    backlog = read_backlog(facts, fresh, syphons)
    problems = [p for p in (facts.status_problem, facts.backlog_problem, facts.money_problem) if p]
    writers: list[ClientState | SyphonState] = [*clients, *syphons]
    problems += [problem for writer in writers for problem in ledger_problems(writer)]
    if is_outage(entities, facts.brokers):
        syphons = [
            replace(s, waits_for_primary=True, problem="waits for the primary")
            if s.state == "stalled" and stands_still(s.stalled)  # one cause is one alarm
            else s
            for s in syphons
        ]
    level, headline = judge(entities, backlog, syphons, facts.brokers, clients)
    if problems and level == "ok":
        level, headline = "unknown", "Not everything could be checked"
    return Snapshot(
        at=facts.now,
        pair=facts.pair,
        primary_namespace=facts.primary_namespace,
        level=level,
        headline=headline,
        problems=problems,
        clients=clients,
        entities=entities,
        backlog=backlog,
        syphons=syphons,
        brokers=facts.brokers,
        money=facts.money,
        events=merge_events([*((s.client_id, s.events) for s in reports), *facts.past_events]),
    )


def read_client(status: PairStatus, now: dt.datetime) -> ClientState:
    """Return a paired client, as its status file describes it."""
    seconds = age(status.updated_at, now)
    names = {name: getattr(status, name) or None for name in NAMES_OF_A_CLIENT}
    return ClientState(
        **{**shared_fields(status, ClientState), **names},
        is_stale=status.state == "open" and (seconds is None or seconds > STALE_AFTER),
    )


def shared_fields(status: PairStatus | SyphonStatus, record: type) -> dict[str, Any]:
    """Return the values of a status that a record has under the same names."""
    shared = {field.name for field in fields(status)} & {field.name for field in fields(record)}
    return {name: getattr(status, name) for name in shared}


def unprotected(clients: Sequence[ClientState]) -> list[ClientState]:
    """Return the open clients that report that they cannot use the secondary."""
    return [c for c in clients if c.unprotected and c.state == "open" and not c.is_stale]


def ledger_problems(writer: ClientState | SyphonState) -> Iterator[str]:
    """Yield why rows of a client or syphon are not in the ledger; nothing of one that is silent."""
    if writer.ledger_problem and not writer.is_stale:
        yield f"{writer.name} cannot write its ledger: {writer.ledger_problem}"
    if writer.ledger_dropped_rows and not writer.is_stale:
        yield f"{writer.name} dropped {writer.ledger_dropped_rows:,} rows of its ledger"


def read_syphon(status: SyphonStatus, now: dt.datetime) -> SyphonState:
    """Return a syphon, as its status file describes it."""
    seconds = age(status.updated_at, now)
    state = status.state
    is_killed = state == "silent"  # see `read_statuses`
    is_old = seconds is None or seconds > STALE_AFTER
    is_stale = is_killed or (state != "stopped" and is_old)
    if is_stale or state != "running":
        # Nothing moves, so there is no rate and no remaining time.
        status = replace(status, rate=0.0, eta=None, throttled_by=None)
    until = age(status.next_attempt, now)
    next_attempt_in = None if until is None or until > 0 else -until
    shown = {**shared_fields(status, SyphonState), "state": "silent" if is_stale else state}
    return SyphonState(
        **shown,
        is_stale=is_stale,
        waits_for_primary=(
            state == "stalled" and not is_stale and waits_for_primary(status.stalled)
        ),
        next_attempt_in=next_attempt_in,
        problem=explain_stall(status.stalled, next_attempt_in) if is_killed or not is_stale else "",
        waits=explain_waits(status.waiting_for, status.waiting_counts),
    )


def merge_entities(clients: Iterable[PairStatus], now: dt.datetime) -> list[EntityState]:
    """Return one record per entity: the worst state that any of the clients has, worst first."""
    found: dict[str, list[EntityStatus]] = {}
    for client in clients:
        for entity in client.entities:
            found.setdefault(entity.entity.lower(), []).append(entity)
    merged = [_merge_entity(same, now) for same in found.values()]
    return sorted(merged, key=lambda e: (-rank(e.phase), e.entity.lower()))


def _merge_entity(same: Sequence[EntityStatus], now: dt.datetime) -> EntityState:
    worst = max(same, key=lambda entity: rank(entity.phase))
    failing = [entity for entity in same if entity.phase != "healthy"]
    overdue = [entity.drain for entity in same if entity.drain and entity.drain.is_overdue]
    since = min((entity.since for entity in failing), default=None)
    next_ping = min((e.next_ping for e in failing if e.next_ping), default=None)
    wait = age(next_ping, now)
    last_error = worst.last_error if failing else None
    if worst.phase == "draining":
        last_error = next((drain.problem for drain in overdue if drain.problem), last_error)
    names = [field.name for field in fields(Counts)]
    return EntityState(
        entity=same[0].entity,
        phase=worst.phase,
        since=since,
        seconds=age(since, now),
        last_error=last_error,
        next_ping=next_ping,
        next_ping_in=None if wait is None else max(0.0, -wait),
        forced=next((entity.forced for entity in same if entity.forced), None),
        overdue_fences=sorted({queue for drain in overdue for queue in drain.waits_for}),
        backlog_queues=sorted({e.backlog_queue for e in same if e.backlog_queue}),
        clients=len(same),
        clients_failed_over=sum(entity.phase == "failed_over" for entity in same),
        counts=Counts(**{name: sum(getattr(e.counts, name) for e in same) for name in names}),
    )


def rank(phase: str) -> int:
    """Return how bad a phase is."""
    return PHASES.index(phase) if phase in PHASES else 1


def read_backlog(
    facts: Facts, clients: Sequence[PairStatus], syphons: Sequence[SyphonState]
) -> BacklogState:
    """Return the backlog queues: from the secondary, else as a syphon last counted them."""
    rotation = {queue.path.lower(): queue for client in clients for queue in client.backlog_queues}
    newest = max(syphons, key=lambda s: s.updated_at, default=None)
    source, seen = "none", [QueueDepth(path=queue.path) for queue in rotation.values()]
    if facts.backlog is not None:
        source, seen = "secondary", list(facts.backlog)
    elif newest is not None and newest.queues:
        source, seen = (
            "syphon",
            [
                QueueDepth(path=q.path, active=q.active, dead_letters=q.dead_letters)
                for q in newest.queues
            ],
        )
    queues = [_read_queue(one, rotation.get(one.path.lower()), facts.now) for one in seen]
    ages = [q.oldest_age for q in queues if q.oldest_age is not None]
    active = _total([q.active for q in queues], source)
    if source == "syphon" and newest is not None and active and newest.oldest_age is not None:
        ages = [newest.oldest_age]
    return BacklogState(
        source=source,
        active=active,
        dead_letters=_total([q.dead_letters for q in queues], source),
        oldest_age=max(ages, default=None),
        queues=queues,
    )


def _read_queue(
    depth: QueueDepth, place: BacklogQueueStatus | None, now: dt.datetime
) -> QueueState:
    is_out = place is not None and not place.in_rotation
    return QueueState(
        path=depth.path,
        active=depth.active,
        dead_letters=depth.dead_letters,
        oldest_age=age(depth.oldest, now) if depth.active else None,
        size=depth.size,
        in_rotation=place.in_rotation if place else None,
        reason=place.reason if place else None,
        until=place.until if place else None,
        level="critical" if depth.dead_letters else "warning" if depth.active or is_out else "ok",
    )


def _total(counts: Sequence[int | None], source: str) -> int | None:
    """Return the sum of the known counts; None if none is known."""
    known = [count for count in counts if count is not None]
    is_counted = source != "none" and not counts
    return sum(known) if known or is_counted else None


def judge(
    entities: Sequence[EntityState],
    backlog: BacklogState,
    syphons: Sequence[SyphonState],
    brokers: Sequence[BrokerHealth],
    clients: Sequence[ClientState],
) -> tuple[str, str]:
    """Return the level of the pair, and one sentence that gives the reason.

    One cause is one alarm: a syphon that waits for a primary that is out is not mentioned. While it
    waits for its next attempt after the primary recovered, that is a warning.
    """
    failed = [e for e in entities if e.phase == "failed_over"]
    suspect = [e for e in entities if e.phase == "suspect"]
    draining = [e for e in entities if e.phase == "draining"]
    overdue = [e for e in draining if e.overdue_fences]
    down = [b for b in brokers if not b.is_up]
    stalled = [s for s in syphons if s.state == "stalled" and not s.waits_for_primary]
    waiting = [s for s in syphons if s.waits_for_primary]
    silent = [s for s in syphons if s.is_stale]
    parts = [f"{b.role} {b.namespace or b.host} is down" for b in down]
    if failed:
        parts.append(f"{count(failed, 'entity', 'entities')} failed over")
    if suspect:
        parts.append(f"{count(suspect, 'entity', 'entities')} failing")
    if draining:
        parts.append(f"{count(draining, 'entity', 'entities')} draining")
    if overdue:
        parts.append(f"no answer to the fence of {', '.join(e.entity for e in overdue)}")
    if backlog.active:
        parts.append(f"{backlog.active:,} in the backlog")
        if all(s.state in ("stopped", "silent") for s in syphons) and not silent:
            parts.append("no syphon reports")
        elif not failed and len(syphons) == 1 and syphons[0].eta:
            parts.append(f"drained in {duration(syphons[0].eta)}")
    if backlog.dead_letters:
        parts.append(f"{backlog.dead_letters:,} dead letters")
    if stalled:
        parts.append(f"syphon stalled: {stalled[0].problem}")
    elif waiting and not is_outage(entities, brokers):
        parts.append(f"syphon waits: {waiting[0].problem}")
    waits = [wait for s in syphons if s.state not in ("stopped", "silent") for wait in s.waits]
    if waits:
        more = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
        parts.append(f"syphon: {waits[0]}{more}")
    if exposed := unprotected(clients):
        number = count(exposed, "client", "clients")
        parts.append(f"{number} unprotected: {brief(exposed[0].unprotected)}")
    if silent_clients := [c for c in clients if c.is_stale]:
        parts.append(f"{count(silent_clients, 'client', 'clients')} silent")
    if silent:
        parts.append("syphon silent")
    if any(s.state == "paused" for s in syphons):
        parts.append("syphon paused")
    if not parts and entities and not syphons:
        parts.append("no syphon has reported")
    if failed or backlog.dead_letters or stalled:
        level = "critical"
    elif parts:
        level = "warning"
    else:
        level = "ok" if entities else "unknown"
    if not parts:
        nobody = "No paired client reports" if syphons else "Nothing has reported yet"
        parts = ["All is well" if entities else nobody]
    text = ", ".join(parts)
    return level, text[0].upper() + text[1:]


def is_outage(entities: Sequence[EntityState], brokers: Sequence[BrokerHealth]) -> bool:
    """Return whether the primary does not take messages now."""
    return any(e.phase in ("suspect", "failed_over") for e in entities) or any(
        b.role == "primary" and not b.is_up for b in brokers
    )


def count(items: Sequence[Any], one: str, many: str) -> str:
    """Return a number with its noun: 1 entity, 2 entities."""
    return f"{len(items)} {one if len(items) == 1 else many}"
