"""A link: one SDK sender, used by one caller at a time, with a deadline.

The SDK's senders are not safe to share. A link lets callers take turns, coalesces single messages
that wait together, and bounds every use. A send on an open link runs in the caller's own thread or
task. `pairbus.pairing._async.connection` opens the SDK's sender and replaces it after a failure.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.pairing._async.coalescer import Coalescer, Sharing, single_of
from pairbus.pairing._async.connection import Connection, add_silence, is_unsent
from pairbus.pairing.runtime import aspawn
from pairbus.pairing.sdk import senders
from pairbus.pairing.sdk.deadlines import AWatch
from pairbus.pairing.sdk.senders import SHUT_DOWN, Readiness, UnwantedError
from pairbus.pairing.turns import ALock, Request, Turn, TurnTimeoutError

T = TypeVar("T")


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

    Attributes:
        connection: The SDK sender of the link.
    """

    def __init__(
        self,
        make: Callable[[], ServiceBusSender],
        name: str,
        path: str = "",
        *,
        open_timeout: float = 5.0,
        sharing: Sharing | None = None,
        ask_host: Callable[[], Awaitable[Exception | None]] | None = None,
    ) -> None:
        self.name = name
        self.path = path
        self.busy_since = 0.0  # when the last send began that had the turn
        self._open_timeout = open_timeout
        self.connection = Connection(make, name, open_timeout)
        self._lock = ALock()
        self._coalescer = (
            None if sharing is None else Coalescer(self._lock, sharing, self.connection)
        )
        self._ask_host = ask_host
        self._host_failure: Exception | None = None  # why the send under way was given up
        self._watch = AWatch(open_timeout, _weakly(self._on_silence) if ask_host else None)

    @property
    def is_open(self) -> bool:
        """Whether the next send finds an open link."""
        return self.connection.sender is not None

    @property
    def batch_limit(self) -> int:
        """How many bytes the service takes in one send; 0 until the link was open once."""
        return self.connection.batch_limit

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._lock.waiting())

    async def send(
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
        is_counted = False
        try:
            try:
                if self._lock.now(turn):
                    await self._transmit(what, deadline)
                else:
                    turn = Request(what, single_of(what, size), deadline, wanted)
                    is_counted = await self._wait_and_send(turn)
            finally:
                if self._lock.waiters:
                    self._release(turn)
                else:  # written out, to save a call
                    self._lock.release(turn)
        except BaseException as error:
            self._release_interrupted(turn, error)
            raise
        return is_counted

    async def _wait_and_send(self, request: Request) -> bool:
        """Wait for the turn and send; or wait until others have sent it with theirs."""
        busy_since = 0.0
        try:
            try:
                has_turn = await self._lock.acquire(request, request.deadline)
            finally:
                request.is_over = True
            if not has_turn:
                busy_since = request.taken_at or monotonic()
                if isinstance(request.answer, Exception):
                    raise request.answer
                if request.answer is None:
                    raise self.connection.late() if request.taken_at else self._no_turn()
                return True
            if request.wanted is not None and not request.wanted():
                raise UnwantedError
            busy_since = monotonic()
            await self._transmit(request.what, request.deadline)
        except OperationTimeoutError as error:
            ended = min(monotonic(), request.deadline)  # a busy machine may be late
            is_short = ended - busy_since < self._open_timeout
            if is_short and not isinstance(error, TurnTimeoutError):
                # It waited for its turn for so long that it was hardly on the wire.
                raise self._no_turn(was_sent=not is_unsent(error)) from error
            raise
        return False

    async def _transmit(self, what: Any, deadline: float) -> None:
        """Send over the link, for the caller who has the turn."""
        self.busy_since = now = monotonic()
        connection = self.connection
        ready = connection.ready
        if ready is None or not ready.holds() or connection.end is not None:
            ready = await self._prepared(what, deadline)
            if ready is None:
                return
            now = monotonic()
        left = deadline - now
        if left <= 0:
            raise connection.late()
        try:
            await self._watch.send(ready.sender, what, deadline, left, connection.keeping_open)
        except BaseException as error:
            given_up, self._host_failure = self._host_failure, None
            connection.failed(ready.sender, error, deadline)
            if given_up is not None and isinstance(error, Exception):
                connection.cut()
                add_silence(given_up)
                raise given_up from error
            detached = senders.detach_error(ready, error)
            if detached is not None:
                raise detached from error
            raise

    def _on_silence(self) -> None:
        aspawn(self._check_host, name=f"pairbus second connection, {self.name}")

    async def _check_host(self) -> None:
        """End the send under way if the host does not answer a second connection either."""
        assert self._ask_host is not None
        failure = await self._ask_host()
        if failure is not None:
            self._host_failure = failure
            if not self._watch.give_up():
                self._host_failure = None  # answered meanwhile

    async def _prepared(self, what: Any, deadline: float) -> Readiness | None:
        """Open the link, so that `what` can be sent; None if it was sent already."""
        connection = self.connection
        sender = await self.connection.opened(deadline)
        ready = connection.ready = senders.readiness(sender, connection.ready)
        if ready is not None and ready.holds():
            return ready
        # The SDK must first renew its token, or its internals changed: run the send where it can be
        # abandoned.
        left = deadline - monotonic()
        if left <= 0:
            raise connection.late()
        send = partial(sender.send_messages, what, timeout=left)
        await connection.bounded(sender, deadline, send)
        return None

    async def call(self, operation: Callable[..., Awaitable[T]], *, deadline: float) -> T:
        """Return the result of `operation(sender, timeout)`: for calls such as scheduling."""

        async def open_and_call() -> T:
            sender = await self.connection.opened(deadline)
            use = partial(operation, sender, max(0.01, deadline - monotonic()))
            return await self.connection.bounded(sender, deadline, use)

        return await self._in_turn(open_and_call, deadline)

    async def open(self, *, deadline: float) -> None:
        """Open the link now, so that the first send finds it open."""
        await self._in_turn(partial(self.connection.opened, deadline), deadline)

    async def _in_turn(self, use: Callable[[], Awaitable[T]], deadline: float) -> T:
        """Return the result of `use()`, which begins when it is this caller's turn."""
        turn = Turn()
        try:
            try:
                if not await self._lock.acquire(turn, deadline):
                    raise self._no_turn()
                result = await use()
            finally:
                self._release(turn)
        except BaseException as error:
            self._release_interrupted(turn, error)
            raise
        return result

    async def close(self) -> None:
        """Close the link for good; a send that is under way fails."""
        self.connection.end = ValueError(SHUT_DOWN)
        await self.connection.close()

    def discard(self) -> None:
        """Close the link for good, in the background, when its last user is done.

        Callers that wait for a turn get `UnwantedError`, and take another link.
        """
        self.connection.end = UnwantedError()
        aspawn(self._retire, name=f"pairbus close {self.name}")

    def abandon(self) -> None:
        """Release the connection without closing it: another process uses it."""
        self.connection.abandon()

    async def _retire(self) -> None:
        turn = Turn()
        try:
            await self._lock.acquire(turn, monotonic() + 60.0)
            await self.connection.close()
        finally:
            self._release(turn)

    def _release(self, turn: Turn) -> None:
        lock = self._lock
        if lock.waiters and self._coalescer is not None:
            self._coalescer.release(turn, self._transmit)
        else:
            lock.release(turn)

    def _release_interrupted(self, turn: Turn, error: BaseException) -> None:
        """Release the turn if a signal handler raised `error`, maybe while it was being released.

        The next waiter would take back a turn whose owner is gone, but the frames of the owner
        exist as long as the application keeps the error, for example in an `except` block.
        """
        if not isinstance(error, Exception):
            self._lock.abandon(turn)

    def _no_turn(self, *, was_sent: bool = False) -> TurnTimeoutError:
        text = f"Other sends to {self.name} took until this one's deadline."
        return TurnTimeoutError(text, was_sent=was_sent)


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """`method`, without keeping its object alive: a dropped link must be gone immediately."""
    weak = weakref.WeakMethod(method)

    def call() -> None:
        strong = weak()
        if strong is not None:
            strong()

    return call
