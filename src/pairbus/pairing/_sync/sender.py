# generated from src/pairbus/pairing/_async/sender.py by tools/gen_unasync.py; edit that one
"""The paired sender: sends to the primary while healthy, to a backlog queue while failed over."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.classify import Verdict, is_connection_failure
from pairbus.exceptions import NotCancellableError, add_text
from pairbus.pairing._sync.backlog_route import BacklogRoute
from pairbus.pairing._sync.connection import OpenTimeoutError, is_opening_failure
from pairbus.pairing._sync.link import Link
from pairbus.pairing._sync.pair import Pair
from pairbus.pairing.core.health import Phase
from pairbus.pairing.core.limits import TURN_GRACE
from pairbus.pairing.outgoing import (
    BACKLOG_LIMIT,
    Outgoing,
    PairedMessageBatch,
    as_outgoing,
    body_size,
    prepare,
    rough_size,
    schedulable,
)
from pairbus.pairing.runtime import Guard, spawn
from pairbus.pairing.sdk.senders import SHUT_DOWN, ShutDownError, UnwantedError
from pairbus.pairing.sdk.surface import covers
from pairbus.pairing.turns import TurnTimeoutError

if TYPE_CHECKING:
    from pairbus.pairing._sync.lifecycle import Lifecycle

# How long to wait before each retry of a failed attempt on the primary, at most. The SDK's own
# waits (1.6, 3.2, 6.4 s at its defaults) are for a caller who has nowhere else to go.
QUICK_BACKOFF = 0.4


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
        self.restart(lifecycle.pair)

    def restart(self, pair: Pair) -> None:
        """Start with new links: also in a forked process, whose parent goes on with the old."""
        self._pair = pair
        self._entity = pair.entity(self.entity_name)
        # With an interval the caller gets an error anyway, and may as well get it at the deadline.
        is_immediate = pair.timing.failover_interval == 0
        self._primary = Link(
            self._make,
            f"{self.entity_name!r} of the primary {pair.primary_host}",
            open_timeout=pair.timing.open_timeout,
            sharing=pair.sharing(self.entity_name),
            ask_host=partial(pair.host_probe.failure, self._make) if is_immediate else None,
        )
        self._backlog = BacklogRoute(self._lifecycle, pair, self._entity, self.entity_name)
        self._guard = Guard()

    def abandon_links(self) -> None:
        """Release the connections without closing them: in a fork they are the parent's."""
        self._primary.abandon()
        backlog = self._backlog.current
        if backlog is not None:
            backlog.abandon()

    def __repr__(self) -> str:
        backlog = self._backlog.current
        shown = f" backlog={backlog.path.rsplit('/', 1)[-1]}" if backlog is not None else ""
        state = "CLOSED" if self._closed else self._entity.health.phase.name
        return f"<PairedSender {self.entity_name} {state}{shown}>"

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    @property
    def client_identifier(self) -> str:
        """The identifier of this sender, as it was given or made up."""
        return self._identifier

    # -- open and close

    def __enter__(self) -> PairedSender:
        """Open the sender. With the primary down it opens too: a failed open counts like a send."""
        self._check_usable()
        if not self._entity.health.is_failed_over:
            deadline = monotonic() + self._pair.timing.send_timeout
            try:
                self._on_primary(partial(self._primary.open, deadline=deadline), deadline)
            except Exception as error:
                if self._pair.verdict(error) not in (Verdict.OUTAGE, Verdict.REOPEN):
                    raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the sender's links. Twice is fine."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        backlog = self._backlog.leave()
        self._lifecycle.senders.discard(self)
        # In parallel: closing a link takes the SDK half a second.
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
            PairUnavailableError: neither namespace took it.
            PartlySentError: a redirected list or batch was taken in part.
            ReservedPropertyError: a message uses a reserved name; nothing was sent.
            ServiceBusError: an outage before the failover, or an error that is no outage.
        """
        if kwargs:
            warnings.warn(f"Unsupported keyword args: {kwargs}", stacklevel=2)
        if self._closed or self._side.state != "open":
            self._check_usable()
        pair, entity = self._pair, self._entity
        budget = pair.timing.send_timeout if timeout is None else self._budget(timeout)
        # The path of a plain message to a healthy primary is written out, to save calls.
        outgoing: Outgoing | None = None
        size = body_size(message) if message.__class__ is ServiceBusMessage else 0
        if not 0 < size <= pair.suspicious_size or entity.health.is_failed_over:
            outgoing = prepare(message, pair.primary_batches)
            if outgoing is None:
                return
            if entity.health.is_failed_over and self._backlog.take(outgoing, budget, None):
                return
            if outgoing.size > pair.suspicious_size:
                self._check_sizes(outgoing)
        what = message if outgoing is None else outgoing.what
        started = monotonic()
        deadline = started + budget
        was_open = self._primary.is_open
        try:
            is_counted = self._primary.send(what, deadline=deadline, wanted=self._is_primary)
        except Exception as error:  # noqa: BLE001  # decided by the table
            is_counted = False

            def again() -> None:
                nonlocal is_counted
                is_counted = self._primary.send(
                    what, deadline=deadline, wanted=self._is_primary
                )

            redirect = self._after_failure(error, again, started, deadline, was_open)
            if redirect is not None:
                outgoing = outgoing or as_outgoing(message)
                if not self._backlog.take(outgoing, budget, redirect.cause):
                    self.send_messages(outgoing.what, timeout=timeout)
                return
        with entity.guard:
            entity.counts.sent_primary += 1 if outgoing is None else len(outgoing.originals)
            entity.last_success = started
        # Read without the guard on every send; the decision itself is made under it.
        if entity.health.phase is not Phase.HEALTHY:
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
        """Send messages that appear at `schedule_time_utc`; return their sequence numbers.

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
            outgoing, budget, None
        )
        if not is_taken:
            deadline = monotonic() + budget
            ready = outgoing.what

            def schedule(sender: ServiceBusSender) -> list[int]:
                left = max(0.01, deadline - monotonic())
                return sender.schedule_messages(ready, schedule_time_utc, timeout=left)

            numbers: list[int] = []

            def attempt() -> None:
                numbers.extend(self._primary.call(schedule, deadline=deadline))

            redirect = self._on_primary(attempt, deadline)
            if redirect is None:
                self._entity.sent(outgoing.count)
                self._entity.succeeded()
                self._pair.accounts.sent(self.entity_name, outgoing, "schedule")
                return numbers
            if not self._backlog.take(outgoing, budget, redirect.cause):
                return self.schedule_messages(ready, schedule_time_utc, timeout=timeout)
        self._entity.order_lost("messages were scheduled")
        return self._pair.next_scheduled_numbers(outgoing.count)

    def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Cancel scheduled messages, on the primary only; a failure counts like a failed send.

        Raises:
            NotCancellableError: one of them was scheduled while failed over; none is cancelled.
            ServiceBusError: the primary did not do it.
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

        def cancel(sender: ServiceBusSender) -> None:
            left = max(0.01, deadline - monotonic())
            sender.cancel_scheduled_messages(numbers, timeout=left)

        attempt = partial(self._primary.call, cancel, deadline=deadline)
        redirect = self._on_primary(attempt, deadline)
        if redirect is not None:
            # Only the primary can cancel: nothing goes to the backlog.
            raise redirect.cause or OperationTimeoutError(
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
            self._on_primary(partial(self._primary.open, deadline=deadline), deadline)
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

    def _on_primary(
        self, attempt: Callable[[], None], deadline: float
    ) -> Redirect | None:
        """Make an attempt on the primary; None if it succeeded, else redirect the call."""
        started, was_open = monotonic(), self._primary.is_open
        try:
            attempt()
        except Exception as error:  # noqa: BLE001  # decided by the table
            return self._after_failure(error, attempt, started, deadline, was_open)
        return None

    def _after_failure(
        self,
        error: Exception,
        attempt: Callable[[], None],
        started: float,
        deadline: float,
        was_open: bool,
    ) -> Redirect | None:
        """Retry a failed attempt as the application wants it, then decide.

        Returns None if a retry succeeded, a `Redirect` if failover is (or gets) engaged; otherwise
        raises the error that the caller must see.
        """
        pair, entity = self._pair, self._entity
        total, factor, maximum, is_fixed = pair.retries
        retried = 0
        reopened = False
        while True:
            if isinstance(error, UnwantedError):
                return Redirect(entity.last_error)
            if isinstance(error, ShutDownError):
                self._lifecycle.closed_by_application(primary=True)
            if isinstance(error, TurnTimeoutError):
                return self._after_turn_timeout(error, started)
            verdict = pair.verdict(error)
            if verdict in (Verdict.REFUSED, Verdict.FULL, Verdict.MISSING):
                raise error
            if entity.health.is_failed_over:
                # Engaged while this send was under way: it is redirected, not failed.
                return Redirect(error)
            is_broken = verdict is Verdict.OUTAGE and is_connection_failure(error)
            if verdict is Verdict.REOPEN or (is_broken and was_open and pair.reopen):
                # A detached or expired link, or one that was open and broke: decided by one reopen,
                # even where no retries are wanted.
                if not reopened and monotonic() < deadline:
                    reopened = True
                    error_again = self._again(attempt)
                    if error_again is None:
                        return None
                    error = error_again
                    continue
                verdict = Verdict.OUTAGE
            allowed = total
            wait = min(factor if is_fixed else factor * 2 ** (retried + 1), maximum)
            if isinstance(error, OpenTimeoutError):
                allowed = 0  # a host that is silent while a link opens is not asked again
            elif verdict is Verdict.OUTAGE and pair.timing.failover_interval == 0 and is_broken:
                allowed, wait = min(total, 1), 0.0  # there is somewhere else to go
            elif verdict is Verdict.OUTAGE:
                wait = min(wait, QUICK_BACKOFF)
            if retried >= allowed or monotonic() + wait >= deadline:
                break
            retried += 1
            if wait > 0 and entity.engaged.wait(wait):
                return Redirect(error)
            error_again = self._again(attempt)
            if error_again is None:
                return None
            error = error_again
        if verdict is Verdict.BUSY:
            raise error
        health = entity.failed(error)
        if is_opening_failure(error):
            pair.host_failed(error, started)
        if health.is_failed_over:
            return Redirect(error)
        self._backlog.warm_up()
        left = health.failing_since + pair.timing.failover_interval - monotonic()
        if health.phase is Phase.SUSPECT:
            add_text(
                error,
                f"; sends to {self.entity_name!r} will go to the backlog in {max(0.0, left):.0f} s "
                "(failover_interval)",
            )
        raise error

    def _again(self, attempt: Callable[[], None]) -> Exception | None:
        """Make one more attempt; returns the error if it failed."""
        self._lifecycle.check()
        try:
            attempt()
        except Exception as error:  # noqa: BLE001  # decided by the table
            return error
        return None

    def _after_turn_timeout(self, error: TurnTimeoutError, started: float) -> Redirect:
        """Handle a send that had no turn before its deadline, which is no evidence of an outage.

        If the send that has the turn began before this one, the wire was silent all the time, and
        that send is about to fail: its verdict counts for this one too.
        """
        entity = self._entity
        is_silent = self._primary.busy_since <= started
        if entity.health.is_failed_over or (is_silent and entity.engaged.wait(TURN_GRACE)):
            return Redirect(entity.last_error)
        raise error


class Redirect:
    """A call must go to the backlog: `cause` is the primary's error."""

    __slots__ = ("cause",)

    def __init__(self, cause: BaseException | None) -> None:
        self.cause = cause
