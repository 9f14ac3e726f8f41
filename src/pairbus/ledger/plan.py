"""Decides which files of a ledger to read, from their footers alone.

Rows can be repeated: in a copied file, or after a compaction that crashed. The footer of each file
lists its rows by writer and number. If all rows of a file are also in other files, it is not read.
If only some are, the rows of these files are compared one by one. A gap in the numbers of a writer
shows that rows are missing, and from which time.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pairbus.ledger import files
from pairbus.ledger.files import Ranges
from pairbus.ledger.store import Store

TIME_COLUMN = {"operations": "minute", "messages": "at"}


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file by its name in its ledger, and its footer; `ranges` is None if that has none."""

    name: str
    rows: int
    ranges: Ranges | None
    earliest: dt.datetime | None
    latest: dt.datetime | None
    location: str = ""


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows that a writer numbered and that no file holds."""

    table: str
    writer: str
    first: int
    last: int
    after: dt.datetime | None
    before: dt.datetime | None

    @property
    def rows(self) -> int:
        """How many rows are missing."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        span = f"{self.after or 'the start'} and {self.before or 'the end'}"
        return f"{self.rows} {self.table} row(s) of {self.writer} between {span}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The files to read: `single` ones share no row; rows of `overlapping` ones may repeat."""

    table: str
    single: tuple[FileFacts, ...] = ()
    overlapping: tuple[FileFacts, ...] = ()
    repeats: tuple[FileFacts, ...] = ()
    unreadable: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()

    @property
    def rows(self) -> int:
        """Rows in the files to be read, repeats among the overlapping ones included."""
        return sum(f.rows for f in (*self.single, *self.overlapping))


def plan(stores: Store | Sequence[Store], table: str) -> Plan:
    """Read every footer of a table, in one ledger or in several that may overlap."""
    facts: list[FileFacts] = []
    unreadable: list[str] = []
    for store in [stores] if isinstance(stores, Store) else stores:
        read = partial(_read_footer, store, table)
        found = files.read_each(store, table, read, missing=lambda _name: None)
        facts += [f for f in found.values() if f is not None]
        unreadable += [store.path(name) for name, f in found.items() if f is None]
    return arrange(table, facts, unreadable)


def arrange(table: str, facts: Iterable[FileFacts], unreadable: Iterable[str] = ()) -> Plan:
    """Sort files by whether none, some or all of their rows are in other files too."""
    known = [f for f in facts if f.rows]
    unranged = [f for f in known if f.ranges is None]
    # larger files first: the output of a compaction makes its input files superfluous
    ranged = sorted((f for f in known if f.ranges is not None), key=lambda f: (-f.rows, f.name))
    taken: dict[str, list[tuple[int, int]]] = {}
    kept: list[FileFacts] = []
    repeats: list[FileFacts] = []
    for file in ranged:
        ranges = file.ranges or {}
        if all(_covered(taken.get(w, []), spans) for w, spans in ranges.items()):
            repeats.append(file)
            continue
        kept.append(file)
        for writer, spans in ranges.items():
            taken[writer] = files.merge([*taken.get(writer, []), *spans])
    clashing, gaps = _sweep(table, kept)
    if unranged:  # a file without ranges may repeat rows of any other file
        clashing, gaps = {id(f) for f in kept}, []
    return Plan(
        table=table,
        single=tuple(f for f in kept if id(f) not in clashing),
        overlapping=(*(f for f in kept if id(f) in clashing), *unranged),
        repeats=tuple(repeats),
        unreadable=tuple(unreadable),
        gaps=tuple(gaps),
    )


def _read_footer(store: Store, table: str, name: str) -> FileFacts | None:
    """Read one footer; None if the file is not a whole Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with store.filesystem.open_input_file(store.path(name)) as stream:
            meta = pq.ParquetFile(stream).metadata
            ranges = files.decode_ranges(meta.metadata)
            earliest, latest = _times(meta, TIME_COLUMN[table])
            return FileFacts(name, meta.num_rows, ranges, earliest, latest, store.location)
    except (pa.ArrowInvalid, ValueError):
        return None


def _times(metadata: Any, column: str) -> tuple[dt.datetime | None, dt.datetime | None]:
    """Return the earliest and latest time in a column, from the statistics of the footer."""
    names = metadata.schema.names
    if column not in names:
        return None, None
    index = names.index(column)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    stats = [group.column(index).statistics for group in groups]
    found = [s for s in stats if s is not None and s.has_min_max]
    if not found:
        return None, None
    return min(s.min for s in found), max(s.max for s in found)


def _covered(taken: list[tuple[int, int]], spans: list[tuple[int, int]]) -> bool:
    return all(any(a <= first and last <= b for a, b in taken) for first, last in spans)


def _sweep(table: str, kept: list[FileFacts]) -> tuple[set[int], list[Gap]]:
    """Return the `id` of each file that shares rows with another one, and the missing rows."""
    spans: dict[str, list[tuple[int, int, FileFacts]]] = {}
    for file in kept:
        for writer, found in (file.ranges or {}).items():
            spans.setdefault(writer, []).extend((a, b, file) for a, b in found)
    clashing: set[int] = set()
    gaps: list[Gap] = []
    for writer in sorted(spans):
        reach = -1
        holder: FileFacts | None = None
        for first, last, file in sorted(spans[writer], key=lambda span: span[:2]):
            if holder is not None and first <= reach:
                clashing |= {id(file), id(holder)}
            if first > reach + 1:
                after = holder.latest if holder is not None else None
                gaps.append(Gap(table, writer, reach + 1, first - 1, after, file.earliest))
            if last > reach:
                reach, holder = last, file
    return clashing, gaps
