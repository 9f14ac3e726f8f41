"""Parquet files of the ledger; the footer of each lists the numbers of its rows.

The footer's `pairbus.ranges` lists, per writer, the sequence numbers in the file. A reader that
looks at footers alone then knows which files repeat others, and which rows are missing, without
reading a row (see `pairbus.ledger.plan`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pairbus.ledger.schema import TABLES, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from pairbus.ledger.store import Store

RANGES = b"pairbus.ranges"

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


def encode(rows: pa.Table, ranges: Ranges) -> pa.Buffer:
    """Return the whole Parquet file of these rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    note = {RANGES: json.dumps({w: [list(r) for r in spans] for w, spans in ranges.items()})}
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
    import pyarrow as pa
    import pyarrow.compute as pc

    if not rows.num_rows:
        return {}
    ordered = rows.select(["writer", "sequence"]).sort_by(
        [("writer", "ascending"), ("sequence", "ascending")]
    )
    writers = ordered["writer"].combine_chunks()
    numbers = ordered["sequence"].combine_chunks()
    # a range begins where the writer changes or a number is missing
    breaks = pc.or_(
        pc.not_equal(writers[1:], writers[:-1]),
        pc.greater(pc.subtract(numbers[1:], numbers[:-1]), 1),
    )
    starts = [0, *(index + 1 for index in pc.indices_nonzero(breaks).to_pylist())]
    ends = [*(index - 1 for index in starts[1:]), len(numbers) - 1]
    found: Ranges = {}
    for writer, first, last in zip(
        writers.take(pa.array(starts)).to_pylist(),
        numbers.take(pa.array(starts)).to_pylist(),
        numbers.take(pa.array(ends)).to_pylist(),
        strict=True,
    ):
        found.setdefault(writer, []).append((first, last))
    return found


def read_rows(store: Store, name: str) -> pa.Table:
    """Read one file whole."""
    import pyarrow.parquet as pq

    with store.filesystem.open_input_file(store.path(name)) as stream:
        return pq.read_table(stream)
