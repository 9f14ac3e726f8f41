"""A finding of a drill: the result, why it matters, and the remedy. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LEVELS = ("ok", "warning", "critical")
"""From best to worst; the position is the exit code of the drill."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        check: The name of the check.
        level: One of `LEVELS`.
        what: The result.
        why: Why it matters; empty where the level is ok.
        remedy: What to do; empty where the level is ok.
    """

    check: str
    level: str
    what: str
    why: str = ""
    remedy: str = ""


def ok(check: str, what: str) -> Finding:
    """A check that passed."""
    return Finding(check, "ok", what)


def warning(check: str, what: str, why: str, remedy: str) -> Finding:
    """Something that will cost time, money or duplicates in an outage."""
    return Finding(check, "warning", what, why, remedy)


def critical(check: str, what: str, why: str, remedy: str) -> Finding:
    """Something that will lose messages or availability in an outage."""
    return Finding(check, "critical", what, why, remedy)


def worst(findings: Iterable[Finding]) -> str:
    """Return the worst level among the findings."""
    return max((finding.level for finding in findings), key=LEVELS.index, default="ok")
