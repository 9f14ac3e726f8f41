"""One SDK sender: used by one caller at a time, with a deadline, rebuilt after a failure.

The SDK's senders are not safe to share, may wait for ever, and are in an unknown state after a
failure. A link takes turns, bounds every use, and throws the SDK's sender away when it failed. A
send on an open link runs in the caller's own thread or task. Opening a link, and whatever else may
never come back, runs where it can be left behind. If the application drops a link, the SDK's sender
is closed: left to itself that one would keep its connection open for good.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.pairing.deadlines import AWatch
from pairbus.pairing.outgoing import PairedMessageBatch
from pairbus.pairing.runtime import AbandonedError, ALock, aabandonable, aon_drop, aspawn
from pairbus.pairing.sdk import internals as _sdk
from pairbus.pairing.sdk.writing import shorten

T = TypeVar("T")
_BATCHES = (ServiceBusMessageBatch, PairedMessageBatch)
logger = logging.getLogger("pairbus.link")


class TurnTimeoutError(OperationTimeoutError):
    """Other sends on the same link took until this one's deadline; nothing was sent."""


class Link:
    """A way to one entity of one namespace.

    Args:
        make: Gives a new SDK sender.
        name: What to call it in errors.
        path: The queue that it leads to, where that matters.
    """

    def __init__(self, make: Callable[[], ServiceBusSender], name: str, path: str = "") -> None:
        self.name = name
        self.path = path
        self.batch_limit = 0  # what the service takes in one send; 0 until the link was open once
        self._make = make
        self._lock = ALock()
        self._watch = AWatch()
        self._sender: ServiceBusSender | None = None
        self._wire: Any = None
        self._ready: _sdk.Readiness | None = None  # None: look closer before the next send
        self._end: Exception | None = None  # what every further use raises
        self._keep: Callable[[], object] | None = None  # calls off the closing of a dropped one

    @property
    def is_open(self) -> bool:
        """Whether the next send finds an open link."""
        return self._sender is not None

    async def send(
        self, what: Any, *, deadline: float, wanted: Callable[[], bool] | None = None
    ) -> None:
        """Send `what`, a message, a list or a batch, before `deadline` (monotonic seconds).

        Raises:
            OperationTimeoutError: at the deadline.
            TurnTimeoutError: at the deadline, while other sends were still under way.
            UnwantedError: if `wanted` says so when this send had to wait for its turn.
            ShutDownError: if the SDK's client was closed behind our back.
            ServiceBusError, ValueError, TypeError: as the SDK raises them.
        """
        must_wait = not self._lock.now()
        if must_wait and not await self._lock.acquire(deadline):
            raise self._no_turn()
        try:
            if must_wait and wanted is not None and not wanted():
                raise _sdk.UnwantedError
            ready = self._ready
            if ready is None or not ready.holds() or self._end is not None:
                ready = await self._prepared(what, deadline)
                if ready is None:
                    return
            if what.__class__ in _BATCHES:
                _sdk.adopt(what, ready.sender)
            left = deadline - monotonic()
            if left <= 0:
                raise self._late()
            try:
                await self._watch.send(ready.sender, what, deadline, left)
            except BaseException as error:
                self._failed(ready.sender, error, deadline)
                raise
        finally:
            self._lock.release()

    async def _prepared(self, what: Any, deadline: float) -> _sdk.Readiness | None:
        """Open the link, so that `what` can be sent; None if it was sent already."""
        sender = await self._opened(deadline)
        ready = self._ready = _sdk.readiness(sender)
        if ready is not None and ready.holds():
            return ready
        # The SDK would first have to renew its token, or looks other than we know it: the send
        # runs where it can be left behind.
        if isinstance(what, ServiceBusMessageBatch):
            _sdk.adopt(what, sender)
        left = deadline - monotonic()
        if left <= 0:
            raise self._late()
        send = partial(sender.send_messages, what, timeout=left)
        await self._left_behind(sender, deadline, send)
        return None

    async def call(self, operation: Callable[..., Awaitable[T]], *, deadline: float) -> T:
        """What `operation(sender)` returns: for what is not a plain send, such as scheduling."""
        if not await self._lock.acquire(deadline):
            raise self._no_turn()
        try:
            sender = await self._opened(deadline)
            return await self._left_behind(sender, deadline, partial(operation, sender))
        finally:
            self._lock.release()

    async def open(self, *, deadline: float) -> None:
        """Open the link now, so that the first send finds it open."""
        if not await self._lock.acquire(deadline):
            raise self._no_turn()
        try:
            await self._opened(deadline)
        finally:
            self._lock.release()

    async def close(self) -> None:
        """Close the link for good; a send that is under way fails."""
        self._end = ValueError(_sdk.SHUT_DOWN)
        sender = self._let_go()
        if sender is not None:
            await _close_quietly(sender, self._wire)

    def discard(self) -> None:
        """Close the link for good, in the background, once nobody uses it.

        Who waits for a turn gets `UnwantedError`, and takes another link.
        """
        self._end = _sdk.UnwantedError()
        aspawn(self._retire, name=f"pairbus close {self.name}")

    def after_fork(self) -> None:
        """Start afresh in a child process: what was open, and who had the turn, is the parent's."""
        _sdk.let_go(self._wire)
        self._lock = ALock()
        self._let_go()
        self._wire = None

    async def _retire(self) -> None:
        has_turn = await self._lock.acquire(monotonic() + 60.0)
        try:
            sender = self._let_go()
            if sender is not None:
                await _close_quietly(sender, self._wire)
        finally:
            if has_turn:
                self._lock.release()

    def _let_go(self) -> ServiceBusSender | None:
        """The SDK's sender, if there is one, for the caller to close."""
        sender, self._sender, self._ready = self._sender, None, None
        keep, self._keep = self._keep, None
        if keep is not None:
            keep()
        return sender

    # -- below here the caller has the turn

    def _no_turn(self) -> TurnTimeoutError:
        return TurnTimeoutError(
            message=f"Another send to {self.name} was not done before this one's deadline."
        )

    def _ended(self) -> Exception | None:
        return self._end  # set by others at any time

    async def _opened(self, deadline: float) -> ServiceBusSender:
        end = self._ended()
        if end is not None:
            raise end
        sender = self._sender
        if sender is not None:
            if not _sdk.is_shut_down(sender):
                return sender
            self._let_go()
            raise _sdk.ShutDownError
        left = deadline - monotonic()
        if left <= 0:
            raise self._late()
        sender = self._make()
        _sdk.no_retries(sender)
        shorten(sender)
        _sdk.keep_handler(sender)
        self._sender, self._wire = sender, None
        await self._left_behind(sender, deadline, sender.__aenter__)
        self._wire = _sdk.wire_of(sender)
        _sdk.let_handler_go(sender, is_open=True)
        end = self._ended()
        if end is not None:
            # Closed while it was opening, which undid the closing.
            self._let_go()
            aspawn(_close_quietly, sender, self._wire, name=f"pairbus close {self.name}")
            raise end
        self._keep = aon_drop(self, _close_quietly, sender, self._wire)
        batch = await sender.create_message_batch()
        self.batch_limit = batch.max_size_in_bytes
        return sender

    async def _left_behind(
        self, sender: ServiceBusSender, deadline: float, call: Callable[..., Awaitable[T]]
    ) -> T:
        try:
            return await aabandonable(
                deadline - monotonic(),
                call,
                what=self.name,
                give_up=partial(_sdk.hang_up, sender),
                late=partial(_close_quietly, sender, self._wire),
            )
        except BaseException as error:
            self._failed(sender, error, deadline)
            raise

    def _failed(self, sender: ServiceBusSender, error: BaseException, deadline: float) -> None:
        """Throw the sender away, unless the SDK refused an argument; tell timeouts by one name."""
        if self._end is not None and isinstance(error, Exception):
            raise self._end from error  # closed by ourselves while this was under way
        if isinstance(error, ValueError | TypeError):
            if not _sdk.is_shut_down(sender):
                return
            self._let_go()
            raise _sdk.ShutDownError from error
        if self._sender is sender:
            self._let_go()
        is_late = monotonic() >= deadline
        if not isinstance(error, AbandonedError):  # what is left behind cleans up after itself
            if is_late:
                _sdk.cut(self._wire)
            aspawn(_close_quietly, sender, self._wire, name=f"pairbus close {self.name}")
        if is_late and isinstance(error, Exception):
            raise self._late() from error

    def _late(self) -> OperationTimeoutError:
        return OperationTimeoutError(message=f"{self.name} did not answer within the deadline.")


async def _close_quietly(sender: ServiceBusSender, wire: Any) -> None:
    try:
        await aabandonable(10.0, sender.close, what="closing a sender")
    except Exception as error:  # noqa: BLE001  # it may have failed before; this is no news
        logger.debug("closing a sender: %r", error)
    finally:
        _sdk.cut(wire)  # also where the program ends meanwhile
        _sdk.let_handler_go(sender, is_open=False)
