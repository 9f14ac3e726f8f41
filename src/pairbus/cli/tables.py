"""Tables for people: drawn with rich on a terminal, aligned columns in a pipe."""

import dataclasses
import datetime as dt
import enum
from typing import Any

from pairbus.monitoring.formatting import duration, mask


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and whether its cells are right-aligned."""

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
    """Rows for people: columns by name, cells of any value."""

    def __init__(self, *columns: str | Column, title: str = "", empty: str = "nothing") -> None:
        self.columns = [c if isinstance(c, Column) else Column(c) for c in columns]
        self.title = title
        self.empty = empty
        self.rows: list[list[Cell]] = []

    def add(self, *values: Any) -> None:
        """Add a row; a value is a `cell(…)` or anything that can be shown."""
        self.rows.append([v if isinstance(v, Cell) else cell(v) for v in values])

    def plain(self) -> str:
        """Return the table as aligned text, headings first."""
        if not self.rows:
            return self.empty
        lines = [[c.name for c in self.columns]] + [[c.text for c in row] for row in self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        return "\n".join(
            "  ".join(
                text.rjust(width) if column.right else text.ljust(width)
                for text, width, column in zip(line, widths, self.columns, strict=True)
            ).rstrip()
            for line in lines
        )

    def rich(self) -> Any:
        """Return the table as a rich renderable."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=self.title or None, box=SIMPLE_HEAD, title_justify="left")
        for column in self.columns:
            table.add_column(column.name, justify="right" if column.right else "left")
        for row in self.rows:
            table.add_row(*[Text(c.text, style=c.style) for c in row])
        return table


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
            return mask(str(value))
