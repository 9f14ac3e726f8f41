"""The SQL statements that write a group of changes into the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pairbus.broker.entities.journal import SEQUENCE_BITS, Journal

Statement = tuple[str, Sequence[Any]]

COLUMNS = 13
CHUNK = 32  # rows per INSERT: SQLite releases Python's global lock while a statement runs
_ROW = "(" + ",".join("?" * COLUMNS) + ")"
_INSERT = "INSERT INTO message VALUES " + _ROW
_INSERT_CHUNK = "INSERT INTO message VALUES " + ",".join([_ROW] * CHUNK)
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


def statements(group: Journal) -> Iterator[Statement]:
    """The statements of a group, in the order that :mod:`pairbus.broker.entities.journal` sets."""
    for kind, parameters in group.entities:
        yield _STATEMENTS[kind], parameters
    for numbers in group.numbers:
        yield _NUMBERS, numbers
    inserts = group.inserts
    whole = len(inserts) - len(inserts) % CHUNK
    for start in range(0, whole, CHUNK):
        flat: list[Any] = []
        for row in inserts[start : start + CHUNK]:
            flat += row
        yield _INSERT_CHUNK, flat
    for row in inserts[whole:]:
        yield _INSERT, row
    for update in group.updates:
        yield _UPDATE, update
    for body in group.bodies:
        yield _BODY, body
    if len(group.deletes) == 1:
        yield _DELETE, group.deletes
    else:
        for run in runs(group.deletes):
            yield _DELETE_RUN, run
    for kind, parameters in group.purges:
        if kind == "drop":
            yield from _drop(*parameters)
        else:
            yield _STATEMENTS[kind], parameters


def _drop(entity_id: int, first_queue: int, queues: int) -> Iterator[Statement]:
    """Delete an entity and everything that belongs to it."""
    numbers = (first_queue, first_queue + queues)
    span = (numbers[0] << SEQUENCE_BITS, numbers[1] << SEQUENCE_BITS)
    yield "DELETE FROM message WHERE id >= ? AND id < ?", span
    yield "DELETE FROM session WHERE queue >= ? AND queue < ?", numbers
    yield "DELETE FROM queue WHERE id >= ? AND id < ?", numbers
    yield "DELETE FROM seen WHERE entity = ?", (entity_id,)
    yield "DELETE FROM entity WHERE id = ?", (entity_id,)


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
