"""Receiving: what is there now, or a doorbell that rings when something comes."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pairbus.amqp.composite import Composite
from pairbus.amqp.errors import INTERNAL_ERROR
from pairbus.amqp.events import Delivery, Disposed, Flowed
from pairbus.amqp.link import Link
from pairbus.amqp.performatives import (
    ACCEPTED,
    RCV_FIRST,
    RCV_SECOND,
    RELEASED,
    SND_SETTLED,
    SND_UNSETTLED,
    Error,
    Modified,
    Rejected,
    Source,
    Target,
)
from pairbus.amqp.types import Symbol
from pairbus.client.errors import LeanError, OperationTimeoutError, RejectedError
from pairbus.client.links import LinkUser
from pairbus.client.received import Received

if TYPE_CHECKING:
    from pairbus.client.connection import LeanConnection

NEXT_SESSION: Final = object()
"""As `session_id`: the next session that is free."""

_SESSION_FILTER = Symbol("com.microsoft:session-filter")
_FIRST_SLICE = 64  # messages asked for first when bytes are bounded and sizes not known yet
_MOST_SLICE = 512  # and at most at once: the next ones may be larger than those before


class Mode(enum.Enum):
    """What receiving does to a message in its queue."""

    PEEK_LOCK = "peek-lock"
    RECEIVE_AND_DELETE = "receive-and-delete"


def dead_letter(reason: str, description: str = "") -> Rejected:
    """The outcome that moves a message to the dead-letter queue."""
    info = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
    return Rejected(Error("com.microsoft:dead-letter", description or None, info))


OUTCOMES: dict[str, Composite] = {
    "completed": ACCEPTED,
    "abandoned": Modified(delivery_failed=True, undeliverable_here=False),
    "defered": Modified(delivery_failed=True, undeliverable_here=True),
    "released": RELEASED,
}
"""Outcomes by the names that `$management` uses (its spelling, too)."""


class LeanReceiver(LinkUser):
    """A receiver; credit is only out while a call is."""

    def __init__(
        self,
        connection: LeanConnection,
        entity: str,
        mode: Mode = Mode.PEEK_LOCK,
        session_id: Any = None,
    ) -> None:
        super().__init__(connection, entity)
        self.mode = mode
        self.session_id = session_id
        self._buffer: list[Delivery] = []
        self._mean_bytes = 0  # of the messages that came last
        self.rung_bytes = 0  # of the message that rang last: receiving it was charged
        self.broke_off = False  # the last `receive_now` did: more may be locked than it gave
        self._bell = False
        self._has_rung = False
        self._is_draining = False
        self._settling: dict[int, LeanError | object | None] = {}

    def _attach(self) -> None:
        connection = self.connection
        is_locking = self.mode is Mode.PEEK_LOCK
        filters = None
        if self.session_id is not None:
            wanted = None if self.session_id is NEXT_SESSION else self.session_id
            filters = {_SESSION_FILTER: wanted}
        self.link = connection.engine.attach_receiver(
            connection.session,
            connection.new_name("receiver", self.entity),
            source=Source(connection.endpoint.address(self.entity), filter=filters),
            target=Target(connection.container_id),
            snd_settle_mode=SND_UNSETTLED if is_locking else SND_SETTLED,
            rcv_settle_mode=RCV_SECOND if is_locking else RCV_FIRST,
            context=self,
        )

    def on_attached(self, link: Link) -> None:
        """Note the session that was accepted."""
        super().on_attached(link)
        source = link.attach.source if link.attach is not None else None
        if self.session_id is not None and source is not None and source.filter:
            self.session_id = source.filter.get(_SESSION_FILTER, self.session_id)

    # -- receiving -----------------------------------------------------------------------------

    def receive_now(
        self, max_messages: int, max_bytes: int | None = None, timeout: float | None = None
    ) -> list[Received]:
        """What is there now, up to `max_messages`, without waiting for more.

        `max_bytes` bounds by estimate: no further messages are asked for once it is reached, and
        sizes are guessed from those that came before.

        Where it fails when some have arrived, it gives these, and `broke_off` says so: others may
        have been handed out, and stay locked.

        Raises:
            LinkDetachedError, ConnectionLostError: the link or connection is gone.
            OperationTimeoutError: the broker did not answer.
        """
        return list(map(_received, self._receive_now(max_messages, max_bytes, timeout)))

    def take_now(
        self, max_messages: int, max_bytes: int | None = None, timeout: float | None = None
    ) -> list[tuple[bytes, bytes]]:
        """The same as `receive_now`, for many: just the tag and the bytes of each."""
        return [
            (one.tag, one.payload) for one in self._receive_now(max_messages, max_bytes, timeout)
        ]

    def _receive_now(
        self, max_messages: int, max_bytes: int | None, timeout: float | None
    ) -> list[Delivery]:
        deadline = self.connection.deadline(timeout)
        received: list[Delivery] = []
        size = 0
        self.broke_off = False
        while len(received) < max_messages:
            ask = max_messages - len(received)
            if max_bytes is not None:
                if size >= max_bytes:
                    break
                mean = size // len(received) if received else self._mean_bytes
                guess = max(1, (max_bytes - size) // mean) if mean else _FIRST_SLICE
                ask = min(ask, guess, _MOST_SLICE)
            try:
                got = self._receive_drained(ask, deadline)
            except LeanError:
                if not received:
                    raise
                self.broke_off = True
                break
            received += got
            size += sum([len(one.payload) for one in got])
            if len(got) < ask:
                break
        if received:
            self._mean_bytes = size // len(received)
        return received

    def _receive_drained(self, count: int, deadline: float) -> list[Delivery]:
        connection = self.connection
        with connection.lock:
            link = self.active_link()
            self._is_draining = True
            connection.engine.flow(link, count, drain=True)
            done = False
            try:
                done = connection.wait_until(
                    lambda: not self._is_draining or len(self._buffer) >= count or self.is_detached,
                    deadline,
                )
            except LeanError:
                if not self._buffer:
                    raise
            self._is_draining = False
            received, self._buffer = self._buffer, []
            if not received:
                self.check()
            if not done and not received:
                raise OperationTimeoutError(f"receiving from {self.entity}")
            self.broke_off = not done or (self.is_detached and len(received) < count)
            return received

    def receive(
        self, max_messages: int, max_wait: float, timeout: float | None = None
    ) -> list[Received]:
        """Wait up to `max_wait` seconds for the first message, then take what is there."""
        connection = self.connection
        with connection.lock:
            link = self.active_link()
            connection.engine.flow(link, max_messages)
            connection.wait_until(
                lambda: bool(self._buffer) or self.is_detached, connection.deadline(max_wait)
            )
            left = max_messages - len(self._buffer)
            self.check()
            if left:
                self._is_draining = True
                connection.engine.flow(link, link.credit, drain=True)
                if not connection.wait_until(
                    lambda: not self._is_draining or link.credit == 0 or self.is_detached,
                    connection.deadline(timeout),
                ):
                    raise OperationTimeoutError(f"receiving from {self.entity}")
            self._is_draining = False
            received, self._buffer = self._buffer, []
            return list(map(_received, received))

    def wait(self, seconds: float) -> bool:
        """Long poll: True as soon as there is a message, False after `seconds` without one.

        The message is released again: this is a doorbell, and costs one receive.
        """
        return bool(self.connection.wait_any([self], seconds))

    def arm(self) -> None:
        """Ask for one message, as a doorbell; the caller holds the lock."""
        link = self.active_link()
        self._bell = True
        self._has_rung = False
        self._is_draining = False
        self.connection.engine.flow(link, 1)

    def disarm(self) -> None:
        """Take the doorbell's credit back; the caller holds the lock."""
        if self.link is not None and not self.is_detached and self.link.credit > 0:
            self._is_draining = True
            self.connection.engine.flow(self.link, self.link.credit, drain=True)
        else:
            self._is_draining = False

    @property
    def has_rung(self) -> bool:
        """A message came, or the link went, since `arm`."""
        return self._has_rung or self.is_detached

    @property
    def is_quiet(self) -> bool:
        """No credit of the doorbell is out any more, and what rang is back in the queue."""
        return self.is_detached or not (self._is_draining or self._unanswered)

    def take_ring(self) -> bool:
        """Whether it rang, and put the doorbell away.

        Raises:
            LinkDetachedError: it went instead.
            OperationTimeoutError: the broker did not say that it has the message back.
        """
        self._bell = False
        self._is_draining = False
        rung, self._has_rung = self._has_rung, False
        unanswered, self._unanswered = self._unanswered, 0
        self._settling.clear()
        if unanswered:
            self.check()
            raise OperationTimeoutError(f"giving back what rang at {self.entity}")
        if not rung:
            self.check()
        return rung

    def on_deliveries(self, events: Sequence[Delivery]) -> None:
        """Keep them, or let them ring and give them back."""
        if not self._bell:
            self._buffer += events
            return
        for event in events:
            self._has_rung = True
            self.rung_bytes = len(event.payload)
            if event.link.credit == 0:
                self._is_draining = False
            if not event.settled:
                # Whoever is told that it rang, and reads, must find it: the broker is to confirm.
                self._settling[event.delivery_id] = _OPEN
                self._unanswered += 1
                self.connection.engine.settle(
                    event.link, event.delivery_id, state=RELEASED, settled=False
                )

    def on_flow(self, event: Flowed) -> None:
        """A sender that has given all credit back is drained."""
        if event.link is not None and event.link.credit == 0:
            self._is_draining = False

    # -- settling ------------------------------------------------------------------------------

    def settle(
        self,
        received: Sequence[Received],
        outcome: str | Composite = "completed",
        timeout: float | None = None,
    ) -> list[LeanError | None]:
        """Settle on this link, all in one go, and wait for the broker's word on each.

        Gives None for what was settled and the error (a lost lock, say) for what was not.
        """
        state = OUTCOMES[outcome] if isinstance(outcome, str) else outcome
        connection = self.connection
        deadline = connection.deadline(timeout)
        with connection.lock:
            link = self.active_link()
            settling = self._settling
            for first, last in _ranges([one.delivery_id for one in received]):
                connection.engine.settle(link, first, last, state=state, settled=False)
            for one in received:
                settling[one.delivery_id] = _OPEN
            self._unanswered = len(received)
            done = connection.wait_until(
                lambda: self._unanswered <= 0 or self.is_detached, deadline
            )
            answers = [settling.pop(one.delivery_id, None) for one in received]
            self.check()
            if not done:
                raise OperationTimeoutError(f"settling on {self.entity}")
            return [answer if isinstance(answer, LeanError) else None for answer in answers]

    def complete(self, received: Sequence[Received], timeout: float | None = None) -> None:
        """Complete on this link; raises the first error there is."""
        for error in self.settle(received, "completed", timeout):
            if error is not None:
                raise error

    def release(self, received: Sequence[Received]) -> None:
        """Give back without counting a delivery; nothing is waited for."""
        connection = self.connection
        with connection.lock:
            link = self.active_link()
            for first, last in _ranges([one.delivery_id for one in received]):
                connection.engine.settle(link, first, last, state=RELEASED)
            connection.flush()

    def on_settled(self, event: Disposed) -> None:
        """The broker settled what we told the outcome of."""
        settling = self._settling
        if not settling or not event.settled:
            return
        answer: LeanError | None = None
        if isinstance(event.state, Rejected) and event.state.error is not None:
            answer = RejectedError.of(event.state.error, INTERNAL_ERROR, "not settled")
        count = (event.last - event.first) & 0xFFFFFFFF
        numbers = (
            range(event.first, event.first + count + 1)
            if count < len(settling)
            else [n for n in settling if 0 <= n - event.first <= count]
        )
        for number in numbers:
            if settling.get(number) is _OPEN:
                settling[number] = answer
                self._unanswered -= 1

    _unanswered = 0


_OPEN: Final = object()


def _received(one: Delivery) -> Received:
    return Received(one.payload, one.tag, one.delivery_id)


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of consecutive delivery numbers: one disposition each."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
