"""The tables of the store, as numbered steps. A step that was released is never edited.

``message.id`` is the queue's number and the sequence number in one integer, so that each queue is
one range of the key, in order; the bytes of the message are the last columns, so that the others
can be read without them.
"""

from __future__ import annotations

import sqlite3

from pairbus.broker.entities.errors import StoreError

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE entity (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL CHECK (kind IN ('queue', 'topic', 'subscription')),
        parent INTEGER REFERENCES entity (id),
        description TEXT NOT NULL,
        rules TEXT NOT NULL,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE queue (
        id INTEGER PRIMARY KEY,
        last_number INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE message (
        id INTEGER PRIMARY KEY,
        state INTEGER NOT NULL,
        enqueued INTEGER NOT NULL,
        due INTEGER NOT NULL,
        delivery_count INTEGER NOT NULL,
        size INTEGER NOT NULL,
        origin INTEGER NOT NULL,
        ttl INTEGER,
        flags INTEGER NOT NULL,
        session_id TEXT,
        source TEXT,
        annotations BLOB,
        bare BLOB NOT NULL
    ) STRICT;
    CREATE TABLE session (
        queue INTEGER NOT NULL,
        session_id TEXT NOT NULL,
        state BLOB NOT NULL,
        updated INTEGER NOT NULL,
        PRIMARY KEY (queue, session_id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE seen (
        entity INTEGER NOT NULL,
        key TEXT NOT NULL,
        taken INTEGER NOT NULL,
        PRIMARY KEY (entity, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX seen_by_time ON seen (entity, taken);
    """,
    """
    CREATE TABLE log (applied INTEGER NOT NULL) STRICT;
    INSERT INTO log VALUES (0);
    """,
    "DROP TABLE log;",
)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables up to date, each step in a transaction of its own.

    Raises:
        StoreError: a newer version of pairbus wrote this store.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise StoreError(
            f"The store has version {version}, and this pairbus knows up to {len(MIGRATIONS)}: "
            "use the newer pairbus that wrote it."
        )
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        connection.executescript(
            f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;"
        )
