"""Health checks of a pair, for monitoring systems.

A check that cannot be made is never OK: a ledger that does not exist, clients that stopped
reporting, a secondary that does not answer. Each condition has a grade that can be set, and each
finding that is not OK names a remedy.

One cause is one alarm: while entities are failed over, a syphon that waits for the primary is part
of that outage and is reported as such.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pairbus.monitoring.endpoints import Pair
from pairbus.monitoring.formatting import brief, duration, one_line
from pairbus.monitoring.records import Snapshot, SyphonState
from pairbus.monitoring.snapshot import count, is_outage, unprotected
from pairbus.monitoring.timeline import age

LEVELS = ("ok", "unknown", "warning", "critical")
"""From best to worst; a check that could not be done is worse than one that passed."""


UNREADABLE = "correct its location or its access rights; until then its data are not checked"


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        check: The name of the check.
        level: One of `LEVELS`.
        detail: The result.
        remedy: What to do if the level is not ok.
    """

    check: str
    level: str
    detail: str
    remedy: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grades:
    """The level of each condition: one of `LEVELS`.

    Attributes:
        failed_over: An entity is failed over.
        no_client: No paired client has ever reported.
        unprotected: A client cannot use the secondary: its sends would fail in an outage.
        stale: All clients, or the syphon, stopped reporting without closing. While other clients
            report, a silent one is a warning at most.
        no_syphon: No syphon reports.
        stalled: A syphon makes no progress, for another reason than an outage of the primary.
        paused: A syphon is paused.
        unreachable: A source (ledger, secondary, a client's ledger) cannot be read or written.
    """

    failed_over: str = "warning"
    no_client: str = "unknown"
    unprotected: str = "warning"
    stale: str = "critical"
    no_syphon: str = "warning"
    stalled: str = "critical"
    paused: str = "warning"
    unreachable: str = "unknown"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Thresholds:
    """From which value on a figure is a warning or critical; ages are in seconds."""

    backlog_warning: float = 1
    backlog_critical: float = 100_000
    age_warning: float = 300
    age_critical: float = 3600
    dead_warning: float = 1
    dead_critical: float = 1


def worst(findings: Sequence[Finding]) -> str:
    """Return the worst level among the findings."""
    return max((finding.level for finding in findings), key=LEVELS.index, default="ok")


def summarise(snapshot: Snapshot, findings: Sequence[Finding]) -> str:
    """Return the headline; if it names no problem but a check found one, the finding.

    A source that could not be read comes first: it is often the cause of the other findings.
    """
    level = worst(findings)
    if level == "ok" or snapshot.level not in ("ok", "unknown"):
        return snapshot.headline
    blind = [f for f in findings if f.check == "source" and f.level != "ok"]
    rest = [f for f in findings if f.level == level and f not in blind]
    return "; ".join(f"{f.check}: {f.detail}" for f in [*blind, *rest])


def check_snapshot(
    snapshot: Snapshot, thresholds: Thresholds | None = None, grades: Grades | None = None
) -> list[Finding]:
    """Compare a snapshot with thresholds and grades."""
    limits, grade = thresholds or Thresholds(), grades or Grades()
    return [
        check_entities(snapshot, grade),
        *check_drains(snapshot, grade),
        *check_clients(snapshot, grade),
        *check_protection(snapshot, grade),
        *check_backlog(snapshot, limits, grade),
        *check_syphons(snapshot, grade),
        *[
            Finding("source", grade.unreachable, problem, UNREADABLE)
            for problem in snapshot.problems
        ],
    ]


def check_entities(snapshot: Snapshot, grade: Grades) -> Finding:
    """Check for entities that are failed over."""
    failed = [e.entity for e in snapshot.entities if e.phase == "failed_over"]
    if failed:
        detail = f"{count(failed, 'entity', 'entities')} failed over: {', '.join(failed)}"
        return Finding("entities", grade.failed_over, detail, "check the primary namespace")
    if not snapshot.entities:
        return Finding("entities", grade.no_client, "no client reports any", "see clients")
    return Finding("entities", "ok", f"none of {len(snapshot.entities)} failed over")


def check_drains(snapshot: Snapshot, grade: Grades) -> list[Finding]:
    """Check for fences without an answer: sends go to the backlog although the primary is back.

    A drain that makes progress is no finding.
    """
    overdue = [e for e in snapshot.entities if e.overdue_fences]
    if not overdue:
        return []
    queues = sorted({queue for e in overdue for queue in e.overdue_fences})
    names = ", ".join(e.entity for e in overdue)
    detail = f"{names} draining, no answer to the fence in {', '.join(queues)}"
    remedy = f"pairbus syphon status; to stop waiting: pairbus pair end-draining {names}"
    return [Finding("drain", grade.failed_over, detail, remedy)]


def check_clients(snapshot: Snapshot, grade: Grades) -> list[Finding]:
    """Check that paired clients report."""
    clients = [c for c in snapshot.clients if c.state == "open"]
    silent = [c for c in clients if c.is_stale]
    if not clients:
        return [
            Finding(
                "clients", grade.no_client, "no paired client reports",
                "give the client the option `ledger`, with the location that is checked here",
            )
        ]  # fmt: skip
    if not silent:
        return [Finding("clients", "ok", f"{count(clients, 'client', 'clients')} reporting")]
    ages = [age(c.updated_at, snapshot.at) for c in silent]
    latest = min((a for a in ages if a is not None), default=None)
    all_silent = len(silent) == len(clients)
    who = ", ".join(c.client_id for c in silent[:3]) + (" …" if len(silent) > 3 else "")
    detail = f"{len(silent)} of {count(clients, 'client', 'clients')} silent"
    detail += f" for {duration(latest)}: {who}" if latest is not None else f": {who}"
    level = grade.stale if all_silent else min(grade.stale, "warning", key=LEVELS.index)
    remedy = (
        "check whether they run; if one is gone for good, remove status/CLIENT.json in the ledger"
    )
    return [Finding("clients", level, detail, remedy)]


def check_protection(snapshot: Snapshot, grade: Grades) -> list[Finding]:
    """Check for clients that could not use the secondary in an outage."""
    exposed = unprotected(snapshot.clients)
    if not exposed:
        return []
    reason = brief(exposed[0].unprotected)
    detail = f"{count(exposed, 'client', 'clients')} cannot use the secondary: {reason}"
    remedy = "check that the secondary can be reached and has its backlog queues"
    return [Finding("protection", grade.unprotected, detail, remedy)]


def check_backlog(snapshot: Snapshot, limits: Thresholds, grade: Grades) -> list[Finding]:
    """Check depth, age and dead letters of the backlog."""
    backlog = snapshot.backlog
    if backlog.source == "secondary" and not backlog.queues:
        name = snapshot.primary_namespace
        detail = f"the secondary has no backlog queue of {name}"
        remedy = f"if {name} is the name of the primary: pairbus pair create"
        return [Finding("backlog", grade.unprotected, detail, remedy)]
    if backlog.active is None:
        remedy = "--secondary or PAIRBUS_SECONDARY, so that the queues can be counted"
        return [Finding("backlog", "unknown", "its depth is not known", remedy)]
    depth, oldest, dead = backlog.active, backlog.oldest_age, backlog.dead_letters
    depth_level = _compare(depth, limits.backlog_warning, limits.backlog_critical)
    age_level = _compare(oldest or 0, limits.age_warning, limits.age_critical)
    found = "no message" if not depth else f"oldest message {duration(oldest)}"
    if depth and oldest is None:
        found, age_level = "the age of the oldest message is not known", "unknown"
    drain = "pairbus syphon status"
    old = drain if oldest is not None else "the right Listen on the backlog queues is needed"
    return [
        Finding(
            "backlog", depth_level, f"{depth:,} messages", drain if depth_level != "ok" else ""
        ),
        Finding("oldest", age_level, found, old if age_level != "ok" else ""),
        _check_dead_letters(dead, limits),
    ]


def _check_dead_letters(number: int | None, limits: Thresholds) -> Finding:
    peek = "pairbus backlog peek --dead-letters"
    if number is None:
        return Finding("dead letters", "unknown", "their number is not known", peek)
    level = _compare(number, limits.dead_warning, limits.dead_critical)
    return Finding("dead letters", level, f"{number:,} dead letters", peek if number else "")


def check_syphons(snapshot: Snapshot, grade: Grades) -> list[Finding]:
    """Check that a syphon reports and makes progress."""
    is_out = is_outage(snapshot.entities, snapshot.brokers)
    living = [s for s in snapshot.syphons if s.state != "stopped"]
    if not living:
        return [Finding("syphon", grade.no_syphon, "no syphon reports", "pairbus syphon run")]
    found = [_check_syphon(syphon, grade, is_out=is_out) for syphon in living]
    remedy = "create or enable it, or make room; pairbus syphon status"
    return found + [
        Finding("destination", "warning", wait, remedy)
        for syphon in living
        if syphon.state != "silent"
        for wait in syphon.waits
    ]


def _check_syphon(syphon: SyphonState, grade: Grades, *, is_out: bool) -> Finding:
    name, state = syphon.id, syphon.state
    if state == "silent":
        detail = f"{name} stopped reporting" + (f": {syphon.problem}" if syphon.problem else "")
        return Finding("syphon", grade.stale, detail, "check whether it runs")
    if state == "paused":
        return Finding("syphon", grade.paused, f"{name} is paused", "pairbus syphon resume")
    if state == "stalled" and syphon.waits_for_primary and is_out:
        return Finding("syphon", "ok", f"{name} waits for the primary")
    if state == "stalled":
        detail = f"{name} makes no progress: {syphon.problem}"
        return Finding("syphon", grade.stalled, detail, "pairbus syphon status")
    return Finding("syphon", "ok", f"{name} is {state}")


def _compare(value: float, warning: float, critical: float) -> str:
    return "critical" if value >= critical else "warning" if value >= warning else "ok"


def check_duplicate_windows(
    pair: Pair, outage: float, *, failed_over: bool, read: Callable[[Pair], Mapping[str, float]]
) -> Finding:
    """Check for entities whose duplicate-detection window is shorter than an outage.

    Args:
        pair: the pair.
        outage: the longest expected outage, in seconds.
        failed_over: an entity is failed over, so that no answer of the primary is no finding.
        read: returns the duplicate-detection window of each entity that detects duplicates.
    """
    try:
        windows = read(pair)
    except Exception as exc:  # noqa: BLE001 - whatever the primary answers, the check goes on
        if failed_over:
            return Finding("duplicate windows", "ok", "not checked: the primary is unavailable")
        remedy = "--no-windows skips this check"
        return Finding("duplicate windows", "unknown", one_line(exc), remedy)
    short = [f"{name} ({duration(w)})" for name, w in windows.items() if w < outage]
    if not short:
        return Finding("duplicate windows", "ok", f"none shorter than {duration(outage)}")
    detail = f"shorter than an outage of {duration(outage)}: {', '.join(short)}"
    return Finding("duplicate windows", "warning", detail, "make them longer, or set --outage")


def duplicate_windows(pair: Pair) -> dict[str, float]:
    """Return the duplicate-detection windows of the primary's queues and topics, in seconds."""
    found: dict[str, float] = {}
    with pair.primary_admin() as admin:
        entities: list[Any] = [*admin.list_queues(), *admin.list_topics()]
    for entity in entities:
        window = entity.duplicate_detection_history_time_window
        if entity.requires_duplicate_detection and hasattr(window, "total_seconds"):
            found[entity.name] = window.total_seconds()
    return found
