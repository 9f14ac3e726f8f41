"""The SQL statements that write a group of changes into the tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from pairbus.broker.entities.journal import SEQUENCE_BITS, Journal, MessageRow

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


def _inserts(rows: list[MessageRow]) -> list[Statement]:
    whole = len(rows) - len(rows) % CHUNK
    found: list[Statement] = [
        (_INSERT_CHUNK, list(chain.from_iterable(rows[start : start + CHUNK])))
        for start in range(0, whole, CHUNK)
    ]
    found += [(_INSERT, row) for row in rows[whole:]]
    return found


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
