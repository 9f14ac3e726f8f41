"""Events as Prometheus metrics (`pip install 'pairbus[prometheus]'`).

    observer = PrometheusObserver()
    options = SendAvailabilityPairedNamespaceOptions(..., observers=[observer])
    client = pair_namespace(primary, options)
    observer.watch(client)  # adds what is counted and not told: sends to the primary

Names follow Prometheus' conventions: a `pairbus_` prefix, base units, `_total` on counters. The
labels are `pair` and `entity`; message ids, which have no bound, are in none.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from pairbus import events
from pairbus.events import Event

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "pairbus.monitoring.prometheus needs: pip install 'pairbus[prometheus]'"
    ) from error

if TYPE_CHECKING:
    from prometheus_client import Metric

    from pairbus.status import PairStatus

__all__ = ["PrometheusObserver"]

_ENTITY = ("pair", "entity")


class _HasStatus(Protocol):
    def status(self) -> PairStatus:
        """The state of a paired client."""


class PrometheusObserver:
    """An observer that keeps metrics of what happens to a pair.

    Args:
        registry: Where the metrics are registered; Prometheus' own by default.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, text: str, labels: Iterable[str] = _ENTITY) -> Counter:
            return Counter(f"pairbus_{name}", text, list(labels), registry=registry)

        self._suspected = counter("suspicions", "First outages of an entity that was healthy")
        self._failed_over = counter("failovers", "Failovers that were engaged")
        self._restored = counter("restores", "Failovers that ended", (*_ENTITY, "by"))
        self._is_over = Gauge(
            "pairbus_failed_over",
            "Whether sends to the entity go to the backlog",
            list(_ENTITY),
            registry=registry,
        )
        self._lasted = Histogram(
            "pairbus_failover_duration_seconds",
            "How long failovers lasted",
            list(_ENTITY),
            buckets=(1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600),
            registry=registry,
        )
        self._backlogged = counter("backlogged_messages", "Messages that a backlog queue took")
        self._bytes = counter("backlogged_bytes", "Bytes of the messages that a backlog queue took")
        self._pings = counter("pings", "Pings of the primary", (*_ENTITY, "outcome"))
        self._ping_time = Histogram(
            "pairbus_ping_duration_seconds",
            "How long pings took",
            list(_ENTITY),
            registry=registry,
        )
        self._refused = counter("refusals", "Pings that found the entity missing or disabled")
        self._unavailable = counter("unavailable", "Sends that neither namespace took")
        self._oversize = counter("oversize_messages", "Messages that would not fit the backlog")
        self._removed = counter("backlog_queue_removals", "Backlog queues that left the rotation")
        self._in_rotation = Gauge(
            "pairbus_backlog_queue_in_rotation",
            "Whether a backlog queue that once failed is in rotation",
            list(_ENTITY),
            registry=registry,
        )
        self._faults = counter("client_faults", "Clients that were faulted", ("pair", "side"))
        self._collector = _StatusCollector()
        registry.register(self._collector)

    def watch(self, client: _HasStatus) -> None:
        """Show the counts of `client` too: they are read when Prometheus asks, and cost no send."""
        self._collector.clients.add(client)

    def __call__(self, event: Event) -> None:
        """Count an event."""
        labels = (event.pair, event.entity)
        match event:
            case events.PrimarySuspected():
                self._suspected.labels(*labels).inc()
            case events.FailedOver():
                self._failed_over.labels(*labels).inc()
                self._is_over.labels(*labels).set(1)
            case events.Restored(by=by, seconds=seconds):
                self._restored.labels(*labels, by).inc()
                self._is_over.labels(*labels).set(0)
                self._lasted.labels(*labels).observe(seconds)
            case events.MessageBacklogged(messages=messages, size=size):
                self._backlogged.labels(*labels).inc(messages)
                self._bytes.labels(*labels).inc(size)
            case events.PingSent(succeeded=succeeded, seconds=seconds):
                self._pings.labels(*labels, "success" if succeeded else "failure").inc()
                self._ping_time.labels(*labels).observe(seconds)
            case events.PrimaryRefused():
                self._refused.labels(*labels).inc()
            case events.PairUnavailable():
                self._unavailable.labels(*labels).inc()
            case events.OversizeMessage():
                self._oversize.labels(*labels).inc()
            case events.BacklogQueueRemoved():
                self._removed.labels(*labels).inc()
                self._in_rotation.labels(*labels).set(0)
            case events.BacklogQueueRestored():
                self._in_rotation.labels(*labels).set(1)
            case events.ClientFaulted(side=side):
                self._faults.labels(event.pair, side).inc()
            case _:
                pass  # routing and close change no number


class _StatusCollector(Collector):
    """Reads the counts of paired clients when it is asked for them."""

    def __init__(self) -> None:
        self.clients: weakref.WeakSet[Any] = weakref.WeakSet()

    def collect(self) -> Iterator[Metric]:
        sent = CounterMetricFamily(
            "pairbus_sent_messages", "Messages sent", labels=[*_ENTITY, "destination"]
        )
        failures = CounterMetricFamily(
            "pairbus_send_failures", "Attempts on the primary that met an outage", labels=_ENTITY
        )
        queues = GaugeMetricFamily(
            "pairbus_backlog_queues", "Backlog queues", labels=["pair", "state"]
        )
        for client in list(self.clients):
            status = client.status()
            pair = f"{status.primary}>{status.secondary}"
            for entity in status.entities:
                labels = [pair, entity.entity]
                sent.add_metric([*labels, "primary"], entity.counts.sent_primary)
                sent.add_metric([*labels, "backlog"], entity.counts.sent_backlog)
                failures.add_metric(labels, entity.counts.failures)
            in_rotation = sum(queue.in_rotation for queue in status.backlog_queues)
            queues.add_metric([pair, "in_rotation"], in_rotation)
            queues.add_metric([pair, "removed"], len(status.backlog_queues) - in_rotation)
        yield sent
        yield failures
        yield queues
