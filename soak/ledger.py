"""The ledger of a soak, by the rules of reconcile, against the messages that arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pairbus.reports.fates import fate
from simulation.history import History, Window, overtaken
from simulation.ledger import tallies

AFTERMATH = 90.0  # seconds: the duration of a lock, and more
COLUMNS = ["event", "at", "message_id", "destination", "backlog_queue", "sequence_number", "reason"]


def read_messages(ledger: Path) -> list[dict[str, Any]]:
    """Return the rows of the messages table."""
    rows: list[dict[str, Any]] = []
    for path in sorted((ledger / "messages").glob("[!_.]*.parquet")):
        rows += pq.read_table(path, columns=COLUMNS).to_pylist()
    return rows


def contradictions(
    rows: Sequence[Mapping[str, Any]], arrived: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return where the ledger contradicts the messages that arrived, by entity."""
    counts = Counter((entity, name) for entity, names in arrived.items() for name in names)
    lost, excess = [], []
    for key, tally in sorted(tallies(rows).items()):
        if fate(tally)["lost"]:
            lost.append(key[1])
        elif tally["f"] and not counts[key]:
            excess.append(key[1])
    return [
        f"{what}: {', '.join(names)}"
        for what, names in (
            ("lost according to the ledger", lost),
            ("in the ledger, and not in the primary", excess),
        )
        if names
    ]


def out_of_order(
    history: History,
    rows: Sequence[Mapping[str, Any]],
    arrived: Mapping[str, Sequence[str]],
    jumps: Sequence[Window] = (),
    detecting: Container[str] = (),
) -> list[str]:
    """Return messages that overtook an older one of the same backlog queue and destination.

    Args:
        history: the sends.
        rows: the ledger's messages.
        arrived: the messages in the primary, by entity and in order.
        jumps: when the secondary's clock was wrong: locks end early then, and no order is promised.
        detecting: entities that detect duplicates.
    """
    places = {
        (row["backlog_queue"], row["sequence_number"], row["message_id"])
        for row in rows
        if row["event"] == "forwarded"
        and not any(one.is_near(at := row["at"].timestamp(), at, AFTERMATH) for one in jumps)
    }
    backlog = [(0.0, queue, name) for queue, _, name in sorted(places)]
    primary = [(0.0, entity, name) for entity, names in arrived.items() for name in names]
    return overtaken(history, backlog, primary, detecting)
