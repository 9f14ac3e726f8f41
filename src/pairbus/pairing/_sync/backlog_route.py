# generated from src/pairbus/pairing/_async/backlog_route.py by tools/gen_unasync.py; edit that one
"""The route around the primary: one sender's backlog queue, and another one if that fails."""

from __future__ import annotations

import random
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

from azure.servicebus.exceptions import OperationTimeoutError

from pairbus import events
from pairbus.classify import Verdict, is_connection_failure
from pairbus.exceptions import (
    PairUnavailableError,
    PartlySentError,
    add_source,
    bare,
    describe,
    twin,
)
from pairbus.pairing._sync.connection import is_opening_failure
from pairbus.pairing._sync.entity import Entity
from pairbus.pairing._sync.link import Link
from pairbus.pairing._sync.primary_route import Redirect, may_be_stored
from pairbus.pairing.core.backlog import BacklogCall, Failure
from pairbus.pairing.outgoing import Outgoing
from pairbus.pairing.packing import Chunk, pack
from pairbus.pairing.runtime import Guard, sleep, spawn
from pairbus.pairing.sdk.senders import SHUT_DOWN, ShutDownError, UnwantedError
from pairbus.pairing.turns import TurnTimeoutError

if TYPE_CHECKING:
    from pairbus.pairing._sync.lifecycle import Lifecycle

BUSY_BACKOFF = 0.8
_FAILURES = {
    Verdict.FULL: Failure.UNUSABLE,
    Verdict.MISSING: Failure.UNUSABLE,
    Verdict.REOPEN: Failure.ERROR,  # detached once more after the link was reopened
}


class BacklogRoute:
    """Where the messages of one sender go while its entity is failed over.

    Args:
        lifecycle: Knows whether the secondary is open.
        entity: The entity of the primary.
        name: The entity's name, as the application wrote it.
    """

    def __init__(self, lifecycle: Lifecycle, entity: Entity, name: str) -> None:
        self.current: Link | None = None
        self._lifecycle = lifecycle
        self._pair = entity.pair
        self._entity = entity
        self._name = name
        self._is_left = False
        self._used: str | None = None  # the queue that took this sender's last message
        self._guard = Guard()

    def leave(self) -> Link | None:
        """Stop for good; returns the link for the caller to close."""
        with self._guard:
            self._is_left = True
            link, self.current = self.current, None
            return link

    def abandon(self) -> None:
        """Release the connection without closing it: another process uses it."""
        self._guard = Guard()  # a thread of that process may have it
        if self.current is not None:
            self.current.abandon()

    def warm_up(self) -> None:
        """Open the link while the primary is suspected: it takes several round trips."""
        if self.current is None or not self.current.is_open:
            spawn(self._open, name=f"pairbus warm-up {self._name}")

    def _open(self) -> None:
        try:
            link = self._link()
            if link is not None:
                link.open(deadline=monotonic() + self._pair.timing.send_timeout)
        except Exception:  # noqa: BLE001  # the next send reports it
            return

    def _link(self, call: BacklogCall | None = None) -> Link | None:
        """The link to this sender's backlog queue; None if `call` must give up.

        The queue is picked at random, and kept while it is in rotation.
        """
        with self._guard:
            self._lifecycle.check()
            if self._is_left:  # nobody would close a link that is opened after the close
                raise ValueError(SHUT_DOWN)
            link = self.current
            current = link.path if link is not None else None
            rotation, draw = self._pair.rotation, random.random()
            if call is None:
                path = rotation.pick(draw, current=current)
            else:
                path = call.pick(rotation, current=current, now=monotonic(), draw=draw)
            if path is None:
                return None
            if link is None or link.path != path:
                if link is not None:
                    link.discard()
                sharing = self._pair.sharing(path, backlog=True)
                link = self.current = self._pair.backlog_link(path, sharing=sharing)
            return link

    def take(self, outgoing: Outgoing, budget: float, redirect: Redirect) -> bool:
        """Put the messages into a backlog queue, within `budget` seconds.

        False if the entity was draining and that has just ended: send to the primary instead.
        """
        entity, pair = self._entity, self._pair
        refusal = entity.refusal  # read once: a ping that succeeds removes it
        if entity.health.refused and refusal is not None:
            raise bare(refusal)
        self._lifecycle.check(secondary=True)
        chunks = pack(outgoing, self._name, pair.batch_limit, pair.secondary_batches)
        if not pair.timing.drains_first:
            self._take(chunks, budget, redirect)
            return True
        call = object()
        try:
            try:
                may_enter, left = entity.drain.enter(call, budget)
                if may_enter:
                    self._take(chunks, left, redirect)
            finally:
                entity.drain.leave(call)
        except BaseException:
            entity.drain.leave(call)  # a signal may have interrupted the first
            raise
        return may_enter

    def _take(self, chunks: Sequence[Chunk], budget: float, redirect: Redirect) -> None:
        entity, pair = self._entity, self._pair
        now = monotonic()
        taken: list[Any] = []
        for position, chunk in enumerate(chunks):
            call = BacklogCall(now, now + budget)
            try:
                path, is_counted, is_uncertain = self._to_backlog(chunk, call, redirect)
            except Exception as error:
                if not taken:
                    raise
                left = [item for later in chunks[position:] for item in later.originals]
                raise PartlySentError(self._name, taken, left, error) from error
            taken += chunk.originals
            if path != self._used:
                self._check_order(path)
                self._used = path
            pair.backlogged(entity, path, chunk, is_counted=is_counted, is_uncertain=is_uncertain)

    def _to_backlog(
        self, chunk: Chunk, call: BacklogCall, redirect: Redirect
    ) -> tuple[str, bool, bool]:
        """Send to this sender's backlog queue, or to another one.

        Returns the queue that took it, whether the ledger has the call already, and whether an
        attempt before it may have left a copy elsewhere.
        """
        pair = self._pair
        busy_wait = BUSY_BACKOFF
        is_uncertain = redirect.is_uncertain
        errors: dict[str, Exception] = {}
        last: Exception | None = None
        reopened: Link | None = None
        while True:
            link = self._link(call)
            if link is None:
                self._unavailable(redirect.cause, last)
            path = link.path
            deadline = call.attempt_deadline(pair.rotation, path, monotonic())
            try:
                try:
                    is_counted = link.send(chunk.what, deadline=deadline, size=chunk.size)
                except BaseException as error:
                    self._note_doubt(path, error)
                    raise
            except ShutDownError:
                self._lifecycle.closed_by_application(primary=False)
            except UnwantedError:
                continue  # another thread has left this queue: follow it
            except TurnTimeoutError as error:
                last = last or error  # no evidence against the queue
                is_uncertain = is_uncertain or may_be_stored(error)
                continue
            except Exception as error:
                is_uncertain = is_uncertain or may_be_stored(error)
                verdict = pair.verdict(error)
                if verdict is Verdict.REFUSED:
                    add_source(error, link.name)
                    raise
                if verdict is Verdict.REOPEN and reopened is not link:
                    reopened = link
                    continue
                if verdict is Verdict.BUSY:
                    # Throttled: the queue works. Wait, up to the deadline.
                    if monotonic() + busy_wait >= call.deadline:
                        add_source(error, link.name)
                        raise
                    sleep(busy_wait)
                    busy_wait *= 2
                    continue
                errors[path] = error
                if last is None or monotonic() < call.deadline:
                    # An attempt that the deadline cut short explains nothing.
                    last = add_source(twin(error), link.name)
                failure = _FAILURES.get(verdict) or _outage(error)
                if failure is Failure.UNUSABLE or path not in pair.rotation.available:
                    pair.remove_queue(path, error)
                wait = call.note_failure(
                    path,
                    failure,
                    pair.rotation,
                    now=monotonic(),
                    draw=random.random(),
                    others=pair.reconnecting.waiting,
                )
                if monotonic() + wait >= call.deadline:
                    self._unavailable(redirect.cause, last)
                if wait:
                    pair.reconnecting.wait(wait)
            else:
                if pair.reconnecting.waiting:
                    pair.reconnecting.connected()
                if errors:
                    for bad in call.bad_queues(path, monotonic()):
                        pair.remove_queue(bad, errors[bad])
                if path not in pair.rotation.available:
                    pair.restore_queue(path)
                pair.batch_limit = link.batch_limit or pair.batch_limit
                return path, is_counted, is_uncertain

    def _note_doubt(self, path: str, error: BaseException) -> None:
        """If it is not known whether the queue took the messages, the drain waits for them."""
        if not isinstance(error, Exception) or self._is_in_doubt(error):
            self._check_order(path)  # a copy there may overtake the messages before it
            with self._entity.guard:
                self._entity.drain.took(path)

    def _check_order(self, path: str) -> None:
        """Report that the order is lost if the sender's last message is in another queue."""
        if self._used != path and self._used in self._entity.drain.queues:
            self._entity.order_lost("a sender changed its backlog queue")

    def _is_in_doubt(self, error: Exception) -> bool:
        if isinstance(error, UnwantedError | ShutDownError) or is_opening_failure(error):
            return False
        if isinstance(error, TurnTimeoutError):
            return error.was_sent
        return self._pair.verdict(error) in (Verdict.OUTAGE, Verdict.REOPEN)

    def _unavailable(self, cause: Exception | None, failure: Exception | None) -> NoReturn:
        pair, entity = self._pair, self._entity
        primary = cause or entity.last_error
        if primary is not None:
            primary = add_source(twin(primary), pair.primary_name(self._name))
        if failure is None:
            failure = OperationTimeoutError(message="The deadline has passed.")
        pair.bus.emit(
            events.PairUnavailable,
            entity.name,
            primary=describe(primary, "failed over"),
            secondary=describe(failure),
        )
        raise PairUnavailableError(entity.name, primary, failure) from failure


def _outage(error: Exception) -> Failure:
    if isinstance(error, OperationTimeoutError | TimeoutError):
        return Failure.SILENT
    return Failure.BROKEN if is_connection_failure(error) else Failure.ERROR
