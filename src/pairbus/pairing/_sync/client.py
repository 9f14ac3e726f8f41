# generated from src/pairbus/pairing/_async/client.py by tools/gen_unasync.py; edit that one
"""The paired client: the surface of `ServiceBusClient`, with senders that are available."""

from __future__ import annotations

import logging
import uuid
import weakref
from collections.abc import Callable
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, NoReturn

from azure.core.paging import ItemPaged
from azure.servicebus import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from pairbus import events
from pairbus.exceptions import ClientFaultedError
from pairbus.options import SendAvailabilityPairedNamespaceOptions
from pairbus.pairing import registry
from pairbus.pairing._sync.lifecycle import SecondaryClient, Side, close_sdk
from pairbus.pairing._sync.pair import Pair
from pairbus.pairing._sync.sender import PairedSender
from pairbus.pairing.core import health as core
from pairbus.pairing.runtime import blocking, on_fork, sleep, spawn
from pairbus.pairing.sdk import internals as _sdk
from pairbus.status import PairStatus, StatusFile, new_client_id

logger = logging.getLogger("pairbus.client")

# How long one of the two clients may stay open after the other, where the syphon runs.
FAULT_AFTER = 5.0


class PairedClient(ServiceBusClient):
    """A `ServiceBusClient` whose senders survive an outage. Made by `pair_namespace`."""

    def __init__(
        self,
        primary: ServiceBusClient,
        options: SendAvailabilityPairedNamespaceOptions,
        pair: Pair,
        wrapped_secondary: ServiceBusClient,
    ) -> None:
        # The SDK's own __init__ is not called: everything but senders is the primary's.
        self._primary = primary
        self._options = options
        self._pair = pair
        self._side = Side("paired")
        self._secondary_sdk = wrapped_secondary
        self._secondary = SecondaryClient(
            wrapped_secondary, Side("secondary"), partial(self._one_is_down, "secondary")
        )
        self._senders: weakref.WeakSet[PairedSender] = weakref.WeakSet()
        self._given: weakref.WeakSet[Any] = weakref.WeakSet()
        self._syphon: Any = None
        self._status_file: StatusFile | None = None
        self._is_watching = False
        self._registered = True
        on_fork(self, PairedClient._go_on, PairedClient._stay_behind)

    def __getattr__(self, name: str) -> Any:
        # What the SDK's methods look for on their own client, they find on the primary.
        if name == "_primary":
            raise AttributeError(name)
        return getattr(self._primary, name)

    def __repr__(self) -> str:
        return (
            f"<PairedClient {self._pair.primary_host} with {self._pair.secondary_host} "
            f"{self._side.state}>"
        )

    # -- the SDK's surface

    def __enter__(self) -> PairedClient:
        self._check_usable()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.close()

    def get_queue_sender(
        self,
        queue_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        **kwargs: Any,
    ) -> PairedSender:
        """A sender to a queue that stays available. Takes the SDK's keyword arguments."""
        return self._sender(
            queue_name, self._primary.get_queue_sender, client_identifier, socket_timeout, kwargs
        )

    def get_topic_sender(
        self,
        topic_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        **kwargs: Any,
    ) -> PairedSender:
        """A sender to a topic that stays available. Takes the SDK's keyword arguments."""
        return self._sender(
            topic_name, self._primary.get_topic_sender, client_identifier, socket_timeout, kwargs
        )

    def _sender(
        self,
        name: str,
        get: Callable[..., ServiceBusSender],
        client_identifier: str | None,
        socket_timeout: float | None,
        kwargs: dict[str, Any],
    ) -> PairedSender:
        self._check_usable()
        identifier = client_identifier or f"SBSender-{uuid.uuid4()}"
        make = partial(
            get, name, client_identifier=identifier, socket_timeout=socket_timeout, **kwargs
        )
        make()  # wrong arguments are refused here and now, as the SDK does
        sender = PairedSender(self, self._pair, self._pair.entity(name), make, name, identifier)
        self._senders.add(sender)
        return sender

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ServiceBusReceiver:
        """A receiver of the primary, untouched: the SDK's own."""
        self._check_usable()
        receiver = self._primary.get_queue_receiver(queue_name, **kwargs)
        self._given.add(receiver)
        return receiver

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **kwargs: Any
    ) -> ServiceBusReceiver:
        """A receiver of the primary, untouched: the SDK's own."""
        self._check_usable()
        receiver = self._primary.get_subscription_receiver(topic_name, subscription_name, **kwargs)
        self._given.add(receiver)
        return receiver

    def list_queue_sessions(
        self,
        queue_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> ItemPaged[str]:
        """The session ids of a queue of the primary, as the SDK gives them."""
        self._check_usable()
        found: ItemPaged[str] = self._primary.list_queue_sessions(
            queue_name, state_updated_after=state_updated_after, timeout=timeout
        )
        return found

    def list_subscription_sessions(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> ItemPaged[str]:
        """The session ids of a subscription of the primary, as the SDK gives them."""
        self._check_usable()
        found: ItemPaged[str] = self._primary.list_subscription_sessions(
            topic_name, subscription_name, state_updated_after=state_updated_after, timeout=timeout
        )
        return found

    def close(self) -> None:
        """Close both clients, their senders and receivers, and stop the syphon. Twice is fine."""
        was_open = self._side.state == "open"
        if was_open:
            self._side.state, self._side.reason = "closed", "close() was called"
        self._release_all()
        if self._secondary._side.state == "open":  # noqa: SLF001
            self._secondary.close()
        if was_open:
            self._pair.hub.emit(events.ClientClosed)

    def _release_all(self) -> None:
        if not self._registered:
            return
        self._registered = False
        self._pair.close()
        syphon, self._syphon = self._syphon, None
        if syphon is not None:
            try:
                blocking(syphon.stop)
            except Exception:
                logger.exception("the syphon did not stop; the clients are closed all the same")
        closing = [spawn(sender.close, name="pairbus close") for sender in list(self._senders)]
        for task in closing:
            task.join(10.0)
        close_sdk(self._primary)
        registry.leave(self._primary, self._secondary_sdk)
        if self._status_file is not None:
            blocking(self._status_file.close)
        if self._pair.ledger is not None:
            blocking(self._pair.ledger.close)

    # -- operators

    @property
    def secondary(self) -> SecondaryClient:
        """The secondary client of the pair."""
        return self._secondary

    def status(self) -> PairStatus:
        """Where each entity's messages go and why, and which backlog queues are in rotation."""
        return self._pair.status(self._side.state, self._side.reason)

    def force_failover(self, entity: str) -> None:
        """Send everything for `entity` to the backlog, until `release`."""
        self._check_usable()
        self._pair.entity(entity).observe(core.BacklogForced())

    def force_primary(self, entity: str) -> None:
        """Send everything for `entity` to the primary, whatever happens, until `release`."""
        self._check_usable()
        self._pair.entity(entity).observe(core.PrimaryForced())

    def release(self, entity: str) -> None:
        """Give the decision about `entity` back to pairbus: a ping tells where it stands."""
        self._check_usable()
        self._pair.entity(entity).observe(core.Released())

    # -- states

    def _check_usable(self, *, secondary: bool = False) -> None:
        if self._side.state != "open":
            self._side.check()
        if secondary:
            self._secondary._side.check()  # noqa: SLF001

    def _go_on(self) -> None:
        """Go on in a child process: with links, pings, ledger and status of its own."""
        if self._side.state != "open":
            self._stay_behind()
            return
        self._syphon = None  # the parent's
        self._is_watching = False
        self._pair.after_fork(new_client_id())
        for sender in list(self._senders):
            sender._after_fork()  # noqa: SLF001
        if self._status_file is not None:
            self.keep_status()

    def _stay_behind(self) -> None:
        """An event loop, and what runs in it, does not come along into a child process.

        What there is to close is the parent's: closing the client here closes nothing.
        """
        self._syphon = self._status_file = None
        self._registered = False
        self._pair.stay_behind(new_client_id())
        for sender in list(self._senders):
            sender._after_fork()  # noqa: SLF001
        for side in (self._side, self._secondary._side):  # noqa: SLF001
            if side.state == "open":
                side.state = "faulted"
                side.reason = "the process was forked: make the clients and the pair in the child"

    def keep_status(self) -> None:
        """Keep `status/<client id>.json` in the ledger's directory from now on."""
        pair = self._pair
        assert pair.ledger is not None
        self._status_file = StatusFile(
            str(self._options.ledger), pair.client_id, self.status, pair.ledger.write_status
        )
        pair.hub.on_transition = self._status_file.notify

    def _forget(self, sender: PairedSender) -> None:
        self._senders.discard(sender)

    def _closed_behind(self, *, primary: bool) -> NoReturn:
        """The SDK's client was closed without our knowing, and a sender has just noticed."""
        side = self._side if primary else self._secondary._side  # noqa: SLF001
        if side.state == "open":
            side.state = "closed"
            side.reason = "the SDK client below it was closed"
            if primary:
                self._pair.close()
            self._one_is_down(side.name)
        side.check()
        raise AssertionError("a side that is not open raises")

    def _one_is_down(self, name: str) -> None:
        """One of the two is closed or faulted. Where the syphon runs, the other has 5 seconds."""
        if self._syphon is not None and not self._is_watching:
            self._is_watching = True
            spawn(self._fault_other, name, name="pairbus fault watch")

    def _fault_other(self, name: str) -> None:
        sleep(FAULT_AFTER)
        reason = f"the {name} client is down, and this one was not closed within {FAULT_AFTER:g} s"
        if name == "secondary":
            if self._side.state == "open":
                self.fault(reason)
        elif self._secondary._side.state == "open":  # noqa: SLF001
            self._secondary._fault(reason)  # noqa: SLF001
            close_sdk(self._secondary_sdk)
            self._pair.hub.emit(events.ClientFaulted, side="secondary", reason=reason)

    def fault(self, reason: str) -> None:
        """Fault the paired client: every use of it, its senders and receivers raises `reason`."""
        if self._side.state != "open":
            return
        self._side.state, self._side.reason = "faulted", reason
        for receiver in list(self._given):
            _sdk.poison(receiver, ClientFaultedError(reason))
        self._pair.hub.emit(events.ClientFaulted, side="paired", reason=reason)
        self._pair.close()
        close_sdk(self._primary)
        self._one_is_down("paired")
