"""Charts as inline SVG, so that a page loads nothing from elsewhere."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from html import escape

FORMS = (("wide", 1000, 300, 64), ("narrow", 360, 220, 44))
"""The drawings of a chart: form, width, height, and the room for labels on the left."""
RIGHT, TOP, BOTTOM = 32, 12, 34
# Half of the last time label is beyond the plot: RIGHT is its room.


def lines(
    times: Sequence[dt.datetime], series: Sequence[tuple[str, str, Sequence[float]]], label: str
) -> str:
    """Draw series over time as filled lines, for a wide and for a narrow screen.

    A drawing is scaled to the screen together with its text, which could not be read on a phone. So
    there are two, and the style sheet shows the one that fits.

    Args:
        times: when, ascending.
        series: for each a name, a CSS class that colours it, and its values.
        label: a description of the chart, for screen readers.
    """
    return "".join(_lines(times, series, label, *form) for form in FORMS)


def _lines(
    times: Sequence[dt.datetime],
    series: Sequence[tuple[str, str, Sequence[float]]],
    label: str,
    form: str,
    width: int,
    height: int,
    left: int,
) -> str:
    highest = max((max(values, default=0) for _, _, values in series), default=0)
    ticks = nice_ticks(highest)
    top = ticks[-1] or 1
    first = times[0].timestamp()
    span = max(times[-1].timestamp() - first, 1)

    def x(time: dt.datetime) -> float:
        return left + (width - left - RIGHT) * (time.timestamp() - first) / span

    def y(value: float) -> float:
        return height - BOTTOM - (height - TOP - BOTTOM) * value / top

    head = (
        f'<svg class="chart {form}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label)}" preserveAspectRatio="xMidYMid meet" '
        f'data-left="{left}" data-right="{RIGHT}" data-width="{width}">'
    )
    parts = [head]
    parts += [
        f'<line class="grid" x1="{left}" x2="{width - RIGHT}" y1="{y(tick):.1f}" '
        f'y2="{y(tick):.1f}"/><text class="tick end" x="{left - 8}" y="{y(tick) + 4:.1f}">'
        f"{short(tick)}</text>"
        for tick in ticks
    ]
    parts += [
        f'<text class="tick mid" x="{x(time):.1f}" y="{height - BOTTOM + 20}">'
        f"{escape(clock(time, span))}</text>"
        for time in time_ticks(times, 8 if form == "wide" else 4)
    ]
    for name, css, values in series:
        points = " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in zip(times, values, strict=True))
        base = f"{y(0):.1f}"
        parts.append(
            f'<polygon class="{css} area" points="{x(times[0]):.1f},{base} {points} '
            f'{x(times[-1]):.1f},{base}"/>'
            f'<polyline class="{css} line" points="{points}"><title>{escape(name)}</title>'
            "</polyline>"
        )
        if len(times) == 1:
            parts.append(
                f'<circle class="{css} dot" cx="{x(times[0]):.1f}" cy="{y(values[0]):.1f}" r="4"/>'
            )
    parts.append(f'<line class="cursor" y1="{TOP}" y2="{height - BOTTOM}" hidden="hidden"/></svg>')
    return "".join(parts)


def bars(rows: Sequence[tuple[str, float, str, str]], label: str) -> str:
    """Draw horizontal bars.

    Args:
        rows: for each a name, a value, the value as text, and a CSS class that colours the bar.
        label: a description of the chart, for screen readers.
    """
    highest = max((value for _, value, _, _ in rows), default=0) or 1
    parts = [f'<div class="bars" role="img" aria-label="{escape(label)}">']
    for name, value, text, css in rows:
        share = 100 * value / highest
        parts.append(
            f'<div class="bar" title="{escape(name)}: {escape(text)}"><span class="name">'
            f'{escape(name)}</span><span class="track"><i class="{css}" style="width:{share:.2f}%">'
            f"</i></span><b>{escape(text)}</b></div>"
        )
    return "".join(parts) + "</div>"


def nice_ticks(highest: float, count: int = 5) -> list[float]:
    """Return round numbers from 0 to at least `highest`."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / count
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough)
    if highest >= 1 and step < 1:
        step = 1
    return [step * n for n in range(math.ceil(highest / step - 1e-9) + 1)]


def time_ticks(times: Sequence[dt.datetime], count: int = 8) -> list[dt.datetime]:
    """Return a few round times within the span."""
    first, last = times[0].timestamp(), times[-1].timestamp()
    if last <= first:
        return [times[0]]
    steps = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
    days = tuple(86400 * n for n in (1, 2, 7, 14, 30, 90))
    step = next((s for s in (*steps, *days) if (last - first) / s <= count), 86400 * 365)
    start = math.ceil(first / step) * step
    return [
        dt.datetime.fromtimestamp(t, dt.UTC) for t in range(int(start), int(last) + 1, int(step))
    ]


def clock(time: dt.datetime, span: float) -> str:
    """Return a time as an axis shows it."""
    is_midnight = time.hour == 0 and time.minute == 0
    if span > 3 * 86400 or (span > 86400 / 2 and is_midnight):
        return time.strftime("%d %b")
    return time.strftime("%H:%M")


def short(value: float) -> str:
    """Return a number as an axis shows it."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{letter}"
    return f"{value:g}"
