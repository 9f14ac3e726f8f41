"""`pairbus drill`: rehearse an outage on the user's own pair."""

import logging
from typing import TYPE_CHECKING, Any

import click

from pairbus.cli.errors import LEVEL_CODES, ExitCode, exit_on_signals, fail
from pairbus.cli.options import RATE, SIZE, duration_option, pair_options, setting
from pairbus.cli.output import emit, json_option, say
from pairbus.cli.tables import LEVEL_COLOURS, Table, cell
from pairbus.monitoring.endpoints import Pair
from pairbus.monitoring.formatting import duration
from pairbus.pricing import format_amount

if TYPE_CHECKING:
    from pairbus.drill.drill import Report, Step
    from pairbus.drill.settings import Cost, Settings

VERDICTS = {
    "ok": "this pair survives an outage",
    "warning": "this pair survives an outage, with reservations: see the findings",
    "critical": "do not rely on this pair before this is corrected",
}


@click.group("drill", invoke_without_command=True)
@json_option
@pair_options
@click.option(
    "--entity",
    "entities",
    multiple=True,
    metavar="NAME",
    help="Send to this queue or topic instead of a canary queue; repeatable.",
)
@setting(
    "--messages",
    type=click.IntRange(1, 10_000),
    default=20,
    help="Messages to send before, during and after the outage.",
)
@duration_option("--outage", "1h", "Longest expected outage.")
@setting("--rate", type=RATE, default="10/s", help="Messages that your applications send: 50/s.")
@setting("--size", type=SIZE, default="1KB", help="Size of a message of your applications.")
@setting(
    "--clients",
    type=click.IntRange(1),
    default=10,
    help="Number of processes of your applications.",
)
@duration_option(
    "--failover-interval",
    "60s",
    "failover_interval of your applications; the drill itself uses a shorter one.",
)
@duration_option("--ping-interval", "60s", "ping_primary_interval of your applications.")
@setting(
    "--syphon",
    type=click.Choice(["auto", "spark", "here", "running"]),
    default="auto",
    help="Wait for a running syphon, or start one: on Spark, or here, in this process.",
)
@duration_option("--drain-timeout", "2m", "Maximum duration of the drain.")
@setting("--tier", default="standard", help="Tier of both namespaces.")
@click.option("--one-region", is_flag=True, help="Both namespaces are in one region.")
@click.option("--checks-only", is_flag=True, help="Check the pair, and skip the outage.")
@click.option("--dry-run", is_flag=True, help="Only show the steps and the cost.")
@click.pass_context
def command(ctx: click.Context, /, pair: Pair, **options: Any) -> ExitCode:
    """Rehearse an outage on your own pair, in about three minutes.

    Checks both namespaces from here: reachability, rights, backlog queues and their properties,
    duplicate-detection windows, message sizes, times to live, clocks. Then it cuts its own
    connection to the primary: nothing in Azure is disabled, and your applications are not affected.
    It sends messages to a temporary queue (canary queue) through failover and failback, lets the
    syphon drain them, compares ids, reports the time and cost of each step, and removes its queue
    and messages. After a drill that was killed, run `pairbus drill clean`.

    \b
    Exit codes:
      0  the pair is ready
      1  a warning
      2  critical: an outage would lose messages or availability
      3  the drill failed

    \b
    Examples:
      pairbus drill --pair orders --rate 50
      pairbus drill --pair orders --dry-run
    """
    if ctx.invoked_subcommand is not None:
        return ExitCode.OK
    pair.require_primary()
    pair.require_secondary()
    settings = _settings(**options)
    from pairbus.drill.drill import Drill

    try:
        drill = Drill(pair, settings, _show_step, lambda text: say(f"           {text}"))
    except ValueError as exc:
        fail(str(exc), code=ExitCode.USAGE)
    if options["dry_run"]:
        _show_plan(pair, settings)
        return ExitCode.OK
    # The steps say what happens; the library's warnings would repeat it on the standard error.
    logging.getLogger("pairbus").addHandler(logging.NullHandler())
    # As with Ctrl-C, the drill cleans up after itself.
    exit_on_signals()
    if options["checks_only"]:
        drill.check()
        report = drill.report
    else:
        report = drill.run()
    _show(report, settings)
    return LEVEL_CODES[report.verdict]


@command.command("clean")
@json_option
@pair_options
def clean(pair: Pair) -> ExitCode:
    """Remove the queues and messages that killed drills left in the pair.

    Messages of applications are not changed. Do not run it while another drill runs.

    \b
    Example:
      pairbus drill clean --pair orders
    """
    from pairbus.drill import canary

    removed = canary.clean(pair)
    lines = [f"removed {len(removed.queues)} canary queues and {removed.messages} messages"]
    emit(removed, [*lines, *(f"not removed: {text}" for text in removed.left)])
    return ExitCode.NEGATIVE if removed.left else ExitCode.OK


def _settings(**options: Any) -> "Settings":
    from pairbus.drill.settings import Expected, Settings
    from pairbus.pricing import Rules

    return Settings(
        entities=options["entities"],
        messages=options["messages"],
        user_failover_interval=options["failover_interval"],
        user_ping_interval=options["ping_interval"],
        expected=Expected(
            outage=options["outage"], rate=options["rate"], size=int(options["size"])
        ),
        clients=options["clients"],
        syphon=options["syphon"],
        drain_timeout=options["drain_timeout"],
        rules=Rules(tier=options["tier"].lower(), one_region=options["one_region"]),
    )


def _show_plan(pair: Pair, settings: "Settings") -> None:
    from pairbus.drill.settings import outlook, plan, planned, price
    from pairbus.reports.price_lists import load_prices

    prices, queues = load_prices(), pair.backlog_queue_count
    steps = plan(settings, queues)
    cost = price(planned(settings, queues).total, prices, settings.rules)
    outage = outlook(settings, queues, prices)
    emit(
        {"steps": steps, "cost": cost, "outage_cost": outage},
        [
            *(f"{number}. {step}" for number, step in enumerate(steps, 1)),
            f"The drill would cost about {_money(cost)}.",
            _outage_line(settings, outage),
        ],
    )


def _show_step(step: "Step") -> None:
    detail = f"  {step.detail}" if step.detail else ""
    say(f"{step.seconds:7.1f} s  {step.name}{detail}")


def _show(report: "Report", settings: "Settings") -> None:
    table = Table("check", "level", "what", "why it matters", "what to do", title="Findings")
    for found in report.findings:
        if found.level != "ok":
            level = cell(found.level, LEVEL_COLOURS[found.level])
            table.add(found.check, level, found.what, found.why, found.remedy)
    passed = [f"  ok  {f.check}: {f.what}" for f in report.findings if f.level == "ok"]
    parts: list[Table | str] = ["", *passed]
    if table.rows:
        parts.append(table)
    parts.append(_messages(report) if report.messages.sent else "")
    parts += [f"Your intervals: {line}." for line in report.with_your_intervals]
    if report.cost and report.outage_cost:
        parts.append(f"This drill cost about {_money(report.cost)}.")
        parts.append(_outage_line(settings, report.outage_cost))
    parts.append(f"pairbus drill {report.verdict.upper()}: {VERDICTS[report.verdict]}")
    emit(report, parts)


def _messages(report: "Report") -> Table:
    table = Table("messages", ">count")
    found = report.messages
    for name, count in (
        ("confirmed", found.sent),
        ("refused before the failover", found.failed),
        ("through the backlog", found.backlogged),
        ("lost", len(found.lost)),
        ("duplicated", len(found.duplicated)),
    ):
        table.add(name, count)
    return table


def _money(cost: "Cost") -> str:
    return f"{cost.operations:,} operations, {format_amount(cost.amount)} {cost.currency}"


def _outage_line(settings: "Settings", cost: "Cost") -> str:
    expected = settings.expected
    return (
        f"An outage of {duration(expected.outage)} at {expected.rate:g} messages a second would "
        f"add about {_money(cost)} (prices of {cost.prices_of})."
    )
