"""Tables for people, fitted to the terminal.

In a pipe a table is aligned text at its natural width, for `grep` and `awk`. On a terminal it has
to fit: columns without any value are left out, paths are shortened in the middle, other long texts
are wrapped, and numbers and times are never cut. A table that still does not fit becomes blocks,
one for each row.
"""

import dataclasses
import datetime as dt
import enum
import textwrap
from collections.abc import Sequence
from typing import Any

from pairbus.monitoring.formatting import duration, mask

GAP = "  "
PATH_WIDTH = 20  # columns to which a path is shortened, at least
TEXT_WIDTH = 24  # columns to which a long text is wrapped, at least
HEADING = "bold"
LEVEL_COLOURS = {
    "ok": "green", "warning": "yellow", "critical": "bold red", "unknown": "magenta",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and whether its cells are right-aligned numbers."""

    name: str
    right: bool = False


@dataclasses.dataclass(frozen=True)
class Cell:
    """A text with a colour (a rich style) for terminals."""

    text: str
    style: str = ""


def cell(value: Any, style: str = "") -> Cell:
    """Return a value as it is shown to people, in a colour where there are colours."""
    return Cell(show(value), style)


class Table:
    """Rows for people: columns by name, cells of any value.

    Args:
        columns: The headings; ">" before one right-aligns its cells, which are numbers.
        title: A line above the table.
        empty: What is shown instead of a table without rows.
    """

    def __init__(self, *columns: str, title: str = "", empty: str = "nothing") -> None:
        self.columns = [Column(name.removeprefix(">"), name.startswith(">")) for name in columns]
        self.title = title
        self.empty = empty
        self.rows: list[list[Cell]] = []

    def add(self, *values: Any) -> None:
        """Add a row; a value is a `cell(…)` or anything that can be shown."""
        self.rows.append([v if isinstance(v, Cell) else cell(v) for v in values])

    def plain(self) -> str:
        """Return the table as aligned text at its natural width, headings first."""
        if not self.rows:
            return self.empty
        head = [Cell(column.name) for column in self.columns]
        lines = [head, *self.rows]
        widths = [max(len(line[i].text) for line in lines) for i in range(len(self.columns))]
        return "\n".join(
            GAP.join(
                text.text.rjust(width) if column.right else text.text.ljust(width)
                for text, width, column in zip(line, widths, self.columns, strict=True)
            ).rstrip()
            for line in lines
        )

    def fitted(self, width: int) -> list[list[Cell]]:
        """Return the lines of the table for a terminal of this width, each as styled pieces."""
        used = [
            i for i in range(len(self.columns)) if any(row[i].text.strip("-") for row in self.rows)
        ]
        columns = [self.columns[i] for i in used]
        rows = [[row[i] for i in used] for row in self.rows]
        widths = _fit(columns, rows, width)
        title = [[Cell(self.title, HEADING)]] if self.title else []
        if widths is None:
            return title + _blocks(columns, rows, width)
        rule = "─" * (sum(widths) + len(GAP) * (len(widths) - 1))
        head = _line([Cell(c.name, HEADING) for c in columns], widths, columns)
        lines = [*title, head, [Cell(rule, "dim")]]
        for row in rows:
            parts = [_wrapped(c, w) for c, w in zip(row, widths, strict=True)]
            for number in range(max(map(len, parts))):
                pieces = [part[number] if number < len(part) else Cell("") for part in parts]
                lines.append(_line(pieces, widths, columns))
        return lines

    def rich(self, width: int) -> Any:
        """Return the table for a terminal of this width as a rich renderable."""
        from rich.text import Text

        lines = [
            Text.assemble(*[(piece.text, piece.style) for piece in line])
            for line in self.fitted(width)
        ]
        return Text("\n").join(lines)


def _fit(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> list[int] | None:
    """Return the widths of the columns; None if they do not fit."""
    widths = [
        max(len(column.name), *(len(row[i].text) for row in rows))
        for i, column in enumerate(columns)
    ]
    floors = [
        w if column.right else min(w, _floor([row[i].text for row in rows], len(column.name)))
        for i, (column, w) in enumerate(zip(columns, widths, strict=True))
    ]
    excess = sum(widths) + len(GAP) * (len(columns) - 1) - width
    while excess > 0:
        room = [w - floor for w, floor in zip(widths, floors, strict=True)]
        widest = max(range(len(widths)), key=lambda i: (room[i] > 0, widths[i]))
        if room[widest] <= 0:
            return None
        widths[widest] -= 1
        excess -= 1
    return widths


def _floor(texts: Sequence[str], heading: int) -> int:
    """Return how narrow a column of texts may become."""
    longest = max(map(len, texts))
    if all(_is_path(text) for text in texts if text.strip("-")):
        return max(heading, min(longest, PATH_WIDTH))
    return max(heading, min(longest, TEXT_WIDTH))


def _is_path(text: str) -> bool:
    return "/" in text and " " not in text


def shorten_middle(text: str, width: int) -> str:
    """Return a text of at most `width` characters, its middle replaced by an ellipsis."""
    if len(text) <= width:
        return text
    tail = (width - 1) * 2 // 3  # the end of a path identifies it better than its beginning
    return text[: width - 1 - tail] + "…" + text[len(text) - tail :]


def _wrapped(found: Cell, width: int) -> list[Cell]:
    if len(found.text) <= width:
        return [found]
    if _is_path(found.text):
        return [Cell(shorten_middle(found.text, width), found.style)]
    return [Cell(line, found.style) for line in textwrap.wrap(found.text, width)]


def _line(pieces: Sequence[Cell], widths: Sequence[int], columns: Sequence[Column]) -> list[Cell]:
    line: list[Cell] = []
    for piece, width, column in zip(pieces, widths, columns, strict=True):
        space = " " * (width - len(piece.text))
        line += [Cell(space), piece] if column.right else [piece, Cell(space)]
        line.append(Cell(GAP))
    while line and not line[-1].text.strip():
        line.pop()
    return line


def _blocks(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int
) -> list[list[Cell]]:
    """Return each row as a block: its first cell, and below it a line for each other cell."""
    names = max((len(column.name) for column in columns[1:]), default=0)
    room = max(10, width - names - 2 * len(GAP))
    lines: list[list[Cell]] = []
    for row in rows:
        lines.append([Cell(shorten_middle(row[0].text, width), row[0].style or HEADING)])
        for column, found in zip(columns[1:], row[1:], strict=True):
            if not found.text.strip("-"):
                continue
            for number, piece in enumerate(_wrapped(found, room)):
                name = column.name if number == 0 else ""
                lines.append([Cell(GAP + name.ljust(names) + GAP, "dim"), piece])
    return lines


def show(value: Any) -> str:
    """Return a value as people read it: times in UTC, durations as 3m 20s, None as -."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case dt.datetime():
            utc = value.astimezone(dt.UTC) if value.tzinfo else value
            return utc.strftime("%Y-%m-%d %H:%M:%SZ")
        case dt.timedelta():
            return duration(value.total_seconds())
        case float():
            return f"{value:,.1f}"
        case int():
            return f"{value:,}"
        case enum.Enum():
            return str(value.value)
        case _:
            # Ids and bodies are foreign text: no control character of theirs reaches the terminal.
            return "".join(c if c.isprintable() else repr(c)[1:-1] for c in mask(str(value)))
