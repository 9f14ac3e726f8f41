"""The statements that write a group into the tables."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from typing import Any

from pairbus.broker.entities.journal import SEQUENCE_BITS, Journal

_log = logging.getLogger("pairbus.broker.store")

COLUMNS = 13
CHUNK = (
    32  # rows per statement: SQLite works outside Python's lock for as long as a statement takes
)
_ROW = "(" + ",".join("?" * COLUMNS) + ")"
_INSERT = {n: "INSERT INTO message VALUES " + ",".join([_ROW] * n) for n in (1, CHUNK)}
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


def write_group(connection: sqlite3.Connection, group: Journal) -> None:
    """Write all of a group, in the order that the journal promises; within a transaction."""
    execute, many = connection.execute, connection.executemany
    for kind, parameters in group.entities:
        execute(_STATEMENTS[kind], parameters)
    if group.numbers:
        many(
            "INSERT INTO queue VALUES (?, ?) "
            "ON CONFLICT (id) DO UPDATE SET last_number = excluded.last_number",
            group.numbers,
        )
    _insert(connection, group.inserts)
    if group.updates:
        many(
            "UPDATE message SET state = ?, due = ?, delivery_count = ? WHERE id = ?",
            group.updates,
        )
    if group.bodies:
        many("UPDATE message SET bare = ?, size = ? WHERE id = ?", group.bodies)
    for first, last in runs(group.deletes):
        execute("DELETE FROM message WHERE id BETWEEN ? AND ?", (first, last))
    for kind, parameters in group.purges:
        if kind == "drop":
            _drop(connection, *parameters)
        else:
            execute(_STATEMENTS[kind], parameters)


def write_one_by_one(connection: sqlite3.Connection, group: Journal) -> None:
    """Write a group of which the tables refuse a row, without that row.

    Only for what the log has gathered: it was checked when it came, so this is a fault of the
    broker, and the others must not suffer for it.
    """
    parts: list[Journal] = []
    for row in group.inserts:
        parts.append(Journal())
        parts[-1].inserts.append(row)
    for statement in group.entities:
        parts.append(Journal())
        parts[-1].entities.append(statement)
    rest = Journal()
    rest.deletes, rest.updates, rest.numbers = group.deletes, group.updates, group.numbers
    for part in (*parts, rest):
        connection.execute("SAVEPOINT part")
        try:
            write_group(connection, part)
        except sqlite3.OperationalError:
            raise
        except (sqlite3.Error, OverflowError, ValueError) as error:
            connection.execute("ROLLBACK TO part")
            _log.error("a row that the store cannot take is left out: %s", error)
        connection.execute("RELEASE part")


def _insert(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    whole = len(rows) - len(rows) % CHUNK
    for start in range(0, whole, CHUNK):
        flat: list[Any] = []
        for row in rows[start : start + CHUNK]:
            flat += row
        connection.execute(_INSERT[CHUNK], flat)
    if whole < len(rows):
        connection.executemany(_INSERT[1], rows[whole:])


def _drop(connection: sqlite3.Connection, entity_id: int, first_queue: int, queues: int) -> None:
    execute = connection.execute
    span = (first_queue << SEQUENCE_BITS, (first_queue + queues) << SEQUENCE_BITS)
    numbers = (first_queue, first_queue + queues)
    execute("DELETE FROM message WHERE id >= ? AND id < ?", span)
    execute("DELETE FROM session WHERE queue >= ? AND queue < ?", numbers)
    execute("DELETE FROM queue WHERE id >= ? AND id < ?", numbers)
    execute("DELETE FROM seen WHERE entity = ?", (entity_id,))
    execute("DELETE FROM entity WHERE id = ?", (entity_id,))


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
