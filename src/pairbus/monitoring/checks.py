"""Checks of a pair against thresholds, for monitors."""

import dataclasses
from typing import Any

from pairbus.monitoring.endpoints import Pair
from pairbus.monitoring.formatting import duration


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was compared with its thresholds."""

    check: str
    level: str
    detail: str


def compare(value: float, warning: float, critical: float) -> str:
    """The level of a value: from `critical` on critical, from `warning` on a warning."""
    return "critical" if value >= critical else "warning" if value >= warning else "ok"


def judge(snapshot: dict[str, Any], limits: dict[str, float], *, failed_over: str) -> list[Finding]:
    """Compare a snapshot with the thresholds."""
    findings = []
    failed = [e["entity"] for e in snapshot["entities"] if e["phase"] == "failed_over"]
    detail = f"{len(failed)} failed over" + (f": {', '.join(failed)}" if failed else "")
    findings.append(Finding("entities", failed_over if failed else "ok", detail))
    backlog = snapshot["backlog"]
    if backlog["active"] is None:
        findings.append(Finding("backlog", "unknown", "nobody knows its depth"))
    else:
        level = compare(backlog["active"], limits["backlog_warning"], limits["backlog_critical"])
        findings.append(Finding("backlog", level, f"{backlog['active']:,} messages"))
    oldest = backlog["oldest_age"]
    level = compare(oldest or 0, limits["age_warning"], limits["age_critical"])
    detail = "nothing waits" if oldest is None else f"oldest message {duration(oldest)}"
    findings.append(Finding("oldest", level, detail))
    dead = backlog["dead_letters"]
    level = compare(dead, limits["dead_warning"], limits["dead_critical"])
    findings.append(Finding("dead letters", level, f"{dead:,} dead letters"))
    for s in snapshot["syphons"]:
        level = {"stalled": "critical", "silent": "warning", "paused": "warning"}.get(
            s["state"], "ok"
        )
        why = f": {s['stalled']}" if s["stalled"] else ""
        findings.append(Finding("syphon", level, f"{s['id']} is {s['state']}{why}"))
    findings += [Finding("source", "unknown", problem) for problem in snapshot["problems"]]
    return findings


def duplicate_windows(pair: Pair, outage: float) -> list[Finding]:
    """Entities of the primary whose duplicate detection forgets before an outage would end."""
    short = []
    with pair.primary_admin() as admin:
        entities: list[Any] = [*admin.list_queues(), *admin.list_topics()]
        for entity in entities:
            window = entity.duplicate_detection_history_time_window
            if entity.requires_duplicate_detection and window is not None:
                seconds = window.total_seconds() if hasattr(window, "total_seconds") else 0
                if seconds < outage:
                    short.append(f"{entity.name} ({duration(seconds)})")
    detail = f"shorter than an outage of {duration(outage)}: {', '.join(short)}"
    if not short:
        return [Finding("duplicate windows", "ok", f"none shorter than {duration(outage)}")]
    return [Finding("duplicate windows", "warning", detail)]


def worst(findings: list[Finding]) -> str:
    """The level of all: critical, else warning, else unknown, else ok."""
    found = {finding.level for finding in findings}
    return next((level for level in ("critical", "warning", "unknown") if level in found), "ok")
