"""A client's receiver: credit, deliveries, sessions and settlement.

The namespace delivers up to the client's credit. A client that grants credit and does not read its
socket is paused, so that its messages wait in the store and not in memory.

A settlement is answered when it is durable, with the same outcome; a dead-letter with `rejected`
and no error, because the SDK takes an error there as a failed settlement.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pairbus.amqp.composite import Composite
from pairbus.amqp.link import Outgoing
from pairbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    SND_SETTLED,
    Accepted,
    Modified,
    Received,
    Rejected,
    Released,
)
from pairbus.broker.entities.credits import MESSAGE
from pairbus.broker.entities.errors import (
    BrokerError,
    MessageLockLostError,
    NotImplementedByBrokerError,
    OperationTimeoutError,
    ServerBusyError,
    StoreError,
)
from pairbus.broker.entities.locks import LOCK_LOST
from pairbus.broker.entities.messages import NEVER, Delivery, Outcome
from pairbus.broker.entities.model import AccessRight
from pairbus.broker.server.link_end import LinkEnd, LinkHandler, guarded, rejected
from pairbus.broker.server.outgoing import render_delivery, render_locked
from pairbus.broker.server.session_request import (
    requested_session,
    session_answer,
    session_timeout,
)

if TYPE_CHECKING:
    from pairbus.broker.entities.receiver import Receiver
    from pairbus.broker.entities.sessions import PendingSession

DEAD_LETTER = "com.microsoft:dead-letter"
SWEEP_FROM = 10_000  # open deliveries of a session


class ReceivingLink(LinkHandler):
    """A client's receiver of a queue, a subscription, a dead-letter queue, or a session."""

    def __init__(self, end: LinkEnd) -> None:
        end.tokens.require(AccessRight.LISTEN, end.path)
        self.end = end
        end.used_at = end.namespace.now()
        self.link = end.link
        self._engine = end.engine
        self.is_destructive = end.link.snd_settle_mode == SND_SETTLED
        self.receiver: Receiver | None = None
        self._pending: PendingSession | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tags = itertools.count(1)
        self._tag_prefix = os.urandom(8)
        self._is_paused = False
        self.next_due = NEVER  # when a grant that waits for credits is retried
        self._unwritten = 0
        self._sweep_at = SWEEP_FROM
        self._wants_session, self._session_id = requested_session(end.link)
        if not self._wants_session or self._session_id is not None:
            self.receiver = end.namespace.receivers.open(
                end.path,
                self,
                receive_and_delete=self.is_destructive,
                session_id=self._session_id,
            )

    # -- attaching -------------------------------------------------------------------------------

    def attach(self) -> None:
        """Answer the attach; if it requests the next available session, when there is one."""
        if self.receiver is not None:
            self._attached(self.receiver)
            return
        try:
            self._pending = self.end.namespace.receivers.accept_next(
                self.end.path,
                self,
                self._accepted,
                receive_and_delete=self.is_destructive,
            )
        except BrokerError as error:
            self.end.detach(error)
            return
        if self.receiver is None:
            wait = session_timeout(self.link)
            self._timer = asyncio.get_running_loop().call_later(wait, self._no_session)

    @guarded
    def _accepted(self, receiver: Receiver) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._pending = None
        self.receiver = receiver
        self._attached(receiver)
        self.end.connection.flush_soon()

    def _attached(self, receiver: Receiver) -> None:
        info = receiver.session_info
        if info is None:
            self.end.accept()
            return
        self.end.accept(**session_answer(self.link, info))

    def _no_session(self) -> None:
        self._timer = None
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
            self.end.detach(
                OperationTimeoutError("No session became available in time: all are held or empty.")
            )

    def is_authorized(self) -> bool:
        """Whether the client may still receive."""
        return self.end.tokens.allows(AccessRight.LISTEN, self.end.path)

    def close(self) -> None:
        """Release the session; locks of messages stay until they expire."""
        if self._timer is not None:
            self._timer.cancel()
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        self.next_due = NEVER
        if self.receiver is not None:
            self.receiver.close()

    # -- delivering ------------------------------------------------------------------------------

    def on_flow(self) -> None:
        """Let the namespace deliver up to the client's credit.

        A grant of link credit is an operation. If the namespace has no credits left, the grant
        waits for the next second, or the link is detached (`detach_throttled_receivers`). How the
        service refuses it is not documented; azure-sdk-for-java#37594 shows the error on a receive
        link.
        """
        self.end.use()
        if self.receiver is None or self._is_paused:
            return
        if self.next_due != NEVER or self.link.credit > self.receiver.credit:
            try:
                self.end.throttle.check(self.end.path, "receive")
            except ServerBusyError as error:
                if self.end.broker.settings.limits.detach_throttled_receivers:
                    self.end.detach(error)
                else:
                    self._wait_for_credits()
                return
            self.next_due = NEVER
        if self.receiver is not None:
            self.receiver.grant(self.link.credit, drain=self.link.drain)

    def _wait_for_credits(self) -> None:
        if self.next_due == NEVER:
            self.next_due = self.end.throttle.next_second()
            self.end.namespace.arm(self.next_due, self)

    def tick(self, now: int) -> None:
        """Serve the grant that waited for credits, if there are any now."""
        self.next_due = NEVER
        if self.receiver is None or not self.link.is_active:
            return
        if not self.end.throttle.would_serve(1):
            self._wait_for_credits()
        elif not self._is_paused:
            self.receiver.grant(self.link.credit, drain=self.link.drain)

    @guarded
    def deliver(self, deliveries: list[Delivery]) -> None:
        """Send messages to the client."""
        if not self.link.is_active:
            return
        link = self.link
        self.end.used_at = self.end.namespace.latest
        self.end.throttle.charge(MESSAGE * len(deliveries))
        if link.credit < len(deliveries):
            # The client has lowered its credit after the messages were taken for it.
            link.credit = len(deliveries)
        if len(link.session.unsettled) > self._sweep_at:
            self._sweep()
        if self.is_destructive:
            for delivery in deliveries:
                payload = render_delivery(delivery)
                self._unwritten += len(payload)
                tag = self._tag_prefix + next(self._tags).to_bytes(8, "big")
                self._engine.transfer(link, payload, tag, settled=True)
        else:
            self._unwritten += self._engine.transfer_many(
                link, [(one.lock_token, *render_locked(one)) for one in deliveries]
            )
        if self._unwritten > self.end.broker.settings.limits.write_buffer // 4:
            self._unwritten = 0
            self.end.connection.flush()
        else:
            self.end.connection.flush_soon()

    def _sweep(self) -> None:
        """Drop deliveries that were settled by their tokens, on any connection."""
        unsettled = self.link.session.unsettled
        locks = self.receiver.queue.locks if self.receiver is not None else {}
        self._engine.forget(
            self.link.session,
            [n for n, d in unsettled.items() if d.link is self.link and d.tag not in locks],
        )
        self._sweep_at = max(SWEEP_FROM, 2 * len(unsettled))

    @guarded
    def drained(self) -> None:
        """Report to the client that its drain is over."""
        if self.link.is_active:
            self._engine.drained(self.link)
            self.end.connection.flush_soon()

    @guarded
    def closed(self, error: BrokerError) -> None:
        """Detach: the entity is deleted or disabled, or the session's lock is lost."""
        self.receiver = None
        self.end.detach(error)

    def pause(self) -> None:
        """Deliver nothing until `resume`: the client does not read."""
        self._is_paused = True
        if self.receiver is not None:
            self.receiver.grant(0)

    def resume(self) -> None:
        """Deliver again."""
        self._is_paused = False
        self._unwritten = 0
        if self.receiver is not None and (self.link.credit or self.link.drain):
            self.receiver.grant(self.link.credit, drain=self.link.drain)

    # -- settling --------------------------------------------------------------------------------

    def on_disposition(
        self, deliveries: list[Outgoing], state: Composite | None, settled: bool
    ) -> None:
        """Settle messages with the client's outcome, and answer once that is durable."""
        end = self.end
        faults = end.faults
        if faults.any or type(state) is not Accepted:
            end.use()
        if isinstance(state, Received) or (state is None and not settled):
            return
        fault = faults.match("settle", end.path) if faults.any else None
        if fault is not None and fault.kind in {"reject", "throttle"}:
            error = BrokerError(fault.description, condition=fault.condition)
            self._answer([d.id for d in deliveries], rejected(error), settled)
            return
        if fault is not None and fault.kind == "hang" and not fault.take:
            return
        settled_numbers: list[int] = []
        echo: Composite = ACCEPTED
        if isinstance(state, Accepted) and self.receiver is not None:
            settled_numbers = self._complete(self.receiver, deliveries, settled)
            end.used_at = end.namespace.latest
            deliveries = []
        for delivery in deliveries:
            try:
                echo = self._settle(delivery.tag, state)
                settled_numbers.append(delivery.id)
            except BrokerError as error:
                self._answer([delivery.id], rejected(error), settled)
        if not settled_numbers or settled or (fault is not None and fault.kind == "hang"):
            return
        delay = fault.delay if fault is not None and fault.kind == "delay" else 0.0
        end.committer.after_commit(partial(self._committed, settled_numbers, echo, delay))

    def _complete(self, receiver: Receiver, deliveries: list[Outgoing], settled: bool) -> list[int]:
        """Complete deliveries; answer those whose lock is lost, and return the other numbers."""
        if len(deliveries) == 1:
            (one,) = deliveries
            if receiver.complete(one.tag):
                return [one.id]
            self._answer([one.id], rejected(receiver.lock_lost()), settled)
            return []
        tokens = receiver.settle_many([one.tag for one in deliveries], Outcome.COMPLETE)
        if not tokens:
            return [one.id for one in deliveries]
        lost = set(tokens)
        for one in deliveries:
            if one.tag in lost:
                self._answer([one.id], rejected(receiver.lock_lost()), settled)
        return [one.id for one in deliveries if one.tag not in lost]

    def _settle(self, token: bytes, state: Composite | None) -> Composite:
        """Settle one message; return the outcome to echo."""
        settle = self._holder().settle
        if state is None or isinstance(state, Accepted):
            settle(token, Outcome.COMPLETE)
            return ACCEPTED
        if isinstance(state, Released):
            settle(token, Outcome.RELEASE)
            return RELEASED
        if isinstance(state, Modified):
            changes = _properties(state.message_annotations)
            if state.undeliverable_here:
                settle(token, Outcome.DEFER, properties=changes)
            else:
                settle(token, Outcome.ABANDON, properties=changes)
            return state
        if isinstance(state, Rejected):
            info = dict((state.error.info if state.error is not None else None) or {})
            reason = info.pop("DeadLetterReason", None)
            description = info.pop("DeadLetterErrorDescription", None)
            if state.error is not None and state.error.condition != DEAD_LETTER:
                reason = reason or state.error.condition
                description = description or state.error.description
            settle(
                token,
                Outcome.DEAD_LETTER,
                reason=None if reason is None else str(reason),
                description=None if description is None else str(description),
                properties=_properties(info),
            )
            return Rejected()
        self.end.broker.unsupported("transactions")
        raise NotImplementedByBrokerError("Transactions are not supported.")

    def _holder(self) -> Receiver:
        if self.receiver is None:
            raise OperationTimeoutError("The link is not attached yet.")
        return self.receiver

    @guarded
    def _committed(
        self, numbers: list[int], echo: Composite, delay: float, error: Exception | None
    ) -> None:
        if error is not None:
            echo = rejected(StoreError("The broker could not store the outcome."))
        if delay:
            asyncio.get_running_loop().call_later(delay, self._answer, numbers, echo, False)
        else:
            self._answer(numbers, echo, False)

    def _answer(self, numbers: list[int], echo: Composite, settled: bool) -> None:
        if settled:
            return
        first = numbers[0]
        if len(numbers) == 1:
            self.end.settle(first, echo)
        elif numbers[-1] - first == len(numbers) - 1:
            # The client gave one outcome for a range: it gets one answer for the range.
            self.end.settle(first, echo, last=numbers[-1])
        else:
            for number in numbers:
                self.end.settle(number, echo)


def lock_lost() -> Rejected:
    """Return the outcome for a message that is not locked any more."""
    return rejected(MessageLockLostError(LOCK_LOST))


def _properties(changes: Mapping[Any, Any] | None) -> dict[str, object] | None:
    return {str(key): value for key, value in changes.items()} if changes else None
