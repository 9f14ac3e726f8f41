"""`pairbus check`: a pair against thresholds, for monitoring systems."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

from pairbus.cli.errors import LEVEL_CODES, ExitCode
from pairbus.cli.options import NOT_NEGATIVE, SPAN, duration_option, pair_options, setting
from pairbus.cli.output import emit, json_option
from pairbus.cli.tables import LEVEL_COLOURS, Table, cell
from pairbus.monitoring.checks import (
    LEVELS,
    Grades,
    Thresholds,
    check_duplicate_windows,
    check_snapshot,
    duplicate_windows,
    summarise,
    worst,
)
from pairbus.monitoring.endpoints import Pair

F = TypeVar("F", bound=Callable[..., Any])

GRADE_HELP = {
    "failed_over": "an entity is failed over",
    "no_client": "no paired client has reported",
    "unprotected": "a client cannot use the secondary",
    "stale": "a client or syphon stopped reporting without being closed",
    "no_syphon": "no syphon has reported",
    "stalled": "a syphon makes no progress while the primary is available",
    "paused": "a syphon is paused",
    "unreachable": "the ledger or the secondary cannot be read",
}


def grade_options(command: F) -> F:
    """Give a command one option for the grade of each condition."""
    for field in reversed(fields(Grades)):
        command = setting(
            "--" + field.name.replace("_", "-"),
            type=click.Choice(LEVELS),
            default=field.default,
            help=f"Result if {GRADE_HELP[field.name]}.",
        )(command)
    return command


def threshold_options(command: F) -> F:
    """Give a command one option for each threshold."""
    for name, text, unit in (
        ("backlog_warning", "Warn if the backlog has at least N messages.", "N"),
        ("backlog_critical", "Critical if the backlog has at least N messages.", "N"),
        ("age_warning", "Warn if the oldest message is at least this old.", "DURATION"),
        ("age_critical", "Critical if the oldest message is at least this old.", "DURATION"),
        ("dead_warning", "Warn if there are at least N dead letters.", "N"),
        ("dead_critical", "Critical if there are at least N dead letters.", "N"),
    )[::-1]:
        command = setting(
            "--" + name.replace("_", "-"),
            type=NOT_NEGATIVE if unit == "N" else SPAN,
            default=getattr(Thresholds(), name),
            metavar=unit,
            help=text,
        )(command)
    return command


@click.command("check")
@json_option
@pair_options
@threshold_options
@grade_options
@duration_option(
    "--outage",
    "1h",
    "Longest expected outage; warn if a duplicate-detection window of the primary is shorter.",
)
@click.option("--no-windows", is_flag=True, help="Do not check duplicate-detection windows.")
def command(pair: Pair, outage: float, no_windows: bool, **settings: Any) -> ExitCode:
    """Check a pair against thresholds, for monitoring systems.

    Checks for entities that are failed over, clients and syphons that stopped reporting, the depth
    and the oldest message of the backlog, dead letters, and duplicate-detection windows of the
    primary that are shorter than the longest expected outage (a copy that arrives after the window
    is delivered twice). If the pair cannot be read, the result is unknown, never OK.

    \b
    Exit codes:
      0  OK
      1  warning
      2  critical
      3  unknown: a check could not be made

    \b
    Example:
      pairbus check --pair orders --backlog-warning 1000 --age-critical 900
    """
    if not (pair.ledger or pair.secondary):
        pair.require_ledger()
    from pairbus.monitoring.monitor import read_snapshot

    snapshot = read_snapshot(pair)
    grades = Grades(**{field.name: settings.pop(field.name) for field in fields(Grades)})
    findings = check_snapshot(snapshot, Thresholds(**settings), grades)
    if pair.primary and not no_windows:
        failed_over = any(e.phase == "failed_over" for e in snapshot.entities)
        findings.append(
            check_duplicate_windows(pair, outage, failed_over=failed_over, read=duplicate_windows)
        )
    level = worst(findings)
    table = Table("check", "level", "detail", "what to do")
    for finding in findings:
        table.add(
            finding.check,
            cell(finding.level, LEVEL_COLOURS[finding.level]),
            finding.detail,
            finding.remedy if finding.level != "ok" else "",
        )
    emit(
        {"level": level, "findings": findings},
        [f"pairbus {level.upper()}: {summarise(snapshot, findings)}", table],
    )
    return LEVEL_CODES[level]
