"""The report of a soak, as Markdown."""

from __future__ import annotations

from collections import Counter

from pairbus.monitoring.formatting import duration
from soak.faults import KINDS
from soak.run import Result

MOST = 20  # ids that a line names


def render(result: Result, seed: int) -> str:
    """Return the report."""
    verdict = result.verdict
    hit = Counter(one.kind for one in result.struck if one.took_effect)
    missed = Counter(one.kind for one in result.struck if not one.took_effect)
    rows = "\n".join(f"| {kind} | {hit[kind]} | {missed[kind]} |" for kind in KINDS)
    problems = "\n".join(f"- {_short(text)}" for text in result.problems) or "None."
    return f"""# Soak, seed {seed}

{"No problem was found." if not result.problems else f"{len(result.problems)} problems."}

| | |
|---|---|
| faults that took effect | {sum(hit.values())} |
| time | {duration(result.seconds)} |
| messages sent by applications | {result.messages:,} |
| confirmed | {verdict.ok:,} |
| failovers of an entity | {result.failovers:,} |
| forwarded by the syphon | {result.forwarded:,} |
| lost | {len(verdict.lost)} |
| unexpected | {len(verdict.unexpected)} |
| duplicated, at a fault | {len(verdict.duplicated) - len(verdict.undue)} |
| duplicated, without a fault | {len(verdict.undue)} |
| duplicated where duplicates are detected | {len(result.detected)} |
| recovered: not confirmed, and arrived | {len(verdict.recovered):,} |
| calls beyond their deadline | {len(verdict.late)} |

| fault | took effect | nothing to hit |
|---|---|---|
{rows}

## Problems

{problems}
"""


def _short(text: str) -> str:
    words = text.split(", ")
    return (
        text if len(words) <= MOST else ", ".join(words[:MOST]) + f" and {len(words) - MOST} more"
    )
