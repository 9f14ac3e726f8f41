"""Parquet files of the ledger; the footer of each lists the numbers of its rows.

The footer's `pairbus.ranges` lists, per writer, the sequence numbers in the file. A reader that
looks at footers alone then knows which files repeat others, and which rows are missing, without
reading a row (see `pairbus.ledger.plan`).
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pairbus.ledger.schema import TABLES, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from pairbus.ledger.store import Store

T = TypeVar("T")

RANGES = b"pairbus.ranges"

LISTINGS = 20
"""The most often that a folder is listed while compactions remove files from it."""

Ranges = dict[str, list[tuple[int, int]]]
"""Per writer, the closed ranges of sequence numbers, ascending and not adjacent."""


def column_names(table: str) -> list[str]:
    """Return the names of a table's columns, in order."""
    return [column.name for column in TABLES[table]]


def to_table(table: str, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """Make an Arrow table of the ledger's `table` from columns; missing ones are null."""
    import pyarrow as pa

    schema = arrow_schema(table)
    count = len(next(iter(columns.values())))

    def column(name: str, kind: pa.DataType) -> Any:
        values = columns.get(name)
        if values is None:
            return pa.nulls(count, kind)
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return values if values.type == kind else values.cast(kind)
        return pa.array(values, kind)

    arrays = [column(f.name, f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def encode(rows: pa.Table) -> pa.Buffer:
    """Return the whole Parquet file of these rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    note = {RANGES: json.dumps(ranges_of(rows))}
    sink = pa.BufferOutputStream()
    pq.write_table(rows.replace_schema_metadata(note), sink, compression="zstd")
    return sink.getvalue()


def decode_ranges(metadata: Mapping[bytes, bytes] | None) -> Ranges | None:
    """Return the row ranges in a file's footer, or None if it has none."""
    raw = (metadata or {}).get(RANGES)
    if raw is None:
        return None
    return {w: [(int(a), int(b)) for a, b in spans] for w, spans in json.loads(raw).items()}


def merge(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join closed ranges that touch or overlap."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def ranges_of(rows: pa.Table) -> Ranges:
    """Return which rows of which writer a table holds."""
    import pyarrow.compute as pc

    if not rows.num_rows:
        return {}
    writers, numbers = (rows[name].combine_chunks() for name in ("writer", "sequence"))
    # a range begins where the writer changes or the next number is another one
    breaks = pc.or_(
        pc.not_equal(writers[1:], writers[:-1]),
        pc.not_equal(pc.subtract(numbers[1:], numbers[:-1]), 1),
    )
    starts = [0, *(index + 1 for index in pc.indices_nonzero(breaks).to_pylist())]
    ends = [*(index - 1 for index in starts[1:]), len(numbers) - 1]
    found: Ranges = {}
    for start, end in zip(starts, ends, strict=True):
        span = (numbers[start].as_py(), numbers[end].as_py())
        found.setdefault(writers[start].as_py(), []).append(span)
    return {writer: merge(spans) for writer, spans in found.items()}


def write_rows(store: Store, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write rows of one writer, in the order of their numbers, as a new file."""
    rows = to_table(table, columns)
    writer, first = columns["writer"][0], columns["sequence"][0]
    name = f"{table}/{safe_name(writer)}-{first:012d}-{rows.num_rows}.parquet"
    store.write_whole(name, encode(rows))


def safe_name(text: str) -> str:
    """Return `text` as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.\-]+", "_", text).lstrip("._")[:120] or "x"


def read_rows(store: Store, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read the rows of one file, with these columns or with all."""
    import pyarrow.parquet as pq

    with store.filesystem.open_input_file(store.path(name)) as stream:
        return pq.read_table(stream, columns=columns)


def read_each(
    store: Store,
    table: str,
    read: Callable[[str], T],
    known: Mapping[str, T] | None = None,
    *,
    missing: Callable[[str], T] | None = None,
) -> dict[str, T]:
    """Read all files of a table as of one moment; return the results by name.

    A file that disappeared after the folder was listed was compacted. Its rows are in a file that
    the list may lack, so the folder is listed again.

    Args:
        store: the ledger.
        table: the table.
        read: reads the file of a name.
        known: former results; these files are not read again.
        missing: gives the result of a file that stays in the list and does not exist.

    Raises:
        FileNotFoundError: there is such a file, and no `missing`.
    """
    found = dict(known or {})
    for _ in range(LISTINGS):
        names = store.list(table, ".parquet")
        found = {name: found[name] for name in names if name in found}
        new = [name for name in names if name not in found]
        with ThreadPoolExecutor(max_workers=16) as pool:
            results = list(pool.map(partial(_read_unless_gone, read), new))
        found |= {name: some[0] for name, some in zip(new, results, strict=True) if some}
        gone = [name for name in new if name not in found]
        if not gone:
            break
    else:
        if missing is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), store.path(gone[0]))
        found |= {name: missing(name) for name in gone}
    return {name: found[name] for name in names}


def _read_unless_gone(read: Callable[[str], T], name: str) -> tuple[T, ...]:
    try:
        return (read(name),)
    except FileNotFoundError:
        return ()
