# generated from src/pairbus/pairing/_async/link.py by tools/gen_unasync.py; edit that one
"""A link: one SDK sender, used by one caller at a time, with a deadline, rebuilt after a failure.

The SDK's senders are not safe to share, may wait without limit, and are in an unknown state after a
failure. A link lets callers take turns, bounds every use, and replaces the SDK's sender when it
failed. A send on an open link runs in the caller's own thread or task. Opening a link, and any
other call that may never return, runs where it can be abandoned. If the application drops a link,
the SDK's sender is closed: otherwise it would keep its connection open.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.pairing._sync.coalescer import Coalescer, Sharing, single_of
from pairbus.pairing.abandoning import AbandonedError, abandonable
from pairbus.pairing.deadlines import Watch
from pairbus.pairing.resolving import resolve
from pairbus.pairing.runtime import on_drop, spawn
from pairbus.pairing.sdk import contract, senders
from pairbus.pairing.sdk.senders import SHUT_DOWN, Opening, Readiness, ShutDownError, UnwantedError
from pairbus.pairing.turns import Lock, Request, Turn, TurnTimeoutError

T = TypeVar("T")
logger = logging.getLogger("pairbus.link")


class OpenTimeoutError(OperationTimeoutError):
    """The host did not answer while a link was being opened."""


_OPENING = "while the link was being opened"


def is_opening_failure(error: BaseException) -> bool:
    """Whether the link could not be opened, so that nothing was sent."""
    return _OPENING in getattr(error, "__notes__", ())


class Link:
    """A link to one entity of one namespace.

    Args:
        make: Returns a new SDK sender.
        name: Its name in errors.
        path: The queue, for a link to a backlog queue.
        open_timeout: How long opening may take, in seconds.
        sharing: How single messages that wait together are coalesced; None if they are not.
        ask_host: Returns why the host cannot be reached, or None. It is asked when a send over the
            open link has had no answer for `open_timeout` seconds.
    """

    def __init__(
        self,
        make: Callable[[], ServiceBusSender],
        name: str,
        path: str = "",
        *,
        open_timeout: float = 5.0,
        sharing: Sharing | None = None,
        ask_host: Callable[[], Exception | None] | None = None,
    ) -> None:
        self.name = name
        self.path = path
        self.busy_since = 0.0  # when the last send began that had the turn
        self._open_timeout = open_timeout
        self.batch_limit = 0  # bytes that the service takes in one send; 0 until it was open once
        self._make = make
        self._lock = Lock()
        self._coalescer = Coalescer(self._lock, sharing, name) if sharing is not None else None
        self._ask_host = ask_host
        self._host_failure: Exception | None = None  # why the send under way was given up
        self._watch = Watch(open_timeout, _weakly(self._on_silence) if ask_host else None)
        self._sender: ServiceBusSender | None = None
        self._wire: Any = None
        self._ready: Readiness | None = None  # None: check the sender before the next send
        self._end: Exception | None = None  # raised by every further use
        self._cancel_drop: Callable[[], object] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the next send finds an open link."""
        return self._sender is not None

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._lock.waiting())

    def send(
        self,
        what: Any,
        *,
        deadline: float,
        wanted: Callable[[], bool] | None = None,
        size: int = 0,
    ) -> bool:
        """Send `what`, a message, a list or a batch, before `deadline` (monotonic seconds).

        `size` is about how many bytes a single message has, if the caller knows it. Returns whether
        the message went with others as a list, which is in the ledger already.

        Raises:
            OperationTimeoutError: at the deadline.
            TurnTimeoutError: at the deadline, while other sends were still under way.
            UnwantedError: if this send had to wait for its turn and `wanted` returns False then.
            ShutDownError: if the SDK's client was closed without our knowledge.
            ServiceBusError, ValueError, TypeError: as the SDK raises them.
        """
        turn = Turn()
        try:
            if not self._lock.now(turn):
                turn = Request(what, single_of(what, size), deadline, wanted)
                return self._wait_and_send(turn)
            self._transmit(what, deadline)
            return False
        finally:
            self._release(turn)

    def _wait_and_send(self, request: Request) -> bool:
        """Wait for the turn and send; or wait until others have sent it with theirs."""
        busy_since = 0.0
        try:
            try:
                has_turn = self._lock.acquire(request, request.deadline)
            finally:
                request.is_over = True
            if not has_turn:
                busy_since = request.taken_at or monotonic()
                if isinstance(request.answer, Exception):
                    raise request.answer
                if request.answer is None:
                    raise self._late()
                return True
            if request.wanted is not None and not request.wanted():
                raise UnwantedError
            busy_since = monotonic()
            self._transmit(request.what, request.deadline)
        except OperationTimeoutError as error:
            is_short = monotonic() - busy_since < self._open_timeout
            if is_short and not isinstance(error, TurnTimeoutError):
                # It waited for its turn for so long that it was hardly on the wire.
                raise self._no_turn() from error
            raise
        return False

    def _transmit(self, what: Any, deadline: float) -> None:
        """Send over the link, for the caller who has the turn."""
        self.busy_since = monotonic()
        ready = self._ready
        if ready is None or not ready.holds() or self._end is not None:
            ready = self._prepared(what, deadline)
            if ready is None:
                return
        left = deadline - monotonic()
        if left <= 0:
            raise self._late()
        try:
            self._watch.send(ready.sender, what, deadline, left)
        except BaseException as error:
            given_up, self._host_failure = self._host_failure, None
            self._failed(ready.sender, error, deadline)
            if given_up is not None and isinstance(error, Exception):
                senders.cut(self._wire)
                raise given_up from error
            detached = senders.detach_error(ready, error)
            if detached is not None:
                raise detached from error
            raise

    def _on_silence(self) -> None:
        spawn(self._check_host, name=f"pairbus second connection, {self.name}")

    def _check_host(self) -> None:
        """End the send under way if the host does not answer a second connection either."""
        assert self._ask_host is not None
        failure = self._ask_host()
        if failure is not None:
            self._host_failure = failure
            if not self._watch.give_up():
                self._host_failure = None  # answered meanwhile

    def _prepared(self, what: Any, deadline: float) -> Readiness | None:
        """Open the link, so that `what` can be sent; None if it was sent already."""
        sender = self._opened(deadline)
        ready = self._ready = senders.readiness(sender, self._ready)
        if ready is not None and ready.holds():
            return ready
        # The SDK must first renew its token, or its internals changed: run the send where it can be
        # abandoned.
        left = deadline - monotonic()
        if left <= 0:
            raise self._late()
        send = partial(sender.send_messages, what, timeout=left)
        self._bounded(sender, deadline, send)
        return None

    def call(self, operation: Callable[..., T], *, deadline: float) -> T:
        """Return the result of `operation(sender)`: for calls such as scheduling."""
        turn = Turn()
        try:
            if not self._lock.acquire(turn, deadline):
                raise self._no_turn()
            sender = self._opened(deadline)
            return self._bounded(sender, deadline, partial(operation, sender))
        finally:
            self._release(turn)

    def open(self, *, deadline: float) -> None:
        """Open the link now, so that the first send finds it open."""
        turn = Turn()
        try:
            if not self._lock.acquire(turn, deadline):
                raise self._no_turn()
            self._opened(deadline)
        finally:
            self._release(turn)

    def close(self) -> None:
        """Close the link for good; a send that is under way fails."""
        self._end = ValueError(SHUT_DOWN)
        sender = self._let_go()
        if sender is not None:
            _close_quietly(sender, self._wire)

    def discard(self) -> None:
        """Close the link for good, in the background, when its last user is done.

        Callers that wait for a turn get `UnwantedError`, and take another link.
        """
        self._end = UnwantedError()
        spawn(self._retire, name=f"pairbus close {self.name}")

    def abandon(self) -> None:
        """Release the connection without closing it: in a child process it is the parent's."""
        senders.release(self._wire)
        self._let_go()

    def _retire(self) -> None:
        turn = Turn()
        try:
            self._lock.acquire(turn, monotonic() + 60.0)
            sender = self._let_go()
            if sender is not None:
                _close_quietly(sender, self._wire)
        finally:
            self._release(turn)

    def _let_go(self) -> ServiceBusSender | None:
        """Return the SDK's sender, if there is one, for the caller to close."""
        sender, self._sender, self._ready = self._sender, None, None
        cancel, self._cancel_drop = self._cancel_drop, None
        if cancel is not None:
            cancel()
        return sender

    def _release(self, turn: Turn) -> None:
        if self._coalescer is not None and self._lock.is_waited_for():
            self._coalescer.release(turn, self._transmit)
        else:
            self._lock.release(turn)

    # -- below, the caller has the turn

    def _no_turn(self) -> TurnTimeoutError:
        return TurnTimeoutError(
            message=f"Other sends to {self.name} took until this one's deadline."
        )

    def _ended(self) -> Exception | None:
        return self._end  # set by others at any time

    def _opened(self, deadline: float) -> ServiceBusSender:
        end = self._ended()
        if end is not None:
            raise end
        sender = self._sender
        if sender is not None:
            return sender
        now = monotonic()
        if now >= deadline:
            raise self._late()
        opened_by = min(deadline, now + self._open_timeout)
        sender = self._make()
        senders.disable_retries(sender)
        senders.share_tls_context(sender)
        opening = Opening(sender)
        try:
            host = senders.host_to_resolve(sender)
            if host is not None:
                resolve(host, opened_by)
            self._sender, self._wire = sender, None
            self._bounded(sender, opened_by, sender.__enter__, opening)
        except OperationTimeoutError as error:
            silent = OpenTimeoutError(
                message=f"{self.name} did not answer for {opened_by - now:.1f} s while the link "
                "was being opened."
            )
            silent.add_note(_OPENING)
            raise silent from error
        except Exception as error:
            error.add_note(_OPENING)
            raise
        finally:
            opening.end()
        self._wire = senders.wire_of(sender)
        contract.probe_open_sender(sender)
        end = self._ended()
        if end is not None:
            # Closed while it was opening, which undid the closing.
            self._let_go()
            spawn(_close_quietly, sender, self._wire, name=f"pairbus close {self.name}")
            raise end
        self._cancel_drop = on_drop(self, _close_quietly, sender, self._wire)
        batch = sender.create_message_batch()
        self.batch_limit = batch.max_size_in_bytes
        if self._coalescer is not None:
            self._coalescer.batch_limit = self.batch_limit
        return sender

    def _bounded(
        self,
        sender: ServiceBusSender,
        deadline: float,
        call: Callable[..., T],
        opening: Opening | None = None,
    ) -> T:
        """Run `call` where it can be abandoned at `deadline`."""
        try:
            return abandonable(
                deadline - monotonic(),
                call,
                what=self.name,
                give_up=partial(senders.hang_up, sender),
                late=partial(_close_quietly, sender, self._wire, opening),
            )
        except BaseException as error:
            self._failed(sender, error, deadline, opening)
            raise

    def _failed(
        self,
        sender: ServiceBusSender,
        error: BaseException,
        deadline: float,
        opening: Opening | None = None,
    ) -> None:
        """Drop the sender, unless the SDK refused an argument; report timeouts as one error."""
        if self._end is not None and isinstance(error, Exception):
            if opening is not None:
                opening.cut()  # closing a sender that is being opened leaves its connection
            raise self._end from error  # closed by ourselves while this was under way
        if isinstance(error, ValueError | TypeError):
            if not senders.is_shut_down(error):
                return
            self._let_go()
            raise ShutDownError from error
        if self._sender is sender:
            self._let_go()
        is_late = monotonic() >= deadline
        if not isinstance(error, AbandonedError):  # an abandoned call cleans up after itself
            if is_late:
                senders.cut(self._wire)
            spawn(_close_quietly, sender, self._wire, opening, name=f"pairbus close {self.name}")
        if is_late and isinstance(error, Exception):
            raise self._late() from error

    def _late(self) -> OperationTimeoutError:
        return OperationTimeoutError(message=f"{self.name} did not answer within the deadline.")


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """`method`, without keeping its object alive: a dropped link must be gone immediately."""
    weak = weakref.WeakMethod(method)

    def call() -> None:
        strong = weak()
        if strong is not None:
            strong()

    return call


def _close_quietly(
    sender: ServiceBusSender, wire: Any, opening: Opening | None = None
) -> None:
    try:
        abandonable(10.0, sender.close, what="closing a sender")
    except Exception as error:  # noqa: BLE001  # it may have failed before
        logger.debug("closing a sender: %r", error)
    finally:
        senders.cut(wire)  # also where the program ends meanwhile
        if opening is not None:
            opening.cut()
