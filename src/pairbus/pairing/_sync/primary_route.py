# generated from src/pairbus/pairing/_async/primary_route.py by tools/gen_unasync.py; edit that one
"""The route to the primary: attempts on one entity, their retries, and the handling of failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.classify import Verdict, is_connection_failure
from pairbus.exceptions import add_source, add_text
from pairbus.pairing._sync.connection import OpenTimeoutError, is_opening_failure, is_unsent
from pairbus.pairing._sync.entity import Entity
from pairbus.pairing._sync.link import Link
from pairbus.pairing.core.health import Phase
from pairbus.pairing.core.retries import Retries
from pairbus.pairing.sdk.senders import ShutDownError, UnwantedError
from pairbus.pairing.turns import TurnTimeoutError

if TYPE_CHECKING:
    from pairbus.pairing._sync.lifecycle import Lifecycle

# How long a send without a turn waits for the result of the send that has it, in seconds.
TURN_GRACE = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Redirect:
    """A call must go to the backlog.

    Args:
        cause: Why the last attempt failed; None if the call did not get its turn.
        is_uncertain: Whether an attempt may have stored the messages nevertheless.
    """

    cause: Exception | None = None
    is_uncertain: bool = False


def may_be_stored(error: Exception) -> bool:
    """Whether a send that failed with `error` may have stored its messages nevertheless."""
    if isinstance(error, TurnTimeoutError):
        return error.was_sent
    is_silent = isinstance(error, OperationTimeoutError | TimeoutError)
    return (is_silent or is_connection_failure(error)) and not is_unsent(error)


class PrimaryRoute:
    """Where the messages of one sender go while its entity is healthy.

    Args:
        lifecycle: Knows whether the client is open.
        entity: The entity of the primary.
        name: The entity's name, as the application wrote it.
        make: Returns a new SDK sender.
        on_suspicion: Called when an attempt failed and the failover interval is running.
    """

    def __init__(
        self,
        lifecycle: Lifecycle,
        entity: Entity,
        name: str,
        make: Callable[[], ServiceBusSender],
        on_suspicion: Callable[[], None],
    ) -> None:
        self._lifecycle = lifecycle
        self._pair = pair = entity.pair
        self._entity = entity
        self._name = name
        self._on_suspicion = on_suspicion
        # With an interval the caller gets an error anyway, and may as well get it at the deadline.
        is_immediate = pair.timing.failover_interval == 0
        self.link = Link(
            make,
            pair.primary_name(name),
            open_timeout=pair.timing.open_timeout,
            sharing=pair.sharing(name),
            ask_host=partial(pair.host_probe.failure, make) if is_immediate else None,
        )

    def attempt(self, attempt: Callable[[], T], deadline: float) -> T | Redirect:
        """Make an attempt on the primary; returns its result, or that the call is redirected."""
        started, was_open = monotonic(), self.link.is_open
        try:
            return attempt()
        except Exception as error:  # noqa: BLE001  # decided by the table
            return self.after_failure(error, attempt, started, deadline, was_open)

    def after_failure(
        self,
        error: Exception,
        attempt: Callable[[], T],
        started: float,
        deadline: float,
        was_open: bool,
    ) -> T | Redirect:
        """Retry a failed attempt as the client's retry settings say, then decide.

        Returns the result of a retry that succeeded, or a `Redirect` if failover is (or gets)
        engaged; otherwise raises the error that the caller must see.
        """
        pair, entity = self._pair, self._entity
        retries = Retries(pair.retries, was_open)
        busy: Exception | None = None  # the last answer of a service that is busy
        is_uncertain = False
        began = started
        while True:
            is_uncertain = is_uncertain or may_be_stored(error)
            if isinstance(error, UnwantedError):
                return Redirect(None, is_uncertain)
            if isinstance(error, ShutDownError):
                self._lifecycle.closed_by_application(primary=True)
            if isinstance(error, TurnTimeoutError):
                return self._after_turn_timeout(error, started, is_uncertain)
            verdict = pair.verdict(error)
            if verdict in (Verdict.REFUSED, Verdict.FULL, Verdict.MISSING):
                raise self._named(error)
            if entity.health.is_failed_over:
                # Engaged while this send was under way: it is redirected, not failed.
                return Redirect(error, is_uncertain)
            if verdict is Verdict.BUSY:
                busy = error
            elif busy is not None and self._is_cut_short(error, began, deadline):
                raise self._named(busy)
            wait = retries.wait(
                verdict,
                is_broken=verdict is Verdict.OUTAGE and is_connection_failure(error),
                is_silent=isinstance(error, OpenTimeoutError),
            )
            if wait is None or monotonic() + wait >= deadline:
                break
            if wait > 0 and entity.engaged.wait(wait):
                return Redirect(error, is_uncertain)
            self._lifecycle.check()
            began = monotonic()
            try:
                return attempt()
            except Exception as failure:  # noqa: BLE001  # decided by the table
                error = failure
        if verdict is Verdict.BUSY:
            raise self._named(error)
        return self._after_outage(error, started, is_uncertain)

    def _is_cut_short(self, error: Exception, began: float, deadline: float) -> bool:
        """Whether the deadline ended an attempt too early to show that the primary is silent.

        The time after the deadline does not count: a busy machine may report the error late.
        """
        is_late = isinstance(error, OperationTimeoutError)
        return is_late and min(monotonic(), deadline) - began < self._pair.timing.open_timeout

    def _after_outage(self, error: Exception, started: float, is_uncertain: bool) -> Redirect:
        """Report an outage; redirect the call if that fails the entity over, else raise."""
        pair, entity = self._pair, self._entity
        health = entity.failed(error)
        if is_opening_failure(error):
            pair.host_failed(error, started)
        if health.is_failed_over:
            return Redirect(error, is_uncertain)
        self._on_suspicion()
        self._named(error)
        left = health.failing_since + pair.timing.failover_interval - monotonic()
        if health.phase is Phase.SUSPECT:
            add_text(
                error,
                f"; sends to {self._name!r} will go to the backlog in {max(0.0, left):.0f} s "
                "(failover_interval)",
            )
        raise error

    def _named(self, error: Exception) -> Exception:
        return add_source(error, self.link.name)

    def _after_turn_timeout(
        self, error: TurnTimeoutError, started: float, is_uncertain: bool
    ) -> Redirect:
        """Handle a send whose turn did not come before its deadline: no evidence of an outage.

        If the send that has the turn began before this one, the wire was silent all the time, and
        that send is about to fail: its outcome decides this one too.
        """
        entity = self._entity
        is_silent = self.link.busy_since <= started
        if entity.health.is_failed_over or (is_silent and entity.engaged.wait(TURN_GRACE)):
            return Redirect(error if error.was_sent else None, is_uncertain)
        raise error
