"""The status as a text for people."""

from dataclasses import replace
from datetime import UTC, datetime

from pairbus.status import BacklogQueueStatus, Counts, EntityStatus, PairStatus

SINCE, AT = datetime(2026, 11, 16, 12, 30, tzinfo=UTC), "2026-11-16 12:30:00 UTC"


def entity(name, phase, **more):
    return EntityStatus(
        entity=name, phase=phase, since=SINCE, counts=Counts(sent_primary=7, sent_backlog=3), **more
    )


def test_status_is_a_short_readable_text():
    status = PairStatus(
        client_id="app-1",
        primary_namespace="contoso",
        primary="contoso.example",
        secondary="contoso-dr.example",
        state="open",
        unprotected="no right to send",
        entities=(
            entity("orders", "failed_over", last_error="lost"),
            entity("bills", "healthy", last_error="an old one"),
        ),
        backlog_queues=(
            BacklogQueueStatus(path="contoso/x-servicebus-transfer/0", in_rotation=True),
            BacklogQueueStatus(
                path="contoso/x-servicebus-transfer/1", in_rotation=False, reason="it is full"
            ),
        ),
    )

    assert str(status).splitlines() == [
        "contoso.example with contoso-dr.example: open",
        "  unprotected: no right to send",
        f"  orders: failed_over since {AT}; 7 to the primary, 3 to the backlog; last error: lost",
        f"  bills: healthy since {AT}; 7 to the primary, 3 to the backlog",
        "  contoso/x-servicebus-transfer/1 is out: it is full",
    ], "no queue is known to work while the client is unprotected"
    assert "  1 of 2 backlog queues in rotation" in str(replace(status, unprotected=None))
