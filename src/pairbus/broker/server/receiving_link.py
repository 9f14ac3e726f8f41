"""A client's receiver: credit, deliveries and sessions.

The namespace delivers up to the client's credit. A client that grants credit and does not read its
socket is paused, so that its messages wait in the store and not in memory.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import TYPE_CHECKING

from pairbus.amqp.composite import Composite
from pairbus.amqp.link import Outgoing
from pairbus.amqp.performatives import SND_SETTLED
from pairbus.broker.entities.credits import MESSAGE
from pairbus.broker.entities.errors import BrokerError, OperationTimeoutError, ServerBusyError
from pairbus.broker.entities.messages import NEVER, Delivery
from pairbus.broker.entities.model import AccessRight
from pairbus.broker.server.link_end import LinkEnd, LinkHandler, guarded
from pairbus.broker.server.outgoing import render_delivery, render_locked
from pairbus.broker.server.session_request import (
    requested_session,
    session_answer,
    session_timeout,
)
from pairbus.broker.server.settlement import Settlement

if TYPE_CHECKING:
    from pairbus.broker.entities.receiver import Receiver
    from pairbus.broker.entities.sessions import PendingSession

SWEEP_FROM = 10_000  # open deliveries of a session


class ReceivingLink(LinkHandler):
    """A client's receiver of a queue, a subscription, a dead-letter queue, or a session."""

    right = AccessRight.LISTEN

    def __init__(self, end: LinkEnd) -> None:
        end.tokens.require(self.right, end.path)
        self.end = end
        end.used_at = end.namespace.now()
        self.link = end.link
        self._engine = end.engine
        self._settlement = Settlement(end)
        self.is_destructive = end.link.snd_settle_mode == SND_SETTLED
        self.receiver: Receiver | None = None
        self._pending: PendingSession | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tags = itertools.count(1)
        self._tag_prefix = os.urandom(8)
        self._is_paused = False
        self.next_due = NEVER  # when a grant that waits for credits is retried
        self._sweep_at = SWEEP_FROM
        wants_session, session_id = requested_session(end.link)
        if not wants_session or session_id is not None:
            self.receiver = end.namespace.receivers.open(
                end.path,
                self,
                receive_and_delete=self.is_destructive,
                session_id=session_id,
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
        session = receiver.session
        self.end.accept(**({} if session is None else session_answer(self.link, session)))

    def _no_session(self) -> None:
        self._timer = None
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
            self.end.detach(
                OperationTimeoutError("No session became available in time: all are held or empty.")
            )

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
        self._grant(self.receiver)

    def _grant(self, receiver: Receiver) -> None:
        receiver.grant(self.link.credit, drain=self.link.drain)

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
            self._grant(self.receiver)

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
        size = 0
        if self.is_destructive:
            for delivery in deliveries:
                payload = render_delivery(delivery)
                size += len(payload)
                tag = self._tag_prefix + next(self._tags).to_bytes(8, "big")
                self._engine.transfer(link, payload, tag, settled=True)
        else:
            size = self._engine.transfer_many(
                link, [(one.lock_token, *render_locked(one)) for one in deliveries]
            )
        self.end.connection.flush_soon(size)

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
        if self.receiver is not None and (self.link.credit or self.link.drain):
            self._grant(self.receiver)

    def on_disposition(
        self, deliveries: list[Outgoing], state: Composite | None, settled: bool
    ) -> None:
        """Settle messages that were delivered on this link."""
        if self.receiver is not None:
            self._settlement.settle(self.receiver, deliveries, state, settled)
