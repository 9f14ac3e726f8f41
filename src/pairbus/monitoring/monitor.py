"""The newest snapshot of a pair and a short history of it, kept up to date by a thread.

The sources block, so a thread reads them and wakes watchers on their own event loop. Status files
are read at every tick; slower ones (administration, ledger, brokers) less often.
"""

import asyncio
import contextlib
import datetime as dt
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pairbus.monitoring.endpoints import Pair
from pairbus.monitoring.operations import OperationsSource
from pairbus.monitoring.records import Row, Snapshot
from pairbus.monitoring.running_cost import RunningCost
from pairbus.monitoring.send_rates import DrainRates, SendRates
from pairbus.monitoring.snapshot import Facts, assemble
from pairbus.monitoring.sources import (
    BacklogSource,
    Status,
    broker_health,
    control_syphon,
    guarded,
    read_statuses,
)
from pairbus.monitoring.syphon_events import SyphonEvents
from pairbus.status import PairStatus
from pairbus.syphon.status_records import SyphonStatus

log = logging.getLogger("pairbus.web")

REMEMBERED = 200  # clients whose events are kept after they closed
HISTORY = 900  # samples: half an hour at two seconds


def utc_now() -> dt.datetime:
    """The time, in UTC."""
    return dt.datetime.now(dt.UTC)


class PairMonitor:
    """Reads a pair's sources and keeps the newest snapshot; `start` does so on a thread.

    Args:
        pair: where the ledger and the namespaces are; each may be missing.
        tick: seconds between two readings of the status files.
        refresh: seconds between two reads of the secondary and the ledger; each read of the
            secondary is a charged operation, so it is read less often while all is quiet.
    """

    def __init__(
        self,
        pair: Pair,
        *,
        tick: float = 1.0,
        refresh: float = 5.0,
        clock: Callable[[], dt.datetime] = utc_now,
    ) -> None:
        self.pair = pair
        self._tick = tick
        self._refresh = refresh
        self._clock = clock
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._watchers: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._history: deque[list[float | None]] = deque(maxlen=HISTORY)
        self._rates = SendRates()
        self._drain_rates = DrainRates()
        self._syphon_events = SyphonEvents()
        self._past_syphons: list[tuple[str, list[Row]]] = []
        self._thread: threading.Thread | None = None
        self._namespace = self._primary_namespace()
        self._backlog = (
            BacklogSource(pair.secondary, self._namespace)
            if pair.secondary and self._namespace
            else None
        )
        self._operations = OperationsSource(pair.ledger) if pair.ledger else None
        self._cost = RunningCost()
        self._past: dict[str, Sequence[Row]] = {}  # events by client: they outlive it here
        self._slow: dict[str, Any] = {}
        self._slow_due: dt.datetime | None = None
        self.snapshot = assemble(
            Facts(now=clock(), pair=pair.name, primary_namespace=self._namespace)
        )
        self.number = 0  # of the snapshot

    def _primary_namespace(self) -> str | None:
        try:
            return self.pair.primary_namespace
        except Exception:  # noqa: BLE001 - a page without a name is better than none
            return None

    # ------------------------------------------------------------------ reading

    def refresh(self) -> Snapshot:
        """Read the sources now; return the new snapshot."""
        now = self._clock()
        statuses: list[Status] = []
        problem = None
        if self.pair.ledger:
            ledger = self.pair.ledger
            found, problem = guarded(lambda: read_statuses(ledger))
            statuses = found or []
        is_counted = self._slow_due is None or now >= self._slow_due
        if is_counted:
            self._read_slow(now)
        snapshot = assemble(
            Facts(
                now=now,
                pair=self.pair.name,
                primary_namespace=self._namespace or first_namespace(statuses),
                statuses=statuses,
                past_events=[*self._remember(statuses), *self._past_syphons],
                status_problem=problem,
                **self._slow,
            )
        )
        self._past_syphons = self._syphon_events.update(snapshot.syphons, snapshot.at.isoformat())
        self._sample(now, snapshot, is_counted=is_counted)
        with self._lock:
            self.snapshot = snapshot
            self.number += 1
        self.wake()
        return snapshot

    def _remember(self, statuses: list[Status]) -> list[tuple[str, Sequence[Row]]]:
        """Return the events of clients that are gone: a client removes its file when it closes."""
        living = {s.client_id: s.events for s in statuses if isinstance(s, PairStatus)}
        for client_id, events in living.items():
            self._past.pop(client_id, None)  # the newest last
            self._past[client_id] = events
        while len(self._past) > REMEMBERED:
            del self._past[next(iter(self._past))]
        return [(name, events) for name, events in self._past.items() if name not in living]

    def _read_slow(self, now: dt.datetime) -> None:
        slow: dict[str, Any] = {}
        if self._backlog:
            slow["backlog"], slow["backlog_problem"] = guarded(self._backlog.read)
            if slow["backlog_problem"]:
                slow["backlog_problem"] = "the secondary: " + slow["backlog_problem"]
        if self._operations:
            source = self._operations
            operations, problem = guarded(lambda: source.read(now))
            slow["money_problem"] = problem and f"the ledger: {problem}"
            if operations is not None:
                slow["money"], problem = guarded(lambda: self._cost.read(operations, now))
                slow["money_problem"] = problem and f"prices: {problem}"
        roles = (
            ("primary", self.pair.primary, self._namespace),
            ("secondary", self.pair.secondary, None),
        )
        slow["brokers"] = [
            health
            for role, endpoint, name in roles
            if endpoint and (health := broker_health(role, endpoint, name))
        ]
        is_quiet = self.snapshot.level in ("ok", "unknown") and not any(
            queue.active for queue in slow.get("backlog") or ()
        )
        pause = self._refresh * (4 if is_quiet else 1)
        self._slow, self._slow_due = slow, now + dt.timedelta(seconds=pause)

    def _sample(self, now: dt.datetime, snapshot: Snapshot, *, is_counted: bool) -> None:
        rates = self._rates.update(snapshot.clients)
        backlog = snapshot.backlog
        drained = self._drain_rates.update(snapshot.syphons)
        self._history.append(
            [
                round(now.timestamp(), 3),
                # Between two counts the chart draws a line, not a step.
                backlog.active if is_counted or backlog.source != "secondary" else None,
                rates["sent_primary"],
                rates["sent_backlog"],
                drained if snapshot.syphons else None,
            ]
        )

    def history(self) -> list[list[float | None]]:
        """Samples [time, backlog, sends/s to primary, sends/s to backlog, drained/s]."""
        return list(self._history)

    # ------------------------------------------------------------------ acting

    def set_paused(self, syphon_id: str, *, paused: bool) -> None:
        """Pause or resume one syphon; KeyError if no status file knows it."""
        if not self.pair.ledger:
            raise KeyError(syphon_id)
        for status in read_statuses(self.pair.ledger):
            if isinstance(status, SyphonStatus) and status.id == syphon_id:
                control_syphon(status, paused=paused)
                return
        raise KeyError(syphon_id)

    # ------------------------------------------------------------------ start and stop

    def start(self) -> None:
        """Read on a thread until `close`."""
        self._thread = threading.Thread(target=self._run, name="pairbus-monitor", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.refresh()
            except Exception:
                log.exception("the live page could not be refreshed")
            self._stop.wait(self._tick)

    def close(self) -> None:
        """Stop reading, and close the sources."""
        self._stop.set()
        if self._thread:
            self._thread.join(timeout=10)
        if self._backlog:
            self._backlog.close()

    @contextlib.contextmanager
    def watch(self) -> Any:
        """An asyncio event of the running loop that is set at each new snapshot, and by `wake`."""
        event = asyncio.Event()
        with self._lock:
            self._watchers[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            with self._lock:
                del self._watchers[event]

    def wake(self) -> None:
        """Wake all watchers: there is a new snapshot, or the server stops."""
        with self._lock:
            watchers = list(self._watchers.items())
        for event, loop in watchers:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(event.set)


def read_snapshot(pair: Pair) -> Snapshot:
    """Read the sources of a pair once; return the snapshot."""
    with contextlib.closing(PairMonitor(pair)) as monitor:
        return monitor.refresh()


def first_namespace(statuses: list[Status]) -> str | None:
    """The primary's name, as a client reports it."""
    names = [s.primary_namespace for s in statuses if isinstance(s, PairStatus)]
    return next(filter(None, names), None)
