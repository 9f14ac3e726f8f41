"""The SQL statements that write a group of changes into the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from pairbus.broker.entities.journal import SEQUENCE_BITS, Journal, MessageRow

Statement = tuple[str, Sequence[Any]]

CHUNK = 32  # rows per INSERT: SQLite releases the GIL while a statement runs
SMALL = 8192  # bytes: the size up to which a message is copied to a bytearray
_WHOLE = ("message", 13)
# A message without ttl, session, source and annotations, as most are. For each None and each bytes
# object Python's sqlite3 module searches for an adapter, in vain, which takes as long as SQLite
# needs for the rest of the row. It does not search for a bytearray, so a small copy is faster.
_PLAIN = ("message (id, state, enqueued, due, delivery_count, size, origin, flags, bare)", 9)
_UPDATE = "UPDATE message SET state = ?, due = ?, delivery_count = ? WHERE id = ?"
_BODY = "UPDATE message SET bare = ?, size = ? WHERE id = ?"
_DELETE = "DELETE FROM message WHERE id = ?"
_DELETE_RUN = "DELETE FROM message WHERE id BETWEEN ? AND ?"
_NUMBERS = (
    "INSERT INTO queue VALUES (?, ?) "
    "ON CONFLICT (id) DO UPDATE SET last_number = excluded.last_number"
)
_STATEMENTS = {
    "entity": "INSERT INTO entity VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
    "description = excluded.description, rules = excluded.rules, updated = excluded.updated",
    "remember": "INSERT INTO seen VALUES (?, ?, ?) "
    "ON CONFLICT (entity, key) DO UPDATE SET taken = excluded.taken",
    "session": "INSERT INTO session VALUES (?, ?, ?, ?) ON CONFLICT (queue, session_id) "
    "DO UPDATE SET state = excluded.state, updated = excluded.updated",
    "end-session": "DELETE FROM session WHERE queue = ? AND session_id = ?",
    "forget": "DELETE FROM seen WHERE entity = ? AND taken <= ?",
}


def statements(group: Journal) -> list[Statement]:
    """The statements of a group, in the order that :mod:`pairbus.broker.entities.journal` sets."""
    found: list[Statement] = []
    if group.entities:
        found += [(_STATEMENTS[kind], parameters) for kind, parameters in group.entities]
    if group.numbers:
        found += [(_NUMBERS, numbers) for numbers in group.numbers]
    if group.inserts:
        found += _inserts(group.inserts)
    if group.updates:
        found += [(_UPDATE, update) for update in group.updates]
    if group.bodies:
        found += [(_BODY, body) for body in group.bodies]
    if len(group.deletes) == 1:
        found.append((_DELETE, group.deletes))
    elif group.deletes:
        found += [(_DELETE_RUN, run) for run in runs(group.deletes)]
    for kind, parameters in group.purges:
        found += _drop(*parameters) if kind == "drop" else [(_STATEMENTS[kind], parameters)]
    return found


def _insert(columns: tuple[str, int], rows: int) -> str:
    table, count = columns
    row = "(" + ",".join("?" * count) + ")"
    return f"INSERT INTO {table} VALUES {','.join([row] * rows)}"


_INSERT, _INSERT_CHUNK = _insert(_WHOLE, 1), _insert(_WHOLE, CHUNK)
_INSERT_PLAIN, _INSERT_PLAIN_CHUNK = _insert(_PLAIN, 1), _insert(_PLAIN, CHUNK)


def _inserts(rows: list[MessageRow]) -> list[Statement]:
    plain: list[Sequence[Any]] = []
    whole: list[Sequence[Any]] = []
    for row in rows:
        if row[7] is None and row[9] is None and row[10] is None and row[11] is None:
            bare = row[12] if row[5] > SMALL else bytearray(row[12] or b"")
            plain.append(row[:7] + (row[8], bare))  # noqa: RUF005 - faster than unpacking
        else:
            whole.append(row)
    if len(plain) == 1 and not whole:
        return [(_INSERT_PLAIN, plain[0])]
    return [
        *_in_chunks(plain, _INSERT_PLAIN, _INSERT_PLAIN_CHUNK),
        *_in_chunks(whole, _INSERT, _INSERT_CHUNK),
    ]


def _in_chunks(rows: list[Sequence[Any]], single: str, chunk: str) -> Iterator[Statement]:
    rest = len(rows) - len(rows) % CHUNK
    for start in range(0, rest, CHUNK):
        yield chunk, list(chain.from_iterable(rows[start : start + CHUNK]))
    for row in rows[rest:]:
        yield single, row


def _drop(entity_id: int, first_queue: int, queues: int) -> list[Statement]:
    """Delete an entity and everything that belongs to it."""
    numbers = (first_queue, first_queue + queues)
    span = (numbers[0] << SEQUENCE_BITS, numbers[1] << SEQUENCE_BITS)
    return [
        ("DELETE FROM message WHERE id >= ? AND id < ?", span),
        ("DELETE FROM session WHERE queue >= ? AND queue < ?", numbers),
        ("DELETE FROM queue WHERE id >= ? AND id < ?", numbers),
        ("DELETE FROM seen WHERE entity = ?", (entity_id,)),
        ("DELETE FROM entity WHERE id = ?", (entity_id,)),
    ]


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive numbers as ``(first, last)``, ascending: one statement for many rows."""
    found: list[tuple[int, int]] = []
    if not numbers:
        return found
    ordered = sorted(numbers)
    first = last = ordered[0]
    for number in ordered:
        if number > last + 1:
            found.append((first, last))
            first = number
        last = number
    found.append((first, last))
    return found
