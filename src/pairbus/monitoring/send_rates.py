"""Messages per second that clients send and syphons forward, from the counts in their status files.

A client writes its status every few seconds. A rate by the time of reading would jump with each
report, so a rate is the growth between two reports divided by the time between those reports.
A syphon forwards in micro-batches of up to some seconds, so its rate is the growth between two
times at which it made progress.
"""

import datetime as dt
from collections import deque
from collections.abc import Iterable

from pairbus.monitoring.records import ClientState, SyphonState
from pairbus.status import parse_time

WINDOW = 12.0  # seconds between the first and the last report that a rate spans, at most
SHORTEST = 1.0  # seconds: reports that follow each other faster say little
NAMES = ("sent_primary", "sent_backlog")

Report = tuple[dt.datetime, dict[str, int]]


class SendRates:
    """Keeps the latest reports of each client."""

    def __init__(self) -> None:
        self._reports: dict[str, deque[Report]] = {}

    def update(self, clients: Iterable[ClientState]) -> dict[str, float | None]:
        """Take the clients of a snapshot; return sends per second by name.

        None before any client has reported twice; a client that is gone is not counted.
        """
        living = {c.client_id: c for c in clients if c.state == "open"}
        known = bool(self._reports)
        self._reports = {name: kept for name, kept in self._reports.items() if name in living}
        for name, client in living.items():
            self._add_report(name, client)
        rates = [self._rate(reports) for reports in self._reports.values()]
        found = [rate for rate in rates if rate is not None]
        if not found:
            return dict.fromkeys(NAMES, 0.0 if known and not living else None)
        return {name: sum(rate[name] for rate in found) for name in NAMES}

    def _add_report(self, name: str, client: ClientState) -> None:
        at = client.updated_at
        reports = self._reports.setdefault(name, deque())
        if at is None or (reports and at <= reports[-1][0]):
            return
        counts = [entity.counts for entity in client.entities]
        reports.append((at, {key: sum(getattr(c, key) for c in counts) for key in NAMES}))
        while len(reports) > 2 and (at - reports[1][0]).total_seconds() >= WINDOW:
            reports.popleft()

    @staticmethod
    def _rate(reports: deque[Report]) -> dict[str, float] | None:
        if len(reports) < 2:
            return None
        (first, before), (last, after) = reports[0], reports[-1]
        seconds = (last - first).total_seconds()
        if seconds < SHORTEST:
            return None
        return {name: max(0, after[name] - before[name]) / seconds for name in NAMES}


class DrainRates:
    """Keeps the latest progress of each syphon."""

    def __init__(self) -> None:
        self._progress: dict[str, deque[tuple[dt.datetime, int]]] = {}

    def update(self, syphons: Iterable[SyphonState]) -> float:
        """Take the syphons of a snapshot; return the messages per second that they forward."""
        running = {s.id: s for s in syphons if s.state == "running"}
        self._progress = {name: kept for name, kept in self._progress.items() if name in running}
        return sum(self._rate(name, syphon) for name, syphon in running.items())

    def _rate(self, name: str, syphon: SyphonState) -> float:
        at, forwarded = parse_time(syphon.last_progress), syphon.forwarded
        progress = self._progress.setdefault(name, deque())
        if at is not None and (not progress or at > progress[-1][0]):
            if progress and forwarded < progress[-1][1]:
                progress.clear()  # a new run
            progress.append((at, forwarded))
            while len(progress) > 2 and (at - progress[1][0]).total_seconds() >= WINDOW:
                progress.popleft()
        seconds = (progress[-1][0] - progress[0][0]).total_seconds() if progress else 0.0
        if seconds < SHORTEST:
            return syphon.rate
        return (progress[-1][1] - progress[0][1]) / seconds
