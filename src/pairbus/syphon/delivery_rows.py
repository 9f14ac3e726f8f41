"""One Arrow batch of rows to deliver, column by column, and the batches that are made of it.

A column becomes a Python list when it is first used: most rows are sent unchanged, and their
session or sequence number is never needed.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pairbus.envelope.encoded import restore
from pairbus.syphon.retarget import Route
from pairbus.syphon.verdicts import DELIVER

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DeliveryRows", "Job"]


def _column(name: str, default: Any = None) -> "cached_property[list[Any]]":
    return cached_property(lambda rows: rows.column(name, default))


def _times(name: str) -> "cached_property[Any]":
    return cached_property(lambda rows: rows.times(name))


def _milliseconds(name: str) -> "cached_property[list[int | None]]":
    return cached_property(
        lambda rows: [us if us is None else us // 1000 for us in rows.times(name).to_pylist()]
    )


class DeliveryRows:
    """The rows of one Arrow batch.

    Args:
        batch: the rows.
        destination: the destination of rows that name none.
        route: changes destinations; None to keep them.
    """

    #: The encoded messages.
    message = _column("message")
    #: The verdicts on the messages.
    verdict = _column("verdict", DELIVER)
    #: Session ids to restore.
    session = _column("sessionId")
    #: Times to live to restore, in milliseconds.
    ttl = _column("timeToLive")
    #: The backlog queues of the messages.
    entity = _column("entity")
    #: The lock tokens of the messages.
    token = _column("lockToken")
    #: The sequence numbers of the messages in their backlog queues.
    sequence = _column("sequenceNumber")
    #: How often each was handed out before.
    delivery_count = _column("deliveryCount", 0)
    #: Scheduled times to restore, in milliseconds since 1970.
    scheduled = _milliseconds("scheduledEnqueueTime")
    #: Original expiry times (ttl policy: deduct), in milliseconds since 1970.
    expires_at = _milliseconds("absoluteExpiryTime")
    _locked = _times("lockedUntil")
    _received = _times("receivedTime")
    _reasons = _column("reason")
    _descriptions = _column("description")

    def __init__(
        self, batch: "pa.RecordBatch", destination: str | None, route: Route | None = None
    ) -> None:
        self.batch = batch
        self.count = batch.num_rows
        self._names = set(batch.schema.names)
        self._default = destination
        self._route = route or Route()

    def column(self, name: str, default: Any = None) -> list[Any]:
        """Return the values of a column, or the default for each row if there is no such column."""
        if name not in self._names:
            return [default] * self.count
        values: list[Any] = self.batch.column(name).to_pylist()
        return values

    @cached_property
    def destination(self) -> list[Any]:
        """The destinations of the messages."""
        chosen = self.column("destination", self._default)
        return [self._route.map(one) for one in chosen] if self._route.destinations else chosen

    def keys(self, rows: list[int]) -> list[tuple[str, int, str | None, int | None]]:
        """Return the keys by which the receipts of some rows are found."""
        ids, enqueued = self.column("messageId"), self.times("enqueuedTime").to_pylist()
        return [(self.entity[i], self.sequence[i], ids[i], enqueued[i]) for i in rows]

    def locked_until(self, row: int) -> float | None:
        """Return when a row's lock expires, in seconds since 1970."""
        us = self._locked[row].as_py()
        return None if us is None else us / 1e6

    def received_at(self, row: int) -> float | None:
        """Return when a row was received, in seconds since 1970."""
        us = self._received[row].as_py()
        return None if us is None else us / 1e6

    def times(self, name: str) -> Any:
        """Return a column of times, as microseconds since 1970."""
        import pyarrow as pa

        if name not in self._names:
            return pa.nulls(self.count, pa.int64())
        return self.batch.column(name).cast(pa.timestamp("us", "UTC")).view(pa.int64())

    def only_destination(self) -> str | None:
        """Return the destination if all rows are to be delivered to the same one."""
        first = self.destination[0]
        if (
            self.verdict.count(DELIVER) == self.count
            and self.destination.count(first) == self.count
        ):
            return first or ""
        return None

    @property
    def is_restored(self) -> bool:
        """Whether nothing is to be restored: all messages are sent as they are."""
        return all(
            name not in self._names or self.batch.column(name).null_count == self.count
            for name in ("sessionId", "timeToLive", "scheduledEnqueueTime")
        )

    def restored(self, indices: list[int], now: int) -> list[Any]:
        """Return the messages of these rows as they are to be sent, `now` in milliseconds."""
        if self.is_restored:
            return [self.message[i] for i in indices]
        return [
            restore(
                self.message[i],
                session_id=self.session[i],
                time_to_live=self.ttl[i],
                scheduled=self.scheduled[i],
                now=now,
                expires_at=self.expires_at[i],
            )
            for i in indices
        ]

    def reason(self, row: int, default: str = "Rejected") -> tuple[str, str]:
        """Return why a row is dead-lettered or completed: reason and description."""
        return str(self._reasons[row] or default), str(self._descriptions[row] or "")


@dataclass(frozen=True, slots=True)
class Job:
    """One batch for one destination: rows and their messages, as they are sent."""

    rows: list[int]
    messages: list[bytes]

    def split(self, at: int) -> "tuple[Job, Job]":
        """Split it into the first `at` messages and the rest."""
        return Job(self.rows[:at], self.messages[:at]), Job(self.rows[at:], self.messages[at:])
