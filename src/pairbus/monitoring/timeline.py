"""The events of all clients and syphons as one timeline, newest first."""

import datetime as dt
from collections.abc import Iterable
from typing import Any

from pairbus.monitoring.records import Row
from pairbus.status import parse_time

REPEATED = {
    ("PingSent", False),
    ("MessageBacklogged", None),
    ("PairUnavailable", None),
    ("OversizeMessage", None),
}
TOGETHER = 5.0  # seconds within which clients report the same event


def merge_events(reported: Iterable[tuple[str, Iterable[Row]]], limit: int = 200) -> list[Row]:
    """Return the events that each client reported, newest first, each with its client.

    Repeated events (pings without an answer, sends that neither namespace accepted) are one row
    with a count and the first time, so that an hour of outage does not push its beginning off the
    page. An event of an entity that several clients report at the same time is one row with their
    number.
    """
    events = [
        {**event, "client_id": client_id} for client_id, events in reported for event in events
    ]
    events.sort(key=lambda e: str(e.get("at", "")), reverse=True)
    return _join_clients(_fold_repeats(events))[:limit]


def _fold_repeats(events: Iterable[Row]) -> list[Row]:
    folded: list[Row] = []
    open_rows: dict[tuple[Any, ...], Row] = {}
    for event in events:
        owner = (event["client_id"], event.get("entity"))
        kind = _kind(event)
        row = open_rows.get((*owner, *kind))
        if kind in REPEATED and row is not None:
            row["times"] += 1
            row["first_at"] = event.get("at")
            if "messages" in event:
                row["messages"] = (row.get("messages") or 0) + (event["messages"] or 0)
            continue
        if kind not in REPEATED:  # repeats before another event are counted separately
            open_rows = {key: row for key, row in open_rows.items() if key[:2] != owner}
        row = {**event, "times": 1, "clients": 1, "first_at": event.get("at")}
        open_rows[*owner, *kind] = row
        folded.append(row)
    return folded


def _join_clients(rows: Iterable[Row]) -> list[Row]:
    joined: list[Row] = []
    newest: dict[tuple[Any, ...], tuple[Row, set[Any]]] = {}
    for row in rows:
        key = (row.get("entity"), *_kind(row))
        known, clients = newest.get(key, (row, {row["client_id"]}))
        if row.get("entity") and row["client_id"] not in clients and _is_together(known, row):
            clients.add(row["client_id"])
            known["clients"] += 1
            known["times"] = max(known["times"], row["times"])
            known["first_at"] = min(str(known["first_at"]), str(row["first_at"]))
            if "messages" in row:
                known["messages"] = (known.get("messages") or 0) + (row["messages"] or 0)
            continue
        newest[key] = (row, {row["client_id"]})
        joined.append(row)
    return joined


def _kind(event: Row) -> tuple[Any, Any]:
    return event.get("event"), event.get("succeeded")


def _is_together(newer: Row, older: Row) -> bool:
    times = parse_time(newer.get("at")), parse_time(older.get("at"))
    if times[0] is None or times[1] is None:
        return False
    return (times[0] - times[1]).total_seconds() <= TOGETHER


def age(value: Any, now: dt.datetime) -> float | None:
    """Return the seconds from a time until now; None if there is no time."""
    parsed = parse_time(value)
    return None if parsed is None else (now - parsed).total_seconds()
