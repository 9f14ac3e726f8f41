"""`pairbus check`: a pair against thresholds, for monitors."""

import dataclasses
from typing import Any

import click

from pairbus.cli.output import ExitCode, Table, cell, duration, emit, json_option, one_line
from pairbus.monitoring.configuration import Pair, pair_options

LEVELS = ("ok", "warning", "critical", "unknown")
COLOURS = {"ok": "green", "warning": "yellow", "critical": "bold red", "unknown": "magenta"}


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


@click.command("check")
@json_option
@pair_options
@click.option("--backlog-warning", default=1.0, show_default=True, metavar="N",
              help="Messages in the backlog from which on it is a warning.")  # fmt: skip
@click.option("--backlog-critical", default=100_000.0, show_default=True, metavar="N",
              help="Messages in the backlog from which on it is critical.")  # fmt: skip
@click.option("--age-warning", default=300.0, show_default=True, metavar="SECONDS",
              help="Age of the oldest message: a warning.")  # fmt: skip
@click.option("--age-critical", default=3600.0, show_default=True, metavar="SECONDS",
              help="Age of the oldest message: critical.")  # fmt: skip
@click.option("--dead-warning", default=1.0, show_default=True, metavar="N",
              help="Dead letters: a warning.")  # fmt: skip
@click.option("--dead-critical", default=1.0, show_default=True, metavar="N",
              help="Dead letters: critical.")  # fmt: skip
@click.option("--failed-over", type=click.Choice(["ok", "warning", "critical"]), default="warning",
              show_default=True, help="What an entity that is failed over counts as.")  # fmt: skip
@click.option("--outage", default=3600.0, show_default=True, metavar="SECONDS",
              help="The outage to expect; shorter duplicate windows are a warning.")  # fmt: skip
@click.option("--no-windows", is_flag=True, help="Do not ask the primary for its windows.")
def command(pair: Pair, failed_over: str, outage: float, no_windows: bool, **limits: float) -> None:
    """Compare a pair with thresholds, for monitors.

    Looks at entities that are failed over, the depth and the oldest message of the backlog, dead
    letters, stalled syphons, and duplicate-detection windows in the primary that are shorter than
    the outage to expect (copies that come later are delivered twice).

    \b
    Exit codes:
      0  all is well
      1  a warning
      2  critical
      3  unknown: a source did not answer

    \b
    Example:
      pairbus check --pair orders --backlog-warning 1000 --age-critical 900
    """
    if not (pair.ledger or pair.secondary):
        pair.require_ledger()
    from pairbus.monitoring.board import Board

    board = Board(pair)
    try:
        snapshot = board.refresh()
    finally:
        board.close()
    findings = judge(snapshot, limits, failed_over=failed_over)
    if pair.primary and not no_windows:
        try:
            findings += duplicate_windows(pair, outage)
        except Exception as exc:  # noqa: BLE001 - the primary may be down: that is when we are asked
            findings.append(Finding("duplicate windows", "unknown", one_line(exc)))
    level = worst(findings)
    table = Table("check", "level", "detail")
    for finding in findings:
        table.add(finding.check, cell(finding.level, COLOURS[finding.level]), finding.detail)
    emit(
        {"level": level, "findings": findings},
        [f"pairbus {level.upper()}: {snapshot['headline']}", table],
    )
    codes = {"ok": ExitCode.OK, "warning": ExitCode.NEGATIVE, "critical": ExitCode.CRITICAL}
    code = codes.get(level, ExitCode.ERROR)
    if code:
        raise click.exceptions.Exit(code)
