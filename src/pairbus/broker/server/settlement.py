"""Settles messages with the outcomes that a receiving client reports.

A settlement is answered when it is durable, with the same outcome; a dead-letter with `rejected`
and no error, because the SDK takes an error there as a failed settlement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from pairbus.amqp.composite import Composite
from pairbus.amqp.link import Outgoing
from pairbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Error,
    Modified,
    Received,
    Rejected,
    Released,
)
from pairbus.broker.entities.errors import BrokerError, StoreError
from pairbus.broker.entities.messages import Outcome
from pairbus.broker.entities.receiver import Receiver
from pairbus.broker.faults.faults import REFUSALS
from pairbus.broker.server.link_end import LinkEnd, guarded, rejected

DEAD_LETTER = "com.microsoft:dead-letter"


class Settlement:
    """Settles the messages that were delivered on one link."""

    def __init__(self, end: LinkEnd) -> None:
        self.end = end

    def settle(
        self,
        receiver: Receiver,
        deliveries: list[Outgoing],
        state: Composite | None,
        settled: bool,
    ) -> None:
        """Settle messages with the client's outcome, and answer once that is durable."""
        end = self.end
        faults = end.faults
        if faults.any or type(state) is not Accepted:
            end.use()
        if isinstance(state, Received) or (state is None and not settled):
            return
        fault = faults.match("settle", end.path)
        if fault.kind in REFUSALS:
            self._answer([one.id for one in deliveries], rejected(fault.error()), settled)
            return
        hangs = fault.kind == "hang"
        if hangs and not fault.take:
            return
        echo: Composite = ACCEPTED
        if state is None or isinstance(state, Accepted):
            numbers = self._complete(receiver, deliveries, settled)
            end.used_at = end.namespace.latest
        else:
            numbers = []
            for one in deliveries:
                try:
                    echo = self._settle(receiver, one.tag, state)
                    numbers.append(one.id)
                except BrokerError as error:
                    self._answer([one.id], rejected(error), settled)
        if numbers and not settled and not hangs:
            end.committer.after_commit(partial(self._committed, numbers, echo, fault.answer_delay))

    def _complete(self, receiver: Receiver, deliveries: list[Outgoing], settled: bool) -> list[int]:
        """Complete deliveries; answer those whose lock is lost, and return the other numbers."""
        if len(deliveries) == 1:
            (one,) = deliveries
            if receiver.complete(one.tag):
                return [one.id]
            self._answer([one.id], rejected(receiver.lock_lost()), settled)
            return []
        lost = set(receiver.settle_many([one.tag for one in deliveries], Outcome.COMPLETE))
        for one in deliveries:
            if one.tag in lost:
                self._answer([one.id], rejected(receiver.lock_lost()), settled)
        return [one.id for one in deliveries if one.tag not in lost]

    def _settle(self, receiver: Receiver, token: bytes, state: Composite) -> Composite:
        """Settle one message; return the outcome to echo."""
        if isinstance(state, Released):
            receiver.settle(token, Outcome.RELEASE)
            return RELEASED
        if isinstance(state, Modified):
            outcome = Outcome.DEFER if state.undeliverable_here else Outcome.ABANDON
            receiver.settle(token, outcome, properties=_properties(state.message_annotations))
            return state
        if isinstance(state, Rejected):
            error = state.error or Error(DEAD_LETTER)
            info = dict(error.info or {})
            reason = info.pop("DeadLetterReason", None)
            description = info.pop("DeadLetterErrorDescription", None)
            if error.condition != DEAD_LETTER:
                reason = reason or error.condition
                description = description or error.description
            receiver.settle(
                token,
                Outcome.DEAD_LETTER,
                reason=None if reason is None else str(reason),
                description=None if description is None else str(description),
                properties=_properties(info),
            )
            return Rejected()
        raise self.end.broker.unsupported("transactions", "Transactions are not supported.")

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
        if numbers[-1] - first == len(numbers) - 1:
            # The client gave one outcome for a range: it gets one answer for the range.
            self.end.settle(first, echo, last=numbers[-1])
        else:
            for number in numbers:
                self.end.settle(number, echo)


def _properties(changes: Mapping[Any, Any] | None) -> dict[str, object] | None:
    return {str(key): value for key, value in changes.items()} if changes else None
