"""The report's page: one file, nothing from anywhere, and the right figures in it."""

import datetime as dt
import re
from decimal import Decimal

import pytest

from pairbus.pricing import Rules
from pairbus.reports import charts
from pairbus.reports.cost_page import render

pytest.importorskip("pyspark")


def line(*name, operations=10, money="0.5", messages=10):
    from pairbus.reports.cost_report import Line

    return Line(
        name=name, calls=1, messages=messages, bytes=1024, operations=operations,
        operations_low=operations // 2, money=Decimal(money), money_low=Decimal(money) / 2,
        transfer_bytes=0, transfer_money=Decimal(0), rows=1,
    )  # fmt: skip


def report(**changes):
    from pairbus.reports.cost_report import CostReport

    start = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    minute = dt.timedelta(minutes=1)
    values = {
        "locations": ("/ledger/<b>",),
        "start": start,
        "end": start + 60 * minute,
        "currency": "USD",
        "prices_of": "2024-06-01",
        "prices_file": "2024-06.toml",
        "rules": Rules(),
        "total": line("total", operations=1234),
        "anyway": line("anyway"),
        "extra": line("extra"),
        "derived": line("derived"),
        "by_stage": (line("send_primary", "", ""), line("settle", "derived", "")),
        "by_entity": (
            line("contoso", "orders & <script>alert(1)</script>"),
            line("contoso-dr", "contoso/x-servicebus-transfer/7"),
        ),
        "by_hour": (line("2026-03-01T12:00:00+00:00"),),
        "by_client": (line("app"),),
        "timeline_unit": "minute",
        "timeline": ((start, 5, 0, 0, 0), (start + 3 * minute, 0, 7, 2, 1)),
        "notes": ("missing: 3 rows",),
    }
    return CostReport(**{**values, **changes})


def test_a_page_needs_nothing_from_anywhere():
    page = render(report())
    assert not re.search(r"(src|href)\s*=", page)
    assert "http" not in page.replace("http-equiv", "")
    assert "default-src 'none'" in page


def test_names_are_text_and_never_markup():
    page = render(report())
    assert "<script>alert" not in page
    assert "orders &amp; &lt;script&gt;" in page
    assert "/ledger/&lt;b&gt;" in page


def test_pings_that_were_not_taken_are_in_the_headline():
    from pairbus.reports.cost_report import _timeline

    at = "2026-03-01T12:00:00+00:00"
    (point,) = _timeline([line(at, "ping", "", messages=0), line(at, "send_primary", "")])
    assert point[1:] == (10, 0, 0, 1)


def test_small_entities_are_one_bar():
    small = [line("contoso", f"tiny-{n}", money="0.000002") for n in range(3)]
    page = render(report(by_entity=(line("contoso", "orders"), *small)))
    bars = page[page.index("Money by entity") : page.index("By stage")]
    assert "other (3)" in bars
    assert "tiny" not in bars


def test_the_figures_are_on_the_page():
    page = render(report())
    assert "1,234" in page
    assert "0.50 USD" in page
    assert "missing: 3 rows" in page
    assert "backlog 7 of contoso" in page
    assert "2024-06-01" in page


def test_minutes_without_rows_are_shown_as_nothing():
    page = render(report())
    assert '"values": [[5, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 7, 2, 1]]' in page


def test_an_empty_ledger_has_a_page_too():
    page = render(report(timeline=(), by_hour=(), by_stage=(), by_entity=(), by_client=()))
    assert "Nothing was sent" in page


@pytest.mark.parametrize(
    ("highest", "ticks"),
    [
        (0, [0, 1]),
        (3, [0, 1, 2, 3]),
        (0.4, [0, 0.1, 0.2, 0.30000000000000004, 0.4]),
        (950, [0, 200, 400, 600, 800, 1000]),
        (6000, [0, 2000, 4000, 6000]),
    ],
)
def test_ticks_are_round_numbers_that_reach_the_top(highest, ticks):
    assert charts.nice_ticks(highest) == ticks


def test_the_last_time_of_a_chart_is_not_cut_off():
    times = [dt.datetime(2026, 3, 1, 12, minute, tzinfo=dt.UTC) for minute in range(4)]
    drawn = charts.lines(times, [("sent", "a", [1.0, 2.0, 3.0, 4.0])], "sends")
    wide, narrow = drawn.split("</svg>")[:2]
    for part, (_, width, *_) in zip((wide, narrow), charts.FORMS, strict=True):
        centres = [float(x) for x in re.findall(r'class="tick mid" x="([0-9.]+)"', part)]
        assert max(centres) + 20 <= width  # half of 00:00 at the size of the ticks


def test_a_chart_of_one_moment_shows_a_dot():
    moment = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    assert "<circle" in charts.lines([moment], [("a", "primary", [3])], "one")
