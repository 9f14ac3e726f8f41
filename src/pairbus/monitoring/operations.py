"""The billable operations of a ledger, read with pyarrow, without Spark.

Files of a ledger never change, so each is read once. The rows are not kept, only their sums and,
per writer, the numbers of the rows that were counted: a row may come again in a file that a
compaction wrote, and counts once.
"""

import contextlib
import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pairbus.ledger.files import Ranges, decode_ranges, merge, ranges_of
from pairbus.ledger.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

HOUR = dt.timedelta(hours=1)
KEYS = ["namespace", "entity", "stage"]
SUMS = ["billable", "bytes", "messages"]
COLUMNS = ["writer", "sequence", "minute", "count", *KEYS, *SUMS]


@dataclass(frozen=True, slots=True)
class Used:
    """The operations of one stage of one entity."""

    namespace: str
    entity: str
    stage: str
    billable: int
    bytes: int
    messages: int


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations by entity and stage: all, and those of the last hour; and the first minute."""

    all: Sequence[Used] = ()
    last_hour: Sequence[Used] = ()
    first: dt.datetime | None = None


class OperationsSource:
    """The sums of a ledger, kept up to date by reading its new files."""

    def __init__(self, ledger: str) -> None:
        self._store = Store(ledger)
        self._known: set[str] = set()  # names of files that were counted
        self._counted: Ranges = {}
        self._all: pa.Table | None = None
        self._recent: pa.Table | None = None  # of the last hour, by minute
        self._first: dt.datetime | None = None

    def read(self, now: dt.datetime) -> Operations:
        """Count the rows that were added since the last call; return the sums."""
        import pyarrow.compute as pc

        names = self._store.list("operations", ".parquet")
        for name in names:
            if name not in self._known:
                # If a compaction removed the file, the next call finds its rows in another one.
                with contextlib.suppress(FileNotFoundError):
                    self._add_file(name, now)
                    self._known.add(name)
        self._known.intersection_update(names)
        if self._all is None or self._recent is None:
            return Operations()
        self._recent = self._recent.filter(pc.greater_equal(self._recent["minute"], now - HOUR))
        return Operations(
            [Used(**row) for row in self._all.to_pylist()],
            [Used(**row) for row in _sum(KEYS, self._recent).to_pylist()],
            self._first,
        )

    def _add_file(self, name: str, now: dt.datetime) -> None:
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        with self._store.filesystem.open_input_file(self._store.path(name)) as stream:
            file = pq.ParquetFile(stream)
            ranges = decode_ranges(file.metadata.metadata)
            if ranges is not None and self._has(ranges):
                return
            rows = self._without_counted(file.read(columns=COLUMNS))
        for writer, spans in ranges_of(rows).items():
            self._counted[writer] = merge([*self._counted.get(writer, ()), *spans])
        # A ping that the primary did not take is a call without a message; it counts as charged.
        is_failed = pc.and_(pc.equal(rows["stage"], "ping"), pc.equal(rows["messages"], 0))
        charged = pc.if_else(is_failed, rows["count"], rows["billable"])
        rows = rows.set_column(rows.schema.get_field_index("billable"), "billable", charged)
        recent = rows.filter(pc.greater_equal(rows["minute"], now - HOUR))
        self._all = _sum(KEYS, self._all, rows)
        self._recent = _sum(["minute", *KEYS], self._recent, recent)
        firsts = [self._first, pc.min(rows["minute"]).as_py()]
        self._first = min((first for first in firsts if first is not None), default=None)

    def _has(self, ranges: Ranges) -> bool:
        """Return whether all these rows were counted."""
        return all(
            merge([*self._counted.get(writer, ()), *spans]) == self._counted.get(writer, [])
            for writer, spans in ranges.items()
        )

    def _without_counted(self, rows: "pa.Table") -> "pa.Table":
        import pyarrow as pa

        pairs = zip(rows["writer"].to_pylist(), rows["sequence"].to_pylist(), strict=True)
        return rows.filter(
            pa.array(
                (
                    not any(a <= number <= b for a, b in self._counted.get(writer, ()))
                    for writer, number in pairs
                ),
                pa.bool_(),
            )
        )


def _sum(keys: list[str], *parts: "pa.Table | None") -> "pa.Table":
    """Sum operations up by these columns."""
    import pyarrow as pa

    wanted = [*keys, *SUMS]
    chosen = [part.select(wanted) for part in parts if part is not None]
    # The columns of a file are not nullable, those of an earlier sum are.
    rows = pa.concat_tables(chosen, promote_options="default")
    sums = rows.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in SUMS])
    return sums.rename_columns([name.removesuffix("_sum") for name in sums.column_names]).select(
        wanted
    )
