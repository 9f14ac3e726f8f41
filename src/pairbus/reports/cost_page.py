"""The cost report as one self-contained HTML page."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from pairbus.names import describe_entity
from pairbus.pricing import STAGE_NAMES, format_amount, format_size
from pairbus.reports import charts

if TYPE_CHECKING:
    from pairbus.reports.cost_report import CostReport, Line

SERIES = (
    ("Sent to primary (drained included)", "primary"),
    ("Sent to backlog", "backlog"),
    ("Drained", "drained"),
)
MAX_POINTS = 3000
MOST_ENTITIES = 15
SMALLEST_SHARE = Decimal("0.02")
"""Entities below this share of the total are folded into one bar."""

RECEIVES = (
    "Receives can exceed messages: a message over 64 KB is several operations, and one whose lock "
    "was lost is received again."
)
DERIVED = (
    "Derived: the application's own receives and settlements on the primary, one of each for every "
    "forwarded message and subscription. Everything else was recorded."
)
LOW = (
    "Low: the cheaper reading of three uncertain rules. Polls that end empty are free, and so are "
    "pings that the primary did not take; a batch counts by its whole size."
)


def render(report: CostReport) -> str:
    """Return the page."""
    folder = resources.files("pairbus.reports") / "assets"
    style = (folder / "report.css").read_text(encoding="utf-8")
    script = (folder / "report.js").read_text(encoding="utf-8")
    span = f"{_when(report.start)} – {_when(report.end)}"
    body = "".join(
        [
            _header(report, span),
            _cards(report),
            _timeline(report),
            '<div class="pair">',
            _stages(report),
            _entities(report),
            "</div>",
            _table("By stage", "stage", [(_stage_name(x), x) for x in report.by_stage], report),
            _table(
                "By entity",
                "entity",
                [(_entity(x), x) for x in report.by_entity],
                report,
            ),
            _table("By hour", "hour (UTC)", [(_hour(x), x) for x in report.by_hour], report),
            _table("By client", "client", [(x.name[0], x) for x in report.by_client], report),
            _footer(report),
        ]
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>What pairing cost, {escape(span)}</title><style>{style}</style></head>"
        f"<body><main>{body}</main><script>{script}</script></body></html>\n"
    )


def _header(report: CostReport, span: str) -> str:
    places = ", ".join(report.locations)
    return (
        '<header><div><h1>What pairing cost</h1><p class="muted">'
        f"{escape(span)} · {escape(places)}</p></div>"
        '<button id="theme" type="button" aria-label="Switch between light and dark">◐</button>'
        "</header>"
    )


def _cards(report: CostReport) -> str:
    extra = report.extra
    cards = [
        (money(report.total.spent, report.currency), "spent in all"),
        (money(extra.spent, report.currency), "added by the outage"),
        (f"{report.total.operations:,}", "billable operations"),
        (f"{extra.operations:,}", "operations added by the outage"),
        (format_size(report.total.transfer_bytes), "left a region"),
    ]
    items = "".join(f"<li><b>{escape(v)}</b><span>{escape(t)}</span></li>" for v, t in cards)
    return f'<ul class="cards">{items}</ul>'


def _timeline(report: CostReport) -> str:
    if not report.timeline:
        return '<section><h2>Timeline</h2><p class="muted">Nothing was sent.</p></section>'
    step = dt.timedelta(minutes=1) if report.timeline_unit == "minute" else dt.timedelta(hours=1)
    known = {point[0]: point[1:] for point in report.timeline}
    first, last = report.timeline[0][0], report.timeline[-1][0]
    count = int((last - first) / step) + 1
    times = (
        [first + step * n for n in range(count)] if count <= MAX_POINTS else sorted(known)
    )  # a time without a row is a time in which nothing happened
    values = [known.get(time, (0, 0, 0, 0)) for time in times]
    series = [(name, css, [v[n] for v in values]) for n, (name, css) in enumerate(SERIES)]
    pings = sum(v[3] for v in values)
    label = f"Messages each {report.timeline_unit}: sent to primary, sent to backlog, drained"
    legend = "".join(f'<span><i class="{css}"></i>{escape(name)}</span>' for name, css in SERIES)
    data = json.dumps(
        {
            "times": [int(t.timestamp()) for t in times],
            "names": [name for name, _ in SERIES] + ["Pings"],
            "values": [list(v) for v in values],
        }
    ).replace("<", "\\u003c")
    return (
        f"<section><h2>Messages each {report.timeline_unit}, and {pings:,} pings</h2>"
        f'<div class="legend">{legend}</div><div class="plot">'
        f'{charts.lines(times, series, label)}<div class="tip" hidden></div></div>'
        f'<script type="application/json" id="timeline">{data}</script></section>'
    )


def _stages(report: CostReport) -> str:
    rows = [
        (_stage_name(line), line.operations, f"{line.operations:,}", _stage_colour(line))
        for line in report.by_stage
    ]
    legend = (
        '<div class="legend"><span><i class="extra"></i>added by the outage</span>'
        '<span><i class="usual"></i>spent anyway</span></div>'
    )
    return (
        f"<section><h2>Operations by stage</h2>{legend}"
        f"{charts.bars(rows, 'Billable operations by stage')}</section>"
    )


def _entities(report: CostReport) -> str:
    least = report.total.spent * SMALLEST_SHARE
    large = [line for line in report.by_entity[:MOST_ENTITIES] if line.spent >= least]
    rows = [
        (
            describe_entity(*line.name),
            float(line.spent),
            money(line.spent, report.currency),
            "spent",
        )
        for line in large
    ]
    if rest := report.by_entity[len(large) :]:
        spent = sum((line.spent for line in rest), Decimal(0))
        name = f"other ({len(rest):,})"
        rows.append((name, float(spent), money(spent, report.currency), "spent"))
    return f"<section><h2>Money by entity</h2>{charts.bars(rows, 'Money by entity')}</section>"


def _table(title: str, head: str, rows: list[tuple[str, Line]], report: CostReport) -> str:
    columns = ("messages", "calls", "operations", "low", report.currency, "low", "transfer")
    heads = "".join(f"<th>{escape(c)}</th>" for c in columns)
    lines = [
        f"<tr><td>{escape(name)}</td><td>{x.messages:,}</td><td>{x.calls:,}</td>"
        f"<td>{x.operations:,}</td><td>{x.operations_low:,}</td><td>{format_amount(x.money)}</td>"
        f"<td>{format_amount(x.money_low)}</td><td>{format_amount(x.transfer_money)}</td></tr>"
        for name, x in [*rows, ("in all", report.total)]
    ]
    return (
        f"<details><summary>{escape(title)} <span>{len(rows):,}</span></summary>"
        f'<div class="scroll"><table><thead><tr><th>{escape(head)}</th>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div></details>"
    )


def _footer(report: CostReport) -> str:
    rules = report.rules
    region = "one region" if rules.one_region else "two regions"
    month = f"after {rules.month_operations:,} other operations in the month"
    lines = [
        f"Prices of {report.prices_of} ({report.prices_file}), {rules.tier} tier, {region}.",
        f"The prices are those {month}.",
        DERIVED,
        RECEIVES,
        LOW,
        *report.notes,
    ]
    return "<footer>" + "".join(f"<p>{escape(line)}</p>" for line in lines) + "</footer>"


def _entity(line: Line) -> str:
    return describe_entity(*line.name)


def _stage_name(line: Line) -> str:
    return STAGE_NAMES[line.name[0]].capitalize() + (" (derived)" if line.name[1] else "")


def _stage_colour(line: Line) -> str:
    return "extra" if line.name[2] else "usual"


def _hour(line: Line) -> str:
    return line.name[0][:16].replace("T", " ")


def _when(moment: dt.datetime | None) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M UTC") if moment else "?"


def money(amount: Decimal, currency: str) -> str:
    """Return money as a person reads it."""
    return f"{format_amount(amount)} {currency}"
