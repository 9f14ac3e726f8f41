"""Findings and words that several rules of the drill share. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from pairbus.drill.facts import Kind, Problem, Side
from pairbus.drill.findings import Finding, critical
from pairbus.monitoring.formatting import duration

MANY = 3  # entities that a finding names


def refused_key(side: Side, problem: Problem) -> Finding:
    """A namespace that refuses the key or token."""
    if side.expired_at is not None:
        when = datetime.fromtimestamp(side.expired_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return critical(
            f"{side.role} credentials",
            f"{side.role}: the shared access signature expired at {when}",
            f"every use of the {side.role} is refused",
            "issue a new signature, or use a key or a token credential: neither expires by itself",
        )
    return critical(
        f"{side.role} credentials",
        f"{side.role}: the key or token is refused ({problem.text})",
        f"every use of the {side.role} is refused",
        "check whether the key was regenerated or has expired, and update the connection string",
    )


def throttled(role: str, text: str) -> Finding:
    """A namespace that answers server-busy."""
    return critical(
        "throttling",
        f"{role}: the namespace is being throttled ({text})",
        "live sends are refused, and a drain after an outage adds to the load"
        if role == "primary"
        else "in an outage its senders would wait, and fail at their deadline",
        "find out what uses up its operations a second, spread the load, or use the Premium tier",
    )


def lacks_right(role: str, right: str, names: str, why: str) -> Finding:
    """Credentials without a right."""
    return critical(
        f"{role} rights",
        f"{role}: the credentials lack the right {right} on {names}",
        why,
        f"give the rule or identity the right {right}",
    )


def kind_of(problem: Problem | None) -> Kind | None:
    """Return the kind of a problem, if there is one."""
    return None if problem is None else problem.kind


def merge(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Report the same problem of many entities once, with the number of the others."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.check, finding.why, finding.remedy), []).append(finding)
    for group in groups.values():
        first = group[0]
        more = f" (and {len(group) - 1} more)" if len(group) > 1 else ""
        yield Finding(first.check, first.level, first.what + more, first.why, first.remedy)


def join_some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(names[:MANY])
    return shown if len(names) <= MANY else f"{shown} and {len(names) - MANY} more"


def time_of(span: timedelta) -> str:
    """Return a time span as people read it."""
    return duration(span.total_seconds())


def megabytes(size: int) -> str:
    """Return bytes as megabytes."""
    return f"{size / 1024 / 1024:,.0f} MB"
