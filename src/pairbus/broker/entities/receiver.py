"""A receiver of a queue: its credit and the deliveries against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Unpack

from pairbus.broker.entities.errors import BrokerError, MessageLockLostError, SessionLockLostError
from pairbus.broker.entities.locks import LOCK_LOST
from pairbus.broker.entities.messages import Delivery, Details, Outcome, ReceiverHost
from pairbus.names import BILLING_STEP, billable

if TYPE_CHECKING:
    from pairbus.broker.entities.queue import Queue
    from pairbus.broker.entities.session_store import Session

Clock = Callable[[], int]


class Receiver:
    """One link that receives from one queue (and from one session, if the queue requires sessions).

    After it is closed, the locks of its messages last until they expire, as in the service; closing
    the receiver of a session releases the session and its messages.
    """

    def __init__(
        self,
        queue: Queue,
        host: ReceiverHost,
        clock: Clock,
        *,
        is_destructive: bool = False,
        session: Session | None = None,
    ) -> None:
        self.queue = queue
        self.host = host
        self.is_destructive = is_destructive
        self.session = session
        self.credit = 0
        self.is_waiting = False
        self.is_closed = False
        self._clock = clock
        self._is_draining = False
        self._is_grant_unused = False
        self._undelivered = 0  # messages whose removal is not durable yet

    def __repr__(self) -> str:
        return f"<Receiver {self.queue.path} credit={self.credit}>"

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Set the credit: this many messages may be delivered from now on.

        With *drain*, available messages are delivered and the rest of the credit expires;
        ``host.drained()`` is called after the deliveries.
        """
        if self.is_closed:
            return
        now = self._clock()
        credit = max(0, credit - self._undelivered)  # the client does not know of these messages
        # Draining credit that was granted before ends that grant, and is not a new one.
        if not (drain and 0 < credit <= self.credit):
            self._end_grant()
            self._is_grant_unused = credit > 0
        self.credit = credit
        self._is_draining = drain
        self.queue.accessed = now
        if credit > 0:
            self.queue.enqueue_receiver(self)
            self.queue.dispatch(now)
        if self._is_draining and not self.is_closed:
            self._end_drain()
        self.queue.context.changed()

    def deliver(self, deliveries: list[Delivery], now: int) -> None:
        """Deliver messages: locked ones immediately, removed ones after the removal is durable."""
        self.credit -= len(deliveries)
        self._is_grant_unused = False
        sizes = [delivery.message.size for delivery in deliveries]
        size = sum(sizes)
        units = len(sizes) if max(sizes) <= BILLING_STEP else sum(map(billable, sizes))
        self.queue.accessed = now
        context = self.queue.context
        context.operations.add(self.queue.path, "receive", 1, len(deliveries), size, units)
        if self.is_destructive:
            self._undelivered += len(deliveries)
            context.journal.callbacks.append(lambda error: self._removed(deliveries, error))
        else:
            self.host.deliver(deliveries)
            if context.budget.used > context.budget.limit:
                self.queue.store.drop_bytes(deliveries)

    def _removed(self, deliveries: list[Delivery], error: Exception | None) -> None:
        self._undelivered -= len(deliveries)
        if error is None:
            self.host.deliver(deliveries)

    def settle(self, token: bytes, outcome: Outcome, **details: Unpack[Details]) -> None:
        """Settle one message; acknowledge it in ``after_commit``.

        Raises:
            MessageLockLostError: the lock has expired.
            SessionLockLostError: the lock of the session has expired.
        """
        queue = self.queue
        queue.context.operations.add(queue.path, "settle", 1, 1, 0, 1)
        is_settled = queue.settle(token, outcome, self._clock(), **details)
        queue.context.changed()
        if not is_settled:
            raise self.lock_lost()

    def complete(self, token: bytes) -> bool:
        """Complete one message; acknowledge it in ``after_commit``. False: its lock is lost."""
        queue = self.queue
        queue.context.operations.add(queue.path, "settle", 1, 1, 0, 1)
        lost = queue.complete((token,), self._clock())
        queue.context.changed()
        return not lost

    def settle_many(self, tokens: Iterable[bytes], outcome: Outcome) -> list[bytes]:
        """Settle many messages with the same outcome; returns the tokens whose lock is lost."""
        return self.queue.settle_many(tokens, outcome, self._clock())

    def lock_lost(self) -> BrokerError:
        """The error for a message that this receiver no longer holds."""
        if self.session is not None and self.session.holder is not self:
            return SessionLockLostError(
                f"The lock of the session '{self.session.session_id}' has expired: accept it again."
            )
        return MessageLockLostError(LOCK_LOST)

    def close(self) -> None:
        """Close the receiver; a second call does nothing."""
        if not self.is_closed:
            self._close()
            self.queue.context.changed()

    def end(self, error: BrokerError) -> None:
        """Close from the broker's side, with the error for the client."""
        if not self.is_closed:
            self._close()
            self.host.closed(error)

    def _close(self) -> None:
        self._end_grant()
        self.is_closed = True
        self.credit = 0
        self.queue.receivers.pop(self, None)
        self.queue.accessed = now = self._clock()
        self.queue.on_close(self, now)

    def _end_grant(self) -> None:
        if self._is_grant_unused and self.credit > 0:
            self._is_grant_unused = False
            self.queue.context.operations.call(self.queue.path, "receive-empty")

    def _end_drain(self) -> None:
        self._end_grant()
        self._is_draining = False
        self.credit = 0
        if self.is_destructive:
            self.queue.context.journal.callbacks.append(lambda _: self.host.drained())
        else:
            self.host.drained()
