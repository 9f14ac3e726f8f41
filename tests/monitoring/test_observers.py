"""Events as metrics and spans."""

from datetime import UTC, datetime, timedelta

import pytest

from pairbus import events
from pairbus.status import BacklogQueueStatus, Counts, EntityStatus, PairStatus

AT = datetime(2026, 1, 1, tzinfo=UTC)
BASE = {"pair": "a>b", "entity": "orders"}


def at(moment, kind, /, **data):
    return kind(at=AT + timedelta(seconds=moment), **{**BASE, **data})


STORY = [
    at(0, events.PrimarySuspected, reason="refused", deadline=AT + timedelta(seconds=60)),
    at(60, events.FailedOver, reason="ServiceBusConnectionError: refused", failing_since=AT),
    at(
        61,
        events.MessageBacklogged,
        backlog_queue="a/q/0",
        messages=3,
        size=300,
        message_ids=("1",),
    ),
    at(120, events.PingSent, succeeded=False, reason="OperationTimeoutError: late", seconds=30.0),
    at(130, events.PrimaryRefused, reason="gone"),
    at(140, events.OversizeMessage, size=2, limit=1),
    at(150, events.BacklogQueueRemoved, entity="a/q/0", reason="full", until=AT),
    at(160, events.BacklogQueueRestored, entity="a/q/0"),
    at(170, events.PairUnavailable, primary="p", secondary="s"),
    at(180, events.PingSent, succeeded=True, seconds=0.5),
    at(180, events.Draining, by="ping"),
    at(180, events.FenceOverdue, backlog_queue="a/q/0", seconds=60.0),
    at(180, events.OrderNotKept, reason="a sender changed its backlog queue"),
    at(180, events.Restored, by="ping", seconds=120.0),
    at(190, events.RoutingForced, to="primary"),
    at(191, events.RoutingReleased),
    at(195, events.Unprotected, entity="", reason="the secondary cannot be reached"),
    at(196, events.Protected, entity=""),
    at(200, events.ClientFaulted, entity="", side="paired", reason="r"),
    at(200, events.ClientClosed, entity=""),
]


def test_story_has_every_event():
    assert {type(event).__name__ for event in STORY} == set(events.__all__) - {"Event"}


def test_prometheus_counts_events_and_statuses():
    prometheus = pytest.importorskip("prometheus_client")
    from pairbus.monitoring.metrics import PrometheusObserver

    registry = prometheus.CollectorRegistry()
    observer = PrometheusObserver(registry)

    class Client:
        def status(self):
            return PairStatus(
                client_id="c",
                primary_namespace="a",
                primary="a",
                secondary="b",
                state="open",
                entities=(
                    EntityStatus(
                        entity="orders",
                        phase="healthy",
                        since=AT,
                        counts=Counts(sent_primary=7, sent_backlog=3, pings=2, failures=2),
                    ),
                ),
                backlog_queues=(
                    BacklogQueueStatus(path="a/q/0", in_rotation=True),
                    BacklogQueueStatus(path="a/q/1", in_rotation=False),
                ),
            )

    client = Client()
    observer.watch(client)
    for event in STORY:
        observer(event)

    def value(name, **labels):
        return registry.get_sample_value(f"pairbus_{name}", {**BASE, **labels})

    assert value("suspicions_total") == 1
    assert value("failovers_total") == 1
    assert value("restores_total", by="ping") == 1
    assert value("failed_over") == 0
    assert value("failover_duration_seconds_sum") == 120
    assert value("backlogged_bytes_total") == 300
    assert value("pings_total") == 2
    assert value("ping_failures_total") == 1
    assert value("ping_duration_seconds_count") == 2
    assert value("refusals_total") == 1
    assert value("unavailable_total") == 1
    assert value("oversize_messages_total") == 1
    assert value("sent_messages_total", destination="primary") == 7
    assert value("sent_messages_total", destination="backlog") == 3
    assert value("send_failures_total") == 2

    def of_queue(name, queue):
        labels = {"pair": "a>b", "queue": queue}
        return registry.get_sample_value(f"pairbus_backlog_queue_{name}", labels)

    assert of_queue("removals_total", "a/q/0") == 1
    assert of_queue("in_rotation", "a/q/0") == 1
    assert of_queue("in_rotation", "a/q/1") == 0
    faults = {"pair": "a>b", "side": "paired"}
    assert registry.get_sample_value("pairbus_client_faults_total", faults) == 1


def test_no_metric_of_the_page_has_the_name_of_one_of_the_process():
    pytest.importorskip("prometheus_client")
    from pairbus.monitoring import metrics

    names = [metric.name for metric in (*metrics.STATUS_METRICS, *metrics.EVENT_METRICS)]
    assert len(names) == len(set(names))


def test_opentelemetry_makes_spans_of_what_happened():
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from pairbus.monitoring.tracing import OpenTelemetryObserver

    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    observer = OpenTelemetryObserver(tracers)

    for event in STORY:
        observer(event)

    spans = {span.name: span for span in exporter.get_finished_spans()}
    failover = spans["failover orders"]
    assert (failover.end_time - failover.start_time) / 1e9 == 180
    assert failover.attributes["error.type"] == "ServiceBusConnectionError"
    assert failover.attributes["pairbus.restored_by"] == "ping"
    send = spans["send a/q/0"]
    assert send.kind.name == "PRODUCER"
    assert send.attributes["messaging.system"] == "servicebus"
    assert send.attributes["messaging.batch.message_count"] == 3
    pings = [span for span in exporter.get_finished_spans() if span.name == "ping orders"]
    assert [span.status.is_ok for span in pings] == [False, True]
    assert all(span.parent.span_id == failover.context.span_id for span in pings)
    tracers.shutdown()


def test_failover_that_lasts_until_the_client_is_closed_is_traced_too():
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from pairbus.monitoring.tracing import OpenTelemetryObserver

    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    observer = OpenTelemetryObserver(tracers)
    [failed_over] = [event for event in STORY if event.name == "FailedOver"]

    observer(failed_over)
    observer(events.ClientClosed(at=failed_over.at, pair=failed_over.pair, entity=""))

    [span] = exporter.get_finished_spans()
    assert span.name == "failover orders"
    assert [event.name for event in span.events] == ["ClientClosed"]
    assert observer._open == {}  # noqa: SLF001 - a span that is kept shows in memory only
    tracers.shutdown()


def test_failover_that_is_engaged_again_while_draining_stays_one_span():
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from pairbus.monitoring.tracing import OpenTelemetryObserver

    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    observer = OpenTelemetryObserver(tracers)

    observer(at(60, events.FailedOver, reason="refused", failing_since=AT))
    observer(at(90, events.Draining, by="ping"))
    observer(
        at(100, events.FailedOver, reason="refused", failing_since=AT + timedelta(seconds=100))
    )
    observer(at(120, events.Restored, by="fence", seconds=60.0))

    [span] = exporter.get_finished_spans()
    assert (span.end_time - span.start_time) / 1e9 == 120
    assert [event.name for event in span.events] == ["Draining", "FailedOver"]
    tracers.shutdown()
