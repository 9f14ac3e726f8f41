"""Messages per second that clients send and syphons forward, from the counts in their status files.

A client writes its status every few seconds. A rate by the time of reading would jump with each
report, so a rate is the growth between two reports divided by the time between those reports.
A syphon forwards in micro-batches of up to some seconds, so its rate is the growth between two
times at which it made progress.
"""

import datetime as dt
import operator
from collections import deque
from collections.abc import Iterable, Sequence

from pairbus.monitoring.records import ClientState, SyphonState
from pairbus.status import parse_time

WINDOW = 12.0  # seconds between the first and the last report that a rate spans, at most
SHORTEST = 1.0  # seconds: reports that follow each other faster say little
NAMES = ("sent_primary", "sent_backlog")


class Growth:
    """The counts in the latest reports of one process."""

    def __init__(self) -> None:
        self._reports: deque[tuple[dt.datetime, Sequence[int]]] = deque()

    def add(self, at: dt.datetime | None, *counts: int) -> None:
        """Add a report if it is new. A count that is lower than before begins a new run."""
        reports = self._reports
        if at is None or (reports and at <= reports[-1][0]):
            return
        if reports and any(map(operator.lt, counts, reports[-1][1])):
            reports.clear()
        reports.append((at, counts))
        while len(reports) > 2 and (at - reports[1][0]).total_seconds() >= WINDOW:
            reports.popleft()

    def per_second(self) -> list[float] | None:
        """Return the growth of each count; None if the reports span too short a time."""
        if not self._reports:
            return None
        (first, before), (last, after) = self._reports[0], self._reports[-1]
        seconds = (last - first).total_seconds()
        if seconds < SHORTEST:
            return None
        return [(new - old) / seconds for old, new in zip(before, after, strict=True)]


class SendRates:
    """Keeps the latest reports of each client."""

    def __init__(self) -> None:
        self._clients: dict[str, Growth] = {}

    def update(self, clients: Iterable[ClientState]) -> dict[str, float | None]:
        """Take the clients of a snapshot; return sends per second by name.

        None before any client has reported twice; a client that is gone is not counted.
        """
        living = {c.client_id: c for c in clients if c.state == "open"}
        known = bool(self._clients)
        self._clients = {name: self._clients.get(name, Growth()) for name in living}
        for name, client in living.items():
            counts = [entity.counts for entity in client.entities]
            sums = [sum(getattr(c, key) for c in counts) for key in NAMES]
            self._clients[name].add(client.updated_at, *sums)
        rates = [rate for growth in self._clients.values() if (rate := growth.per_second())]
        if not rates:
            return dict.fromkeys(NAMES, 0.0 if known and not living else None)
        return dict(zip(NAMES, map(sum, zip(*rates, strict=True)), strict=True))


class DrainRates:
    """Keeps the latest progress of each syphon."""

    def __init__(self) -> None:
        self._syphons: dict[str, Growth] = {}

    def update(self, syphons: Iterable[SyphonState]) -> float:
        """Take the syphons of a snapshot; return the messages per second that they forward."""
        running = {s.id: s for s in syphons if s.state == "running"}
        self._syphons = {name: self._syphons.get(name, Growth()) for name in running}
        total = 0.0
        for name, syphon in running.items():
            self._syphons[name].add(parse_time(syphon.last_progress), syphon.forwarded)
            (rate,) = self._syphons[name].per_second() or [syphon.rate]
            total += rate
        return total
