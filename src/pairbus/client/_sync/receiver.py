# generated from src/pairbus/client/_async/receiver.py by tools/gen_unasync.py; edit that one
"""Receiving: the messages that are available now, or a long poll until one arrives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pairbus.amqp.composite import Composite
from pairbus.amqp.errors import INTERNAL_ERROR
from pairbus.amqp.events import Delivery, Disposed, Flowed
from pairbus.amqp.link import Link
from pairbus.amqp.performatives import (
    RCV_FIRST,
    RCV_SECOND,
    RELEASED,
    SND_SETTLED,
    SND_UNSETTLED,
    Rejected,
    Source,
    Target,
)
from pairbus.amqp.types import Symbol
from pairbus.client._sync.links import LinkUser
from pairbus.client.credit import CreditWindow
from pairbus.client.errors import ClientError, OperationTimeoutError, RejectedError
from pairbus.client.received import Received
from pairbus.client.settlement import NEXT_SESSION, OUTCOMES, Mode, Settlements, Ticket, ranges

if TYPE_CHECKING:
    from pairbus.client._sync.connection import BulkConnection

_SESSION_FILTER = Symbol("com.microsoft:session-filter")
_LOCK_LOST = "com.microsoft:message-lock-lost"


class BulkReceiver(LinkUser):
    """A receiver; it gives credit only during a call."""

    def __init__(
        self,
        connection: BulkConnection,
        entity: str,
        mode: Mode = Mode.PEEK_LOCK,
        session_id: Any = None,
    ) -> None:
        super().__init__(connection, entity)
        self.mode = mode
        self.session_id = session_id
        self.arrived_bytes = 0
        """The size of the message that ended the last long poll: receiving it was charged."""
        self.broke_off = False
        """The last receive failed half-way: more messages may be locked than it returned."""
        self.is_draining = False
        """The broker has not yet confirmed that it used or returned all credit."""
        self.settlements = Settlements()
        self.long_poll: LongPoll | None = None
        self._buffer: list[Delivery] = []
        self._mean_bytes = 0  # of the messages of the last receive
        self._last_number = -1  # of the last delivery
        self._first_number = 0  # earlier deliveries arrived on a previous link

    def _attach(self) -> None:
        connection = self.connection
        is_locking = self.mode is Mode.PEEK_LOCK
        filters = None
        if self.session_id is not None:
            wanted = None if self.session_id is NEXT_SESSION else self.session_id
            filters = {_SESSION_FILTER: wanted}
        self._first_number = self._last_number + 1
        self.link = self.mux.engine.attach_receiver(
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

    # -- receiving

    def receive_now(
        self, max_messages: int, max_bytes: int | None = None, timeout: float | None = None
    ) -> list[Received]:
        """Return up to `max_messages` messages that are available now, without waiting for more.

        `max_bytes` is an approximate limit: no further messages are requested once it is reached,
        and sizes are estimated from earlier messages.

        If it fails after some messages have arrived, it returns these and sets `broke_off`: the
        broker may have delivered others, which stay locked.

        Raises:
            LinkDetachedError, ConnectionLostError: the link or connection is gone.
            OperationTimeoutError: the broker did not answer.
        """
        return list(map(_received, self._receive_now(max_messages, max_bytes, timeout)))

    def take_now(
        self, max_messages: int, max_bytes: int | None = None, timeout: float | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Like `receive_now`, but only the delivery tag and the bytes of each message."""
        found = self._receive_now(max_messages, max_bytes, timeout)
        return [(one.tag, one.payload) for one in found]

    def _receive_now(
        self, max_messages: int, max_bytes: int | None, timeout: float | None
    ) -> list[Delivery]:
        mux, deadline = self.mux, self.connection.deadline(timeout)
        window = CreditWindow(max_messages, max_bytes, self._mean_bytes)
        with mux.condition:
            self.revive(deadline)
            link = self.active_link()
            self.long_poll = None  # so that a cancelled long poll does not take the messages
            is_complete = False
            try:
                while True:
                    window.take(self._buffer)
                    if window.grow():
                        self.is_draining = True
                        mux.engine.flow(link, window.credit, drain=True)
                    elif window.credit <= 0:
                        is_complete = True
                        break
                    is_complete = mux.wait_until(
                        lambda: (
                            not self.is_draining
                            or self.is_detached
                            or window.is_due(len(self._buffer))
                        ),
                        deadline,
                    )
                    is_drained = not self.is_draining and len(self._buffer) < window.requested
                    if not is_complete or is_drained or self.is_detached:
                        break
            except ClientError:
                if not self._buffer:
                    raise
                is_complete = False
            self.is_draining = False
            window.take(self._buffer)
            self._mean_bytes = window.mean_bytes
            received, self._buffer = self._buffer[:max_messages], self._buffer[max_messages:]
            if not received:
                self.check()
                if not is_complete:
                    raise OperationTimeoutError(f"receiving from {self.entity}")
            is_cut = self.is_detached and len(received) < window.requested
            self.broke_off = is_cut or not is_complete
            return received

    def receive(
        self, max_messages: int, max_wait: float, timeout: float | None = None
    ) -> list[Received]:
        """Wait up to `max_wait` seconds for the first message, then take those available."""
        mux, connection = self.mux, self.connection
        with mux.condition:
            self.revive(connection.deadline(timeout))
            link = self.active_link()
            self.long_poll = None
            left = max_messages - len(self._buffer)  # some may have come after an earlier receive
            if left > 0:
                mux.engine.flow(link, left)
                mux.wait_until(
                    lambda: bool(self._buffer) or self.is_detached, connection.deadline(max_wait)
                )
                left = max_messages - len(self._buffer)
            self.check()
            if left > 0:
                self.is_draining = True
                mux.engine.flow(link, link.credit, drain=True)
                if not mux.wait_until(
                    lambda: not self.is_draining or link.credit == 0 or self.is_detached,
                    connection.deadline(timeout),
                ):
                    raise OperationTimeoutError(f"receiving from {self.entity}")
            self.is_draining = False
            received, self._buffer = self._buffer[:max_messages], self._buffer[max_messages:]
            return list(map(_received, received))

    def wait(self, seconds: float) -> bool:
        """Long poll: return True as soon as there is a message, False after `seconds` without one.

        The message is released again. This costs one receive.
        """
        return bool(self.connection.wait_any([self], seconds))

    def on_deliveries(self, events: Sequence[Delivery]) -> None:
        """Keep the messages for `receive`, or release them if they end a long poll."""
        self._last_number = events[-1].delivery_id
        if self.long_poll is None:
            self._buffer += events
        else:
            self.long_poll.on_deliveries(events)

    def on_flow(self, event: Flowed) -> None:
        """The drain is over when the broker has returned all credit."""
        if event.link is not None and event.link.credit == 0:
            self.is_draining = False

    # -- settling

    def settle(
        self,
        received: Sequence[Received],
        outcome: str | Composite = "completed",
        timeout: float | None = None,
    ) -> list[ClientError | None]:
        """Settle on this link, all together, and wait for the broker's answer on each.

        Returns None for each message that was settled, and the error (a lost lock, say) for others.

        Raises:
            LinkDetachedError, ConnectionLostError: the link or connection is gone.
            OperationTimeoutError: not every answer came in time.
        """
        state = OUTCOMES[outcome] if isinstance(outcome, str) else outcome
        mux = self.mux
        with mux.condition:
            link = self.active_link()
            numbers = [one.delivery_id for one in received]
            ticket = self.settlements.begin(numbers)
            try:
                for first, last in ranges(numbers):
                    if first >= self._first_number:
                        mux.engine.settle(link, first, last, state=state, settled=False)
                    else:
                        text = "the link that delivered the message is gone: settle by lock token"
                        self.settlements.answer(first, last, RejectedError(_LOCK_LOST, text))
                mux.flush()
                done = mux.wait_until(
                    lambda: not ticket.unanswered or self.is_detached,
                    self.connection.deadline(timeout),
                )
            finally:
                self.settlements.abandon(ticket)
            if ticket.unanswered:
                self.check()
            if not done:
                raise OperationTimeoutError(f"settling on {self.entity}")
            return ticket.answers()

    def complete(self, received: Sequence[Received], timeout: float | None = None) -> None:
        """Complete on this link; raises the first error, if any."""
        for error in self.settle(received, "completed", timeout):
            if error is not None:
                raise error

    def release(self, received: Sequence[Received]) -> None:
        """Release without counting a delivery, and without waiting for an answer."""
        with self.mux.condition:
            link = self.active_link()
            for first, last in ranges([one.delivery_id for one in received]):
                self.mux.engine.settle(link, first, last, state=RELEASED)
            self.mux.flush()

    def on_settled(self, event: Disposed) -> None:
        """The broker settled deliveries, or could not."""
        if event.settled:
            error: ClientError | None = None
            if isinstance(event.state, Rejected) and event.state.error is not None:
                error = RejectedError.of(event.state.error, INTERNAL_ERROR, "not settled")
            self.settlements.answer(event.first, event.last, error)


class LongPoll:
    """A long poll of one receiver, with one credit; the caller holds the condition."""

    def __init__(self, receiver: BulkReceiver) -> None:
        link = receiver.active_link()
        self.receiver = receiver
        self._has_arrived = False
        self._released: list[Ticket] = []
        receiver.long_poll = self
        receiver.is_draining = False
        receiver.mux.engine.flow(link, 1)

    @property
    def is_over(self) -> bool:
        """A message arrived, or the link is gone."""
        return self._has_arrived or self.receiver.is_detached

    @property
    def is_quiet(self) -> bool:
        """No credit is outstanding, and the broker has confirmed the release of the message."""
        return self.receiver.is_detached or not (self.receiver.is_draining or self._unanswered)

    @property
    def _unanswered(self) -> bool:
        return any(ticket.unanswered for ticket in self._released)

    def on_deliveries(self, events: Sequence[Delivery]) -> None:
        """Release arrived messages; the broker confirms it, so that the next reader gets them."""
        receiver = self.receiver
        for event in events:
            self._has_arrived = True
            receiver.arrived_bytes = len(event.payload)
            if event.link.credit == 0:
                receiver.is_draining = False
            if not event.settled:
                self._released.append(receiver.settlements.begin([event.delivery_id]))
                receiver.mux.engine.settle(
                    event.link, event.delivery_id, state=RELEASED, settled=False
                )

    def cancel(self) -> None:
        """Take back the credit."""
        receiver, link = self.receiver, self.receiver.link
        receiver.is_draining = link is not None and not receiver.is_detached and link.credit > 0
        if receiver.is_draining and link is not None:
            receiver.mux.engine.flow(link, link.credit, drain=True)

    def finish(self) -> bool:
        """End the long poll; return whether a message arrived.

        Raises:
            LinkDetachedError: the link was detached for a reason that is not transient.
            OperationTimeoutError: the broker did not confirm the release of the message.
        """
        receiver, is_unconfirmed = self.receiver, self._unanswered
        receiver.long_poll = None
        receiver.is_draining = False
        for ticket in self._released:
            receiver.settlements.abandon(ticket)
        if is_unconfirmed:
            receiver.check()
            raise OperationTimeoutError(f"releasing a message of {receiver.entity}")
        if not self._has_arrived and not receiver.is_transiently_detached:
            receiver.check()
        return self._has_arrived


def _received(one: Delivery) -> Received:
    return Received(one.payload, one.tag, one.delivery_id)
