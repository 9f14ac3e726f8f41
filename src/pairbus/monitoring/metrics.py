"""Prometheus metrics of a pair (`pip install 'pairbus[prometheus]'`).

One set of names for the live page's `/metrics` and for a process of the application. In a process::

    observer = PrometheusObserver()
    options = SendAvailabilityPairedNamespaceOptions(..., observers=[observer])
    client = pair_namespace(primary, options)
    observer.watch(client)  # adds the counts of its status, such as messages sent to the primary

Names follow Prometheus' conventions: a `pairbus_` prefix, base units, `_total` on counters. Gauges
and counters of a status are made from a snapshot (`pairbus.monitoring.snapshot`) when Prometheus
scrapes them; `EVENT_METRICS` count events and exist in the application's process only. Message ids
are in no label, because their number has no bound.
"""

from __future__ import annotations

import datetime as dt
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pairbus import events
from pairbus.events import Event
from pairbus.monitoring.records import ClientState, EntityState, Snapshot, StageCost
from pairbus.monitoring.snapshot import PHASES, Facts, assemble, unprotected

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import Collector
except ImportError as error:  # pragma: no cover
    raise ImportError("Prometheus metrics need: pip install 'pairbus[prometheus]'") from error

if TYPE_CHECKING:
    from prometheus_client import Metric

    from pairbus.status import PairStatus

__all__ = ["EVENT_METRICS", "STATUS_METRICS", "PrometheusObserver", "render"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SYPHON_STATES = ("starting", "running", "idle", "paused", "stalled", "stopped", "silent")

Sample = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric: its name without `_total`, its kind, its help and its labels."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ("pair", "entity")
    samples: Callable[[Snapshot, str], Iterable[Sample]] = lambda _snapshot, _pair: ()
    event: type[Event] | None = None  # the event that it counts; attributes of it are the labels
    amount: Callable[[Any], float] = lambda _event: 1

    @property
    def exposed_name(self) -> str:
        """The name that Prometheus stores."""
        return self.name + ("_total" if self.kind == "counter" else "")


def _entities(value: Callable[[EntityState], float]) -> Callable[[Snapshot, str], Iterable[Sample]]:
    return lambda s, pair: (((pair, e.entity), value(e)) for e in s.entities)


def _queues(name: str) -> Callable[[Snapshot, str], Iterable[Sample]]:
    return lambda s, pair: (
        ((pair, q.path), float(value))
        for q in s.backlog.queues
        if (value := getattr(q, name)) is not None
    )


def _syphons(name: str) -> Callable[[Snapshot, str], Iterable[Sample]]:
    return lambda s, pair: (
        ((pair, y.id), float(value)) for y in s.syphons if (value := getattr(y, name)) is not None
    )


def _stages(s: Snapshot) -> Sequence[StageCost]:
    return s.money.stages if s.money else ()


_QUEUE, _SYPHON = ("pair", "queue"), ("pair", "syphon")

STATUS_METRICS = (
    Definition(
        "pairbus_failed_over", "gauge", "1 while sends to the entity go to the backlog.",
        samples=_entities(lambda e: float(e.phase in ("failed_over", "draining"))),
    ),
    Definition(
        "pairbus_entity_phase", "gauge", "1 for the phase that the entity is in.",
        ("pair", "entity", "phase"),
        lambda s, pair: (
            ((pair, e.entity, phase), float(e.phase == phase))
            for e in s.entities for phase in PHASES
        ),
    ),
    Definition(
        "pairbus_entity_failing_seconds", "gauge",
        "Seconds since the first failure of an entity that is suspect or failed over.",
        samples=_entities(lambda e: e.seconds or 0.0),
    ),
    Definition(
        "pairbus_sent_messages", "counter", "Messages sent to the primary or to the backlog.",
        ("pair", "entity", "destination"),
        lambda s, pair: (
            ((pair, e.entity, place), float(getattr(e.counts, f"sent_{place}")))
            for e in s.entities for place in ("primary", "backlog")
        ),
    ),
    Definition(
        "pairbus_send_failures", "counter",
        "Attempts on the primary that failed because of an outage.",
        samples=_entities(lambda e: float(e.counts.failures)),
    ),
    Definition(
        "pairbus_pings", "counter", "Pings of the primary.",
        samples=_entities(lambda e: float(e.counts.pings)),
    ),
    Definition(
        "pairbus_clients", "gauge", "Paired clients, by state: reporting, silent or closed.",
        ("pair", "state"),
        lambda s, pair: (
            ((pair, state), float(sum(client_state(c) == state for c in s.clients)))
            for state in ("reporting", "silent", "closed")
        ),
    ),
    Definition(
        "pairbus_unprotected_clients", "gauge",
        "Clients that cannot use the secondary: their sends would fail in an outage.",
        ("pair",),
        lambda s, pair: [((pair,), float(len(unprotected(s.clients))))],
    ),
    Definition(
        "pairbus_ledger_dropped_rows", "counter",
        "Rows that clients and syphons dropped: the ledger could not be written for too long.",
        ("pair", "client"),
        lambda s, pair: (
            ((pair, row.name), float(row.ledger_dropped_rows))
            for row in s.writers
        ),
    ),
    Definition(
        "pairbus_backlog_queue_messages", "gauge", "Messages in the backlog queue.", _QUEUE,
        _queues("active"),
    ),
    Definition(
        "pairbus_backlog_queue_dead_letters", "gauge", "Dead letters of the backlog queue.", _QUEUE,
        _queues("dead_letters"),
    ),
    Definition(
        "pairbus_backlog_queue_oldest_seconds", "gauge",
        "Age of the oldest message in the backlog queue.", _QUEUE, _queues("oldest_age"),
    ),
    Definition(
        "pairbus_backlog_queue_in_rotation", "gauge",
        "1 while clients send to the backlog queue during an outage.", _QUEUE,
        _queues("in_rotation"),
    ),
    Definition(
        "pairbus_syphon_state", "gauge", "1 for the state that the syphon is in.",
        (*_SYPHON, "state"),
        lambda s, pair: (
            ((pair, y.id, state), float(y.state == state))
            for y in s.syphons for state in SYPHON_STATES
        ),
    ),
    Definition(
        "pairbus_syphon_forwarded_messages", "counter", "Messages that the syphon forwarded.",
        _SYPHON, _syphons("forwarded"),
    ),
    Definition(
        "pairbus_syphon_remaining_messages", "gauge", "Messages that are left to forward.",
        _SYPHON, _syphons("remaining"),
    ),
    Definition(
        "pairbus_syphon_dead_lettered_messages", "counter",
        "Messages that the syphon dead-lettered.", _SYPHON,
        lambda s, pair: (
            ((pair, y.id), float(sum(y.dead_lettered.values()))) for y in s.syphons
        ),
    ),
    Definition(
        "pairbus_broker_up", "gauge", "1 while an embedded broker answers.", ("role", "host"),
        lambda s, _pair: (((b.role, b.host), float(b.is_up)) for b in s.brokers),
    ),
    Definition(
        "pairbus_source_problems", "gauge", "Sources of the live page that could not be read.",
        ("pair",), lambda s, pair: [((pair,), float(len(s.problems)))],
    ),
    Definition(
        "pairbus_billable_operations", "counter", "Billable operations in the ledger.",
        ("pair", "stage"),
        lambda s, pair: (((pair, x.stage), float(x.operations)) for x in _stages(s)),
    ),
    Definition(
        "pairbus_cost", "counter", "Cost of the operations in the ledger.",
        ("pair", "stage", "currency"),
        lambda s, pair: (
            ((pair, x.stage, s.money.currency if s.money else ""), float(x.amount))
            for x in _stages(s)
        ),
    ),
)  # fmt: skip
"""Metrics of a snapshot: of one process by its observer, of all clients by the live page."""

EVENT_METRICS = (
    Definition("pairbus_suspicions", "counter", "Times a healthy entity became suspect.",
               event=events.PrimarySuspected),
    Definition("pairbus_failovers", "counter", "Failovers that were engaged.",
               event=events.FailedOver),
    Definition("pairbus_restores", "counter", "Failovers that ended, by cause.",
               ("pair", "entity", "by"), event=events.Restored),
    Definition("pairbus_failover_duration_seconds", "histogram", "How long failovers lasted.",
               event=events.Restored, amount=lambda e: e.seconds),
    Definition("pairbus_backlogged_bytes", "counter", "Bytes that backlog queues accepted.",
               event=events.MessageBacklogged, amount=lambda e: e.size),
    Definition("pairbus_ping_failures", "counter", "Pings that the primary did not accept.",
               event=events.PingSent, amount=lambda e: 0 if e.succeeded else 1),
    Definition("pairbus_ping_duration_seconds", "histogram", "How long pings took.",
               event=events.PingSent, amount=lambda e: e.seconds),
    Definition("pairbus_refusals", "counter", "Pings that found the entity missing or disabled.",
               event=events.PrimaryRefused),
    Definition("pairbus_unavailable", "counter", "Sends that neither namespace accepted.",
               event=events.PairUnavailable),
    Definition("pairbus_oversize_messages", "counter", "Messages that would not fit the backlog.",
               event=events.OversizeMessage),
    Definition("pairbus_backlog_queue_removals", "counter",
               "Times a backlog queue left the rotation.", _QUEUE,
               event=events.BacklogQueueRemoved),
    Definition("pairbus_client_faults", "counter", "Clients that were faulted.", ("pair", "side"),
               event=events.ClientFaulted),
)  # fmt: skip
"""Metrics of events: in the process of the application only."""

BUCKETS = {"pairbus_failover_duration_seconds": (1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400)}


def client_state(client: ClientState) -> str:
    """Return the state of a client in the metrics: reporting, silent or closed."""
    if client.state != "open":
        return "closed"
    return "silent" if client.is_stale else "reporting"


def pair_label(snapshot: Snapshot) -> str:
    """Return the label of the pair, the same as that of the clients' events."""
    for client in snapshot.clients:
        if client.primary and client.secondary:
            return f"{client.primary}>{client.secondary}"
    return snapshot.pair


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Make the status metrics of one snapshot."""
    pair = pair_label(snapshot)
    for metric in STATUS_METRICS:
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=metric.labels)
        for labels, value in metric.samples(snapshot, pair):
            family.add_metric(labels, value)
        yield family


class _Collector(Collector):
    def __init__(self, snapshots: Callable[[], Iterable[Snapshot]]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Metric]:
        """Make each metric once, with the samples of all snapshots."""
        merged: dict[str, Metric] = {}
        for snapshot in self._snapshots():
            for family in families(snapshot):
                known = merged.setdefault(family.name, family)
                if known is not family:
                    known.samples.extend(family.samples)
        return iter(merged.values())


def render(snapshot: Snapshot) -> str:
    """Return the status metrics of a snapshot in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(lambda: [snapshot]))
    return generate_latest(registry).decode()


class _HasStatus(Protocol):
    def status(self) -> PairStatus:
        """The state of a paired client."""


class PrometheusObserver:
    """An observer that keeps metrics of the clients of this process.

    Args:
        registry: Where the metrics are registered; Prometheus' own by default.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._metrics: dict[str, Any] = {}
        for metric in EVENT_METRICS:
            kind = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}[metric.kind]
            options = {"buckets": BUCKETS[metric.name]} if metric.name in BUCKETS else {}
            self._metrics[metric.name] = kind(
                metric.name, metric.help, list(metric.labels), registry=registry, **options
            )
        self._clients: weakref.WeakSet[Any] = weakref.WeakSet()
        registry.register(_Collector(self._snapshots))

    def watch(self, client: _HasStatus) -> None:
        """Expose the counts of `client` too; they are read when Prometheus scrapes them."""
        self._clients.add(client)

    def _snapshots(self) -> Iterator[Snapshot]:
        now = dt.datetime.now(dt.UTC)
        by_pair: dict[tuple[str, str], list[PairStatus]] = {}
        for client in list(self._clients):
            status = client.status()
            by_pair.setdefault((status.primary, status.secondary), []).append(status)
        for statuses in by_pair.values():
            yield assemble(Facts(now=now, statuses=statuses))

    def __call__(self, event: Event) -> None:
        """Count an event."""
        for metric in EVENT_METRICS:
            if isinstance(event, metric.event or ()):
                labels = ("entity" if label == "queue" else label for label in metric.labels)
                child = self._metrics[metric.name].labels(*[getattr(event, x) for x in labels])
                add = child.observe if metric.kind == "histogram" else child.inc
                add(metric.amount(event))
