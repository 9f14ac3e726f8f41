# generated from src/pairbus/pairing/_async/sender.py by tools/gen_unasync.py; edit that one
"""The paired sender: sends to the primary while healthy, to a backlog queue while failed over."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import datetime
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.classify import Verdict
from pairbus.exceptions import NotCancellableError
from pairbus.names import backlog_label
from pairbus.pairing._sync.backlog_route import BacklogRoute
from pairbus.pairing._sync.pair import Pair
from pairbus.pairing._sync.primary_route import PrimaryRoute, Redirect
from pairbus.pairing.core.health import Phase
from pairbus.pairing.outgoing import (
    BACKLOG_LIMIT,
    Outgoing,
    PairedMessageBatch,
    as_outgoing,
    prepare,
    rough_size,
    schedulable,
)
from pairbus.pairing.runtime import Guard, spawn
from pairbus.pairing.sdk.messages import body_size
from pairbus.pairing.sdk.senders import SHUT_DOWN
from pairbus.pairing.sdk.surface import covers

if TYPE_CHECKING:
    from pairbus.pairing._sync.lifecycle import Lifecycle


_HEALTHY: Final = Phase.HEALTHY


@covers(ServiceBusSender)
class PairedSender(ServiceBusSender):
    """A `ServiceBusSender` whose sends survive an outage of the primary.

    Made by `get_queue_sender` and `get_topic_sender` of a paired client. Tasks and threads may
    share it.
    """

    def __init__(
        self,
        lifecycle: Lifecycle,
        make: Callable[[], ServiceBusSender],
        name: str,
        client_identifier: str,
    ) -> None:
        # The SDK's own __init__ is not called: this class has its surface, and none of its state.
        self.entity_name = name
        self.fully_qualified_namespace = lifecycle.pair.primary_host
        self._lifecycle = lifecycle
        self._side = lifecycle.paired_side
        self._make = make
        self._identifier = client_identifier
        self._closed = False
        self.use(lifecycle.pair)

    def use(self, pair: Pair) -> None:
        """Send with new links of `pair`."""
        self._pair = pair
        self._entity = pair.entity(self.entity_name)
        shared = (self._lifecycle, self._entity, self.entity_name)
        self._backlog = BacklogRoute(*shared)
        self._route = PrimaryRoute(*shared, self._make, self._backlog.warm_up)
        self._primary = self._route.link
        self._guard = Guard()

    def abandon(self) -> None:
        """Release the connections without closing them: another process uses them."""
        self._guard = Guard()  # a thread of that process may have it
        self._primary.abandon()
        self._backlog.abandon()

    def __repr__(self) -> str:
        backlog = self._backlog.current
        shown = f" backlog={backlog_label(backlog.path)}" if backlog is not None else ""
        state = "CLOSED" if self._closed else self._entity.health.phase.name
        return f"<PairedSender {self.entity_name} {state}{shown}>"

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    @property
    def client_identifier(self) -> str:
        """The identifier of this sender, given by the caller or generated."""
        return self._identifier

    # -- open and close

    def __enter__(self) -> PairedSender:
        """Open the sender. With the primary down it opens too: a failed open counts like a send."""
        self._check_usable()
        if not self._entity.health.is_failed_over:
            deadline = monotonic() + self._pair.timing.send_timeout
            try:
                self._route.attempt(partial(self._primary.open, deadline=deadline), deadline)
            except Exception as error:
                if self._pair.verdict(error) not in (Verdict.OUTAGE, Verdict.REOPEN):
                    raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sender's links; may be repeated."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        backlog = self._backlog.leave()
        self._lifecycle.senders.discard(self)
        # In parallel: closing a link takes the SDK up to a second.
        closing = spawn(backlog.close, name="pairbus close") if backlog is not None else None
        self._primary.close()
        if closing is not None:
            closing.join(10.0)

    def _check_usable(self) -> None:
        self._lifecycle.check()  # first: it gives the reason
        if self._closed:
            raise ValueError(SHUT_DOWN)

    # -- the SDK's surface

    def send_messages(
        self,
        message: Any,
        *,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        """Send a message, a list or a batch; return when the primary or a backlog queue has it.

        Args:
            message: As for the SDK's sender: `ServiceBusMessage`, `AmqpAnnotatedMessage`, a
                mapping, an iterable of these, or a `ServiceBusMessageBatch`.
            timeout: How long an attempt may take, in seconds, if that is less than the option
                `send_timeout`. A call that is redirected makes one attempt on each side.

        Raises:
            PairUnavailableError: neither namespace confirmed it.
            PartlySentError: only a part of a redirected list or batch was confirmed.
            ReservedPropertyError: a message uses a reserved name; nothing was sent.
            ServiceBusError: an outage before the failover, or an error that is not an outage.
        """
        if kwargs:
            warnings.warn(f"Unsupported keyword args: {kwargs}", stacklevel=2)
        if self._closed or self._side.state != "open":
            self._check_usable()
        pair, entity = self._pair, self._entity
        budget = pair.timing.send_timeout if timeout is None else self._budget(timeout)
        # The path of a plain message to a healthy primary is written out, to save calls.
        outgoing: Outgoing | None = None
        is_plain = entity.health.phase is _HEALTHY and message.__class__ is ServiceBusMessage
        if not is_plain or not 0 < body_size(message) <= pair.suspicious_size:
            outgoing = prepare(message, pair.primary_batches)
            if outgoing is None:
                return
            if entity.health.is_failed_over and self._backlog.take(
                outgoing, budget, Redirect()
            ):
                return
            if outgoing.size > pair.suspicious_size:
                self._check_sizes(outgoing)
        what = message if outgoing is None else outgoing.what
        started = monotonic()
        deadline = started + budget
        was_open = self._primary.connection.sender is not None
        try:
            is_counted = self._primary.send(what, deadline=deadline, wanted=self._is_primary)
        except Exception as error:  # noqa: BLE001  # decided by the table
            again = partial(self._primary.send, what, deadline=deadline, wanted=self._is_primary)
            result = self._route.after_failure(error, again, started, deadline, was_open)
            if isinstance(result, Redirect):
                outgoing = outgoing or as_outgoing(message)
                if not self._backlog.take(outgoing, budget, result):
                    self.send_messages(outgoing.what, timeout=timeout)
                return
            is_counted = result
        with entity.guard:
            entity.counts.sent_primary += 1 if outgoing is None else len(outgoing.originals)
            entity.last_success = started
        # Read without the guard on every send; the decision itself is made under it.
        if entity.health.phase is not _HEALTHY:
            entity.succeeded()
        if pair.ledger is not None and not is_counted:
            pair.accounts.sent(self.entity_name, outgoing or as_outgoing(message))

    def schedule_messages(
        self,
        messages: Any,
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> list[int]:
        """Send messages to be enqueued at `schedule_time_utc`; return their sequence numbers.

        While failed over the messages wait in a backlog queue, and the numbers are negative: they
        cannot be cancelled.
        """
        if kwargs:
            warnings.warn(f"Unsupported keyword args: {kwargs}", stacklevel=2)
        self._check_usable()
        budget = self._budget(timeout)
        outgoing = prepare(schedulable(messages, schedule_time_utc))
        if outgoing is None:
            return []
        is_taken = self._entity.health.is_failed_over and self._backlog.take(
            outgoing, budget, Redirect()
        )
        if not is_taken:
            deadline = monotonic() + budget
            ready = outgoing.what

            def schedule(sender: ServiceBusSender, left: float) -> list[int]:
                return sender.schedule_messages(ready, schedule_time_utc, timeout=left)

            attempt = partial(self._primary.call, schedule, deadline=deadline)
            result = self._route.attempt(attempt, deadline)
            if not isinstance(result, Redirect):
                self._entity.sent(outgoing.count)
                self._entity.succeeded()
                self._pair.accounts.sent(self.entity_name, outgoing, "schedule")
                return result
            if not self._backlog.take(outgoing, budget, result):
                return self.schedule_messages(ready, schedule_time_utc, timeout=timeout)
        self._entity.order_lost("messages were scheduled")
        return self._pair.next_scheduled_numbers(outgoing.count)

    def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Cancel scheduled messages, on the primary only; a failure counts like a failed send.

        Raises:
            NotCancellableError: one of them was scheduled while failed over; none is cancelled.
            ServiceBusError: the primary refused the request or did not answer.
        """
        if kwargs:
            warnings.warn(f"Unsupported keyword args: {kwargs}", stacklevel=2)
        self._check_usable()
        budget = self._budget(timeout)
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else [*sequence_numbers]
        if not numbers:
            return
        in_backlog = [number for number in numbers if number < 0]
        if in_backlog:
            raise NotCancellableError(in_backlog)
        deadline = monotonic() + budget

        def cancel(sender: ServiceBusSender, left: float) -> None:
            sender.cancel_scheduled_messages(numbers, timeout=left)

        attempt = partial(self._primary.call, cancel, deadline=deadline)
        result = self._route.attempt(attempt, deadline)
        if result is not None:
            # Only the primary can cancel: nothing goes to the backlog.
            raise result.cause or OperationTimeoutError(
                message=f"{self.entity_name!r} is failed over: nothing was cancelled."
            )
        self._pair.accounts.cancelled(self.entity_name)

    def create_message_batch(
        self, max_size_in_bytes: int | None = None
    ) -> ServiceBusMessageBatch:
        """Return an empty batch. While failed over this does not wait for the primary."""
        self._check_usable()
        limit = self._primary.batch_limit
        if not limit and not self._entity.health.is_failed_over:
            deadline = monotonic() + self._pair.timing.send_timeout
            self._route.attempt(partial(self._primary.open, deadline=deadline), deadline)
            limit = self._primary.batch_limit
        if not limit:
            # Unknown while the primary is down: the application may know. A send splits the batch.
            limit = max(max_size_in_bytes or 0, BACKLOG_LIMIT)
        if max_size_in_bytes and max_size_in_bytes > limit:
            raise ValueError(
                f"Max message size: {max_size_in_bytes} is too large, "
                f"acceptable max batch size is: {limit} bytes."
            )
        pair = self._pair
        return PairedMessageBatch(
            max_size_in_bytes or limit,
            limit=pair.message_limit,
            refuses=pair.oversize == "refuse",
            arguments=pair.primary_batches,
            oversized=(
                None
                if pair.oversize == "ignore"
                else partial(pair.check_oversize, self.entity_name)
            ),
        )

    # -- to the primary

    def _budget(self, timeout: float | None) -> float:
        if timeout is None:
            return self._pair.timing.send_timeout
        if timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")
        return min(timeout, self._pair.timing.send_timeout)

    def _is_primary(self) -> bool:
        return not self._entity.health.is_failed_over

    def _check_sizes(self, outgoing: Outgoing) -> None:
        pair = self._pair
        if isinstance(outgoing.what, PairedMessageBatch) or outgoing.items is None:
            return  # checked one by one when they were added
        for item in outgoing.items:
            if rough_size(item) > pair.suspicious_size:
                pair.check_oversize(self.entity_name, item)
