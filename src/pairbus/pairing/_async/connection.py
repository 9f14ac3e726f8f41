"""The SDK sender below a link: opened, bounded, dropped after a failure, and closed.

The SDK's senders may wait without limit, and are in an unknown state after a failure. So calls that
may never return, such as opening a sender, run where they can be abandoned, and a sender that
failed is closed in the background and replaced by a new one. If the application drops the link,
the sender is closed: otherwise it would keep its connection open.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.pairing.abandoning import AbandonedError, aabandonable
from pairbus.pairing.resolving import aresolve
from pairbus.pairing.runtime import aon_drop, aspawn
from pairbus.pairing.sdk import contract, senders
from pairbus.pairing.sdk.senders import KeepingOpen, Readiness, ShutDownError
from pairbus.pairing.sdk.wire import Opening, cut, hang_up, release, wire_of

T = TypeVar("T")
logger = logging.getLogger("pairbus.link")

_OPENING = "while the link was being opened"
_SILENT = "after the open link had been silent"


class OpenTimeoutError(OperationTimeoutError):
    """The host did not answer while a link was being opened."""


def is_opening_failure(error: BaseException) -> bool:
    """Whether a link could not be opened."""
    return _OPENING in getattr(error, "__notes__", ())


def is_unsent(error: BaseException) -> bool:
    """Whether nothing was sent, because the link could not be opened."""
    return is_opening_failure(error) and _SILENT not in getattr(error, "__notes__", ())


def add_silence(error: BaseException) -> None:
    """Note that `error` of a second connection ended a send over a link that was open."""
    if _SILENT not in getattr(error, "__notes__", ()):
        error.add_note(_SILENT)


class Connection:
    """At most one SDK sender, for one user at a time.

    Args:
        make: Returns a new SDK sender.
        name: The link's name in errors.
        open_timeout: How long opening may take, in seconds.
    """

    def __init__(
        self, make: Callable[[], ServiceBusSender], name: str, open_timeout: float
    ) -> None:
        self.sender: ServiceBusSender | None = None
        self.keeping_open: KeepingOpen | None = None  # the context for calls of the sender
        self.ready: Readiness | None = None  # None: check the sender before the next send
        self.end: Exception | None = None  # raised by every further use
        self.batch_limit = 0  # bytes that the service takes in one send; 0 until it was open once
        self._make = make
        self.name = name
        self._open_timeout = open_timeout
        self._wire: Any = None
        self._cancel_drop: Callable[[], object] | None = None

    async def opened(self, deadline: float) -> ServiceBusSender:
        """The SDK's sender, which is opened before `deadline` if it is not open."""
        if self.end is not None:
            raise self.end
        if self.sender is not None:
            return self.sender
        now = monotonic()
        if now >= deadline:
            raise self.late()
        opened_by = min(deadline, now + self._open_timeout)
        sender = self._make()
        keeping_open = senders.disable_retries(sender)
        senders.share_tls_context(sender)
        opening = Opening(sender)
        try:
            host = senders.host_to_resolve(sender)
            if host is not None:
                await aresolve(host, opened_by)
            self.sender, self._wire, self.keeping_open = sender, None, keeping_open
            await self.bounded(sender, opened_by, sender.__aenter__, opening)
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
        self._wire = wire_of(sender)
        contract.probe_open_sender(sender)
        end = self._ended()
        if end is not None:
            # Closed while it was opening, which undid the closing.
            self._let_go()
            self._close_later(sender)
            raise end
        self._cancel_drop = aon_drop(self, close_quietly, sender, self._wire)
        batch = await sender.create_message_batch()
        self.batch_limit = batch.max_size_in_bytes
        return sender

    async def bounded(
        self,
        sender: ServiceBusSender,
        deadline: float,
        call: Callable[..., Awaitable[T]],
        opening: Opening | None = None,
    ) -> T:
        """Run `call` where it can be abandoned at `deadline`."""
        keeping_open = self.keeping_open or nullcontext()

        async def call_sender() -> T:
            with keeping_open:
                return await call()

        try:
            return await aabandonable(
                deadline - monotonic(),
                call_sender,
                what=self.name,
                give_up=partial(hang_up, sender),
                late=partial(close_quietly, sender, self._wire, opening),
            )
        except BaseException as error:
            self.failed(sender, error, deadline, opening)
            raise

    def failed(
        self,
        sender: ServiceBusSender,
        error: BaseException,
        deadline: float,
        opening: Opening | None = None,
    ) -> None:
        """Drop the sender, unless the SDK refused an argument; report timeouts as one error."""
        if self.end is not None and isinstance(error, Exception):
            if opening is not None:
                opening.cut()  # closing a sender that is being opened leaves its connection
            raise self.end from error  # closed by ourselves while this was under way
        if isinstance(error, ValueError | TypeError):
            if not senders.is_shut_down(error):
                return
            self._let_go()
            # The application may have closed it within this call, which left its connection open.
            self._close_later(sender, opening)
            raise ShutDownError from error
        if self.sender is sender:
            self._let_go()
        is_late = monotonic() >= deadline
        if not isinstance(error, AbandonedError):  # an abandoned call cleans up after itself
            if is_late:
                self.cut()
            self._close_later(sender, opening)
        if is_late and isinstance(error, Exception):
            raise self.late() from error

    def late(self) -> OperationTimeoutError:
        """The error of a use that reached its deadline."""
        return OperationTimeoutError(message=f"{self.name} did not answer within the deadline.")

    async def close(self) -> None:
        """Close the sender, if there is one."""
        sender = self._let_go()
        if sender is not None:
            await close_quietly(sender, self._wire)

    def cut(self) -> None:
        """Cut the connection below the last sender."""
        cut(self._wire)

    def abandon(self) -> None:
        """Release the connection without closing it: another process uses it."""
        release(self._wire)
        self._let_go()

    def _ended(self) -> Exception | None:
        return self.end  # set by others at any time

    def _let_go(self) -> ServiceBusSender | None:
        """Return the SDK's sender, if there is one, for the caller to close."""
        sender, self.sender, self.ready = self.sender, None, None
        self.keeping_open = None
        cancel, self._cancel_drop = self._cancel_drop, None
        if cancel is not None:
            cancel()
        return sender

    def _close_later(self, sender: ServiceBusSender, opening: Opening | None = None) -> None:
        name = f"pairbus close {self.name}"
        aspawn(close_quietly, sender, self._wire, opening, name=name)


async def close_quietly(
    link: Any, wire: Any = None, opening: Opening | None = None, *, seconds: float = 10.0
) -> None:
    """Close a sender or receiver of the SDK; one whose peer is silent is abandoned."""
    try:
        await aabandonable(seconds, link.close, what="closing a link")
    except Exception as error:  # noqa: BLE001  # it may have failed before; it counts as closed
        logger.debug("closing a link: %r", error)
    finally:
        cut(wire)  # also where the program ends meanwhile
        if opening is not None:
            opening.cut()
