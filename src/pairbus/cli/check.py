"""`pairbus check`: a pair against thresholds, for monitors."""

import click

from pairbus.cli.errors import ExitCode
from pairbus.cli.options import pair_options
from pairbus.cli.output import emit, json_option
from pairbus.cli.tables import Table, cell
from pairbus.monitoring.endpoints import Pair
from pairbus.monitoring.formatting import one_line

COLOURS = {"ok": "green", "warning": "yellow", "critical": "bold red", "unknown": "magenta"}


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
    from pairbus.monitoring.checks import Finding, duplicate_windows, judge, worst
    from pairbus.monitoring.monitor import PairMonitor

    monitor = PairMonitor(pair)
    try:
        snapshot = monitor.refresh()
    finally:
        monitor.close()
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
