"""Compaction: merges small files into large ones; a crash loses no row and repeats none.

Thousands of clients write one file a minute each, and never change it. A compaction reads some of
these files, drops repeated rows, writes one new file completely, and then removes the old ones. If
it dies before that, some rows are in two files, and readers drop the repeats. The same happens if
two compactions run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pairbus.ledger import files
from pairbus.ledger.plan import FileFacts, plan
from pairbus.ledger.schema import arrow_schema
from pairbus.ledger.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

TARGET_ROWS = 1_000_000
"""Up to this number of rows, small files are merged into one."""


LEFTOVER_SECONDS = 3600.0
"""Age from which a temporary file counts as left by a killed process."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of compacting one table."""

    table: str
    files_before: int
    files_after: int
    rows: int
    repeats_dropped: int
    unreadable: tuple[str, ...] = ()


def compact(
    location: str | Store,
    *,
    target_rows: int = TARGET_ROWS,
    progress: Callable[[int, int], None] | None = None,
) -> list[Compaction]:
    """Compact both tables of a ledger.

    Args:
        location: the ledger.
        target_rows: files of at least half as many rows are left alone.
        progress: is called with the number of files done and their total.

    Raises:
        LedgerError: it is not a ledger.
    """
    store = location if isinstance(location, Store) else Store(location)
    store.require_ledger()
    return [_compact(store, table, target_rows, progress) for table in ("operations", "messages")]


def _compact(
    store: Store, table: str, target_rows: int, progress: Callable[[int, int], None] | None
) -> Compaction:
    found = plan(store, table)
    before = [*found.single, *found.overlapping, *found.repeats]
    # Files that only repeat others need not be read. Files that overlap are rewritten together,
    # whatever their size, so that shared rows are in one file.
    small = [f for f in found.single if f.rows < target_rows // 2]
    groups = _groups(small, target_rows)
    if found.overlapping:
        groups.insert(0, list(found.overlapping))
    groups = [group for group in groups if len(group) > 1]
    dropped = sum(f.rows for f in found.repeats)
    written = done = 0
    total = sum(len(group) for group in groups)
    for group in groups:
        repeats = _rewrite(store, table, group)
        written += repeats is not None
        dropped += repeats or 0
        done += len(group)
        if progress is not None:
            progress(done, total)
    _remove(store, found.repeats)
    for name in store.leftovers(table, age=LEFTOVER_SECONDS):
        store.delete(name)
    gone = total + len(found.repeats)
    return Compaction(
        table=table,
        files_before=len(before),
        files_after=len(before) - gone + written,
        rows=sum(f.rows for f in before) - dropped,
        repeats_dropped=dropped,
        unreadable=found.unreadable,
    )


def _groups(small: list[FileFacts], target_rows: int) -> list[list[FileFacts]]:
    groups: list[list[FileFacts]] = []
    room = 0
    for file in sorted(small, key=lambda f: (str(f.earliest), f.name)):
        if not groups or file.rows > room:
            groups.append([])
            room = target_rows
        groups[-1].append(file)
        room -= file.rows
    return groups


def _rewrite(store: Store, table: str, group: list[FileFacts]) -> int | None:
    """Write the rows of some files as one, then remove them; return how many were repeats.

    None if fewer than two of them are left, because another compaction was faster.
    """
    import pyarrow as pa

    schema = arrow_schema(table)
    parts, read = [], []
    for file in group:
        try:
            part = files.read_rows(store, file.name)
        except FileNotFoundError:
            continue  # another compaction was faster and has written its rows
        parts.append(part.select(schema.names).cast(schema))
        read.append(file)
    if len(read) < 2:
        return None
    rows = pa.concat_tables(parts)
    kept = _drop_repeats(rows.sort_by([("writer", "ascending"), ("sequence", "ascending")]))
    name = f"{table}/compact-{store.new_name()}-{kept.num_rows}.parquet"
    store.write_whole(name, files.encode(kept))
    _remove(store, read)
    return int(rows.num_rows - kept.num_rows)


def _drop_repeats(rows: pa.Table) -> pa.Table:
    """Return sorted rows without those that have writer and number of the row before."""
    import pyarrow as pa
    import pyarrow.compute as pc

    writer, sequence = (rows[name].combine_chunks() for name in ("writer", "sequence"))
    is_new = pc.or_(
        pc.not_equal(writer[1:], writer[:-1]), pc.not_equal(sequence[1:], sequence[:-1])
    )
    return rows.filter(pa.concat_arrays([pa.array([True]), is_new]))


def _remove(store: Store, group: Iterable[FileFacts]) -> None:
    for file in group:
        store.delete(file.name)
