"""Events as OpenTelemetry spans (`pip install 'pairbus[otel]'`).

    options = SendAvailabilityPairedNamespaceOptions(..., observers=[OpenTelemetryObserver()])

Spans and attributes follow the semantic conventions for messaging: `messaging.system` is
`servicebus`, a redirected send is a producer span `send <backlog queue>` within the caller's own
span, a ping is a client span. A failover is one span, from the first failure to the restore (or to
the close of the client). Metrics are those of `pairbus.monitoring.metrics`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pairbus import events
from pairbus._version import __version__
from pairbus.events import Event

try:
    from opentelemetry import trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
except ImportError as error:  # pragma: no cover
    raise ImportError("pairbus.monitoring.tracing needs: pip install 'pairbus[otel]'") from error

__all__ = ["OpenTelemetryObserver"]

SYSTEM = "servicebus"


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000_000)


class OpenTelemetryObserver:
    """An observer that makes spans of the events of one paired client.

    Events do not name their client: give each client an observer of its own.

    Args:
        tracer_provider: Where spans go; the global provider by default.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("pairbus", __version__, tracer_provider)
        self._open: dict[tuple[str, str], Span] = {}

    def __call__(self, event: Event) -> None:
        """Turn an event into spans."""
        key = (event.pair, event.entity)
        attributes = self._attributes(event)
        match event:
            case events.FailedOver(reason=reason, failing_since=since):
                span = self._open.get(key)
                if span is not None:  # the primary failed again while the entity was draining
                    span.add_event(event.name, timestamp=_nanoseconds(event.at))
                    return
                self._open[key] = self._tracer.start_span(
                    f"failover {event.entity}",
                    kind=SpanKind.INTERNAL,
                    attributes={**attributes, "error.type": reason.partition(":")[0] or "forced"},
                    start_time=_nanoseconds(since),
                )
            case events.Restored(by=by):
                span = self._open.pop(key, None)
                if span is not None:
                    span.set_attribute("pairbus.restored_by", by)
                    span.end(_nanoseconds(event.at))
            case events.MessageBacklogged(backlog_queue=queue, messages=count, size=size):
                span = self._tracer.start_span(
                    f"send {queue}",
                    kind=SpanKind.PRODUCER,
                    attributes={
                        **attributes,
                        "messaging.destination.name": queue,
                        "messaging.operation.name": "send",
                        "messaging.operation.type": "send",
                        "messaging.batch.message_count": count,
                        "messaging.message.envelope.size": size,
                        "pairbus.entity": event.entity,
                    },
                )
                span.end()
            case events.PingSent(succeeded=succeeded, reason=reason, seconds=seconds):
                self._ping(event, attributes, succeeded, reason, seconds)
            case events.PairUnavailable(primary=primary, secondary=secondary):
                reasons = {"pairbus.primary": primary, "pairbus.secondary": secondary}
                trace.get_current_span().add_event("pairbus.unavailable", reasons)
            case events.ClientClosed():
                # No restore will be reported, and a span that never ends is never exported.
                for opened in [opened for opened in self._open if opened[0] == event.pair]:
                    span = self._open.pop(opened)
                    span.add_event(event.name, timestamp=_nanoseconds(event.at))
                    span.end(_nanoseconds(event.at))
            case _:
                span = self._open.get(key)
                if span is not None:
                    span.add_event(event.name, timestamp=_nanoseconds(event.at))

    def _ping(
        self, event: Event, attributes: dict[str, Any], succeeded: bool, reason: str, seconds: float
    ) -> None:
        outcome = {} if succeeded else {"error.type": reason.partition(":")[0]}
        over = self._open.get((event.pair, event.entity))
        span = self._tracer.start_span(
            f"ping {event.entity}",
            context=trace.set_span_in_context(over) if over is not None else None,
            kind=SpanKind.CLIENT,
            attributes={**attributes, **outcome, "messaging.operation.name": "ping"},
            start_time=_nanoseconds(event.at - timedelta(seconds=seconds)),
        )
        if not succeeded:
            span.set_status(Status(StatusCode.ERROR, reason))
        span.end(_nanoseconds(event.at))

    @staticmethod
    def _attributes(event: Event) -> dict[str, Any]:
        return {
            "messaging.system": SYSTEM,
            "messaging.destination.name": event.entity,
            "server.address": event.pair.partition(">")[0],
        }
