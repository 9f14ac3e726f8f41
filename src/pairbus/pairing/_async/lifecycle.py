"""The life of a pair: open, closed or faulted, for the paired client and for its secondary."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from azure.servicebus.aio import ServiceBusClient

from pairbus import events
from pairbus.exceptions import ClientClosedError, ClientFaultedError
from pairbus.pairing import forking, registry
from pairbus.pairing._async.pair import Pair
from pairbus.pairing._async.protection import Protection
from pairbus.pairing.abandoning import aabandonable
from pairbus.pairing.runtime import AGuard, ablocking, aon_drop, asleep, aspawn
from pairbus.pairing.syphon_hook import RunningSyphon
from pairbus.status import PairStatus, StatusFile

if TYPE_CHECKING:
    from pairbus.pairing._async.sender import PairedSender

logger = logging.getLogger("pairbus.client")

# How long one of the two clients may stay open after the other, where the syphon runs.
FAULT_AFTER = 5.0
# How long closing waits for a ping or probe that is under way.
CLOSE_WAIT = 1.0


class Side:
    """Whether one of the two clients is open; the SDK's clients have no such state."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = "open"
        self.reason: str | None = None

    def check(self) -> None:
        """Raise the reason why it cannot be used, if it cannot."""
        if self.state == "open":
            return
        if self.state == "faulted":
            raise ClientFaultedError(self.reason or "")
        raise ClientClosedError(f"The {self.name} client is closed: {self.reason}")

    def end(self, state: str, reason: str) -> bool:
        """Leave the state `open`; returns whether it was open."""
        if self.state not in ("open", "forked"):
            return False
        self.state, self.reason = state, reason
        return True


class Lifecycle:
    """Closes and faults the two clients of a pair together.

    Args:
        primary: The SDK client that was paired.
        pair: The state that the senders share.
        secondary: The SDK client of the secondary namespace.
        ledger: The directory of the status file, if there is one.
    """

    def __init__(
        self, primary: ServiceBusClient, pair: Pair, secondary: ServiceBusClient, ledger: str | None
    ) -> None:
        self.primary = primary
        self.secondary = secondary
        self.pair = pair
        self.paired_side = Side("paired")
        self.secondary_side = Side("secondary")
        self.senders: weakref.WeakSet[PairedSender] = weakref.WeakSet()
        self.syphon: RunningSyphon | None = None
        self.protection: Protection | None = None
        self._ledger = ledger
        self._status_file: StatusFile | None = None
        self._guard = AGuard()  # between closing and a syphon that is being started
        self._is_watching = False
        self._is_closing = False
        self._is_released = False
        self._cancel_drop: Callable[[], object] | None = None

    def check(self, *, secondary: bool = False) -> None:
        """Raise if the paired client, or its secondary if that is asked for, cannot be used."""
        if self.paired_side.state != "open":
            if self.paired_side.state == "forked":
                forking.restart(self)
            self.paired_side.check()
        if secondary:
            self.secondary_side.check()

    def status(self) -> PairStatus:
        """The state of the pair."""
        if self.paired_side.state == "forked":
            forking.restart(self)
        return self.pair.status(self.paired_side.state, self.paired_side.reason)

    def forget(self, *, is_final: bool) -> None:
        """Forget what runs in another process; closing changes nothing there if `is_final`."""
        self.syphon = self.protection = self._status_file = None
        if self._cancel_drop is not None:
            self._cancel_drop()
        self._is_watching = False
        self._guard = AGuard()
        self._is_released = is_final
        self.pair.bus.on_transition = None

    async def protect(self) -> None:
        """Check in the background that messages can be sent to the backlog queues."""
        self.protection = Protection(self.pair, None)
        await self.protection.start(0)

    def close_if_dropped(self) -> None:
        """Stop the background tasks once the application holds neither client nor senders."""
        self._cancel_drop = aon_drop(self, _stop, self.pair, self.protection)

    def keep_status(self) -> None:
        """Write `status/<client id>.json` in the ledger's directory from now on."""
        pair, owner = self.pair, weakref.ref(self)
        if self._ledger is None or pair.ledger is None:
            return

        def snapshot() -> PairStatus:
            lifecycle = owner()
            return lifecycle.status() if lifecycle is not None else pair.status("dropped", None)

        self._status_file = StatusFile(
            self._ledger, pair.client_id, snapshot, pair.ledger.write_status
        )
        pair.bus.on_transition = self._status_file.notify

    def start_syphon_when_protected(self, start: Callable[[], RunningSyphon]) -> None:
        """Start the syphon in the background, once the backlog queues can be used."""
        assert self.protection is not None
        # A weak reference: a client that the application drops starts nothing any more.
        aspawn(_start_later, self.protection, weakref.ref(self), start, name="pairbus syphon start")

    async def start_syphon(self, start: Callable[[], RunningSyphon]) -> None:
        """Start the syphon now; it is stopped again if it was refused meanwhile."""
        await ablocking(_start, weakref.ref(self), start)

    async def refuse_syphon(self) -> None:
        """Stop the syphon, also one that is still being started: pairing has failed."""
        with self._guard:
            self._is_closing = True
        if self.syphon is not None:
            await ablocking(self.syphon.stop)

    def keep_syphon(self, syphon: RunningSyphon) -> bool:
        """Take over a syphon that was started late; False if the client is closed."""
        with self._guard:
            if not self._is_closing:
                self.syphon = syphon
            return not self._is_closing

    # -- close and fault

    async def close(self) -> None:
        """Close both clients, the senders and the syphon. Twice is fine."""
        was_forked = self.paired_side.state == "forked" and forking.close(self)
        was_open = self.paired_side.end("closed", "close() was called") or was_forked
        # Also if it is cancelled: nobody can use the client any more.
        try:
            try:
                await self._release_all()
            finally:
                await self.close_secondary()
        finally:
            if was_open:
                self.pair.bus.emit(events.ClientClosed)

    async def close_secondary(self) -> None:
        """Close the secondary alone. Twice is fine."""
        if self.secondary_side.end("closed", "close() was called"):
            # In a task of its own, which continues if the caller is cancelled.
            await aspawn(self._close_secondary, name="pairbus close").join()

    async def _close_secondary(self) -> None:
        await close_sdk(self.secondary)
        self.fault_other_soon("secondary")  # from now on, as the caller could not go on before

    async def _release_all(self) -> None:
        with self._guard:
            if self._is_released:
                return
            self._is_closing = True
        # Each step may be repeated: a close that was cancelled continues when it is called again.
        self._stop_background()
        if self.syphon is not None:
            try:
                await ablocking(self.syphon.stop)
            except Exception:
                logger.exception("the syphon did not stop; the clients are closed nevertheless")
            self.syphon = None
        closing = [aspawn(sender.close, name="pairbus close") for sender in list(self.senders)]
        for task in closing:
            await task.join(10.0)
        if self.protection is not None:
            await self.protection.close()
        await self.pair.attempts.wait(CLOSE_WAIT)
        await self.pair.replies.close()
        await close_sdk(self.primary)
        registry.leave(self.primary, self.secondary)
        if self._status_file is not None:
            await ablocking(self._status_file.close)
        if self.pair.ledger is not None:
            await ablocking(self.pair.ledger.close)
        self._is_released = True

    def _stop_background(self) -> None:
        self.pair.close()
        if self.protection is not None:
            self.protection.stop()

    def closed_by_application(self, *, primary: bool) -> NoReturn:
        """Mark a client as closed because the application closed its SDK client, and raise."""
        side = self.paired_side if primary else self.secondary_side
        if side.end("closed", "the SDK client below it was closed"):
            if primary:
                self._stop_background()
            self.fault_other_soon(side.name)
        side.check()
        raise AssertionError("a side that is not open raises")

    def fault_other_soon(self, name: str) -> None:
        """One of the two clients is closed or faulted: with a syphon, fault the other in 5 s."""
        if self.syphon is not None and not self._is_watching:
            self._is_watching = True
            aspawn(self._fault_other, name, name="pairbus fault watch")

    async def _fault_other(self, name: str) -> None:
        await asleep(FAULT_AFTER)
        reason = f"the {name} client is down, and this one was not closed within {FAULT_AFTER:g} s"
        if name == "secondary":
            await self.fault(reason)
        elif self.secondary_side.end("faulted", reason):
            await close_sdk(self.secondary)
            self.pair.bus.emit(events.ClientFaulted, side="secondary", reason=reason)

    async def fault(self, reason: str) -> None:
        """Fault the paired client: every use of it, its senders and receivers raises `reason`."""
        if not self.paired_side.end("faulted", reason):
            return
        self.pair.bus.emit(events.ClientFaulted, side="paired", reason=reason)
        self._stop_background()
        await close_sdk(self.primary)
        self.fault_other_soon("paired")


def _start(owner: weakref.ref[Lifecycle], start: Callable[[], RunningSyphon]) -> None:
    # On a thread: a cancelled task must not lose a syphon that has just been started.
    syphon = start()
    lifecycle = owner()
    if lifecycle is None or not lifecycle.keep_syphon(syphon):
        syphon.stop()


async def _start_later(
    protection: Protection,
    owner: weakref.ref[Lifecycle],
    start: Callable[[], RunningSyphon],
) -> None:
    if not await protection.wait():
        return
    try:
        await ablocking(_start, owner, start)
    except Exception as error:  # noqa: BLE001  # pair_namespace has returned already
        logger.error("the syphon could not be started: %s", error)


async def _stop(pair: Pair, protection: Protection | None) -> None:
    pair.close()
    if protection is not None:
        protection.stop()


async def close_sdk(client: ServiceBusClient) -> None:
    """Close an SDK client; one whose peer is silent is abandoned."""
    for _ in range(5):
        try:
            await aabandonable(10.0, client.close, what="closing a client")
        except RuntimeError as error:
            # The SDK stops half-way when a sender is made or closed meanwhile: close the rest.
            logger.debug("closing a client: %r", error)
        except Exception as error:  # noqa: BLE001  # it counts as closed in any case
            logger.warning("closing a client: %r", error)
            return
        else:
            return
