"""Tables, JSON and how values are shown."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pairbus.cli.output import bar_column, emit, json_option, say, wrap
from pairbus.cli.tables import Table, cell, shorten_middle, show
from pairbus.monitoring.formatting import duration


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Row:
    path: Path
    at: dt.datetime
    wait: dt.timedelta
    money: decimal.Decimal
    colour: Colour


ROW = Row(
    Path("/a"),
    dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    dt.timedelta(seconds=90),
    decimal.Decimal("0.000001"),
    Colour.RED,
)


@click.command()
@json_option
def listing() -> None:
    table = Table("queue", ">messages")
    table.add("orders", cell(1234, "red"))
    table.add("bills/long/name", 5)
    say("two queues")
    emit([ROW], table)


def test_table_is_plain_and_aligned_when_piped():
    assert CliRunner().invoke(listing).output == (
        "two queues\n"
        "queue            messages\n"
        "orders              1,234\n"
        "bills/long/name         5\n"
    )


def test_json_is_asked_for_with_one_option_and_holds_the_data_alone():
    assert json.loads(CliRunner().invoke(listing, ["--json"]).output) == [
        {
            "path": "/a",
            "at": "2026-01-02T03:04:05+00:00",
            "wait": 90.0,
            "money": "0.000001",
            "colour": "red",
        }
    ]


def test_terminal_gets_a_drawn_table(monkeypatch):
    monkeypatch.setattr("pairbus.cli.output.is_terminal", lambda: True)
    assert "━" in CliRunner().invoke(listing).output or "─" in CliRunner().invoke(listing).output


def wide_table():
    table = Table("entity", "state", "why", ">to primary", "rotation", "seen", title="T")
    table.add(
        "contoso-production-west/x-servicebus-transfer/orders-of-the-northern-region",
        "failed over",
        "ServiceBusConnectionError: [Errno 104] Connection reset by peer while it was written",
        123_456_789,
        None,
        ROW.at,
    )
    table.add("[2001:db8::17]:5672", "healthy", None, 1, None, ROW.at)
    return table


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_table_fits_the_terminal_and_cuts_no_number_and_no_time(width):
    lines = ["".join(piece.text for piece in line) for line in wide_table().fitted(width)]
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for whole in ("123,456,789", "2026-01-02 03:04:05Z", "[2001:db8::17]:5672", "failed over"):
        assert whole in text
    assert "rotation" not in text, "a column without a value is left out"
    words = " ".join(text.split())
    if width < 80:  # as blocks
        assert "why" in words


def test_wide_terminal_shows_everything_on_one_line_per_row():
    lines = ["".join(piece.text for piece in line) for line in wide_table().fitted(300)]
    assert len(lines) == 5
    assert "…" not in "\n".join(lines)


def test_path_is_shortened_in_the_middle():
    assert shorten_middle("contoso/x-servicebus-transfer/12", 20) == "contoso…-transfer/12"
    assert shorten_middle("short/0", 20) == "short/0"


def test_empty_table_says_so():
    assert Table("a", empty="no queues").plain() == "no queues"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (45, "45s"), (200, "3m 20s"), (7500, "2h 05m"), (273600, "3d 4h")],
)
def test_durations_read_as_people_say_them(seconds, text):
    assert duration(seconds) == text


def test_values_are_shown_for_people():
    assert show(None) == "-"
    assert show(True) == "yes"
    assert show(ROW.at) == "2026-01-02 03:04:05Z"
    assert show(ROW.wait) == "1m 30s"
    assert show("SharedAccessKey=abc") == "SharedAccessKey=***"


def test_item_of_a_list_hangs_below_its_text(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert wrap("  - one two three four") == "  - one two three\n    four"


def test_progress_bar_is_not_drawn_in_the_colour_of_a_failure():
    from rich.console import Console
    from rich.progress import Progress

    for completed, total in ((None, None), (3, 9), (9, 9)):
        console = Console(force_terminal=True, color_system="standard", width=60)
        with console.capture() as drawn, Progress(bar_column(20), console=console) as bar:
            bar.add_task("", total=total, completed=completed or 0)
        assert "━" in drawn.get()
        assert "\x1b[91m" not in drawn.get(), "bright red"
        assert "\x1b[31m" not in drawn.get(), "red"
        assert "\x1b[35m" not in drawn.get(), "magenta, in which rich shows red-purple"


def test_control_characters_of_a_message_do_not_reach_the_terminal():
    table = Table("body")
    table.add("red\x1b[31m\r\nbell\x07")
    assert table.plain() == "body\nred\\x1b[31m\\r\\nbell\\x07"
