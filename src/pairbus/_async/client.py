"""The paired client: the surface of `ServiceBusClient`, with senders that are available."""

from __future__ import annotations

import importlib
import logging
import os
import re
import socket
import uuid
import weakref
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, NoReturn

from azure.core.async_paging import AsyncItemPaged
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from pairbus import _sdk, events, registry
from pairbus._async.backlog import provide_queues
from pairbus._async.pair import Pair, Timing
from pairbus._async.sender import PairedSender
from pairbus._compat import aabandonable, ablocking, asleep, aspawn
from pairbus.core import health as core
from pairbus.core.rotation import backlog_paths
from pairbus.exceptions import ClientClosedError, ClientFaultedError, PairingError
from pairbus.hub import Hub
from pairbus.options import SendAvailabilityPairedNamespaceOptions
from pairbus.status import PairStatus, StatusFile

logger = logging.getLogger("pairbus.client")

# How long one of the two clients may stay open after the other, where the syphon runs.
FAULT_AFTER = 5.0


class Side:
    """Whether one of the two clients is open; the SDK's clients have no such state."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = "open"
        self.reason: str | None = None

    def check(self) -> None:
        """Raise why it cannot be used, if it cannot."""
        if self.state == "open":
            return
        if self.state == "faulted":
            raise ClientFaultedError(self.reason or "")
        raise ClientClosedError(f"The {self.name} client is closed: {self.reason}")


class SecondaryClient(ServiceBusClient):
    """The secondary client of a pair: a thin wrapper that knows whether it is open."""

    def __init__(self, client: ServiceBusClient, side: Side, closed: Callable[[], None]) -> None:
        # The SDK's own __init__ is not called: everything is the wrapped client's.
        self._wrapped = client
        self._side = side
        self._closed = closed
        self._given: weakref.WeakSet[Any] = weakref.WeakSet()

    def __getattr__(self, name: str) -> Any:
        if name in ("_wrapped", "_side", "_closed", "_given"):
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def __repr__(self) -> str:
        return f"<SecondaryClient {self._wrapped.fully_qualified_namespace} {self._side.state}>"

    async def __aenter__(self) -> SecondaryClient:
        self._side.check()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.close()

    def _give(self, handler: Any) -> Any:
        self._given.add(handler)
        return handler

    def get_queue_sender(self, queue_name: str, **kwargs: Any) -> ServiceBusSender:
        """A sender of the secondary namespace, as the SDK gives it."""
        self._side.check()
        sender: ServiceBusSender = self._give(self._wrapped.get_queue_sender(queue_name, **kwargs))
        return sender

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> ServiceBusSender:
        """A sender of the secondary namespace, as the SDK gives it."""
        self._side.check()
        sender: ServiceBusSender = self._give(self._wrapped.get_topic_sender(topic_name, **kwargs))
        return sender

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ServiceBusReceiver:
        """A receiver of the secondary namespace, as the SDK gives it."""
        self._side.check()
        receiver: ServiceBusReceiver = self._give(
            self._wrapped.get_queue_receiver(queue_name, **kwargs)
        )
        return receiver

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **kwargs: Any
    ) -> ServiceBusReceiver:
        """A receiver of the secondary namespace, as the SDK gives it."""
        self._side.check()
        receiver: ServiceBusReceiver = self._give(
            self._wrapped.get_subscription_receiver(topic_name, subscription_name, **kwargs)
        )
        return receiver

    async def close(self) -> None:
        """Close the secondary client alone; the pair has no backlog then. Twice is fine."""
        if self._side.state == "open":
            self._side.state, self._side.reason = "closed", "close() was called"
            await _close_sdk(self._wrapped)
            self._closed()

    def _fault(self, reason: str) -> None:
        self._side.state, self._side.reason = "faulted", reason
        for handler in list(self._given):
            _sdk.poison(handler, ClientFaultedError(reason))


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

    async def __aenter__(self) -> PairedClient:
        self._check_usable()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.close()

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
    ) -> AsyncItemPaged[str]:
        """The session ids of a queue of the primary, as the SDK gives them."""
        self._check_usable()
        found: AsyncItemPaged[str] = self._primary.list_queue_sessions(
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
    ) -> AsyncItemPaged[str]:
        """The session ids of a subscription of the primary, as the SDK gives them."""
        self._check_usable()
        found: AsyncItemPaged[str] = self._primary.list_subscription_sessions(
            topic_name, subscription_name, state_updated_after=state_updated_after, timeout=timeout
        )
        return found

    async def close(self) -> None:
        """Close both clients, their senders and receivers, and stop the syphon. Twice is fine."""
        was_open = self._side.state == "open"
        if was_open:
            self._side.state, self._side.reason = "closed", "close() was called"
        await self._release_all()
        if self._secondary._side.state == "open":  # noqa: SLF001
            await self._secondary.close()
        if was_open:
            self._pair.hub.emit(events.ClientClosed)

    async def _release_all(self) -> None:
        if not self._registered:
            return
        self._registered = False
        self._pair.close()
        syphon, self._syphon = self._syphon, None
        if syphon is not None:
            try:
                await ablocking(syphon.stop)
            except Exception:
                logger.exception("the syphon did not stop; the clients are closed all the same")
        closing = [aspawn(sender.close, name="pairbus close") for sender in list(self._senders)]
        for task in closing:
            await task.join(10.0)
        await _close_sdk(self._primary)
        registry.leave(self._primary, self._secondary_sdk)
        if self._status_file is not None:
            await ablocking(self._status_file.close)
        if self._pair.ledger is not None:
            await ablocking(self._pair.ledger.close)

    # -- operators

    @property
    def secondary(self) -> SecondaryClient:
        """The secondary client of the pair."""
        return self._secondary

    def status(self) -> PairStatus:
        """Where each entity's messages go and why, and which backlog queues are in rotation."""
        return self._pair.status(self._side.state, self._side.reason)

    async def force_failover(self, entity: str) -> None:
        """Send everything for `entity` to the backlog, until `release`."""
        self._check_usable()
        await self._pair.entity(entity).observe(core.BacklogForced())

    async def force_primary(self, entity: str) -> None:
        """Send everything for `entity` to the primary, whatever happens, until `release`."""
        self._check_usable()
        await self._pair.entity(entity).observe(core.PrimaryForced())

    async def release(self, entity: str) -> None:
        """Give the decision about `entity` back to pairbus: a ping tells where it stands."""
        self._check_usable()
        await self._pair.entity(entity).observe(core.Released())

    # -- states

    def _check_usable(self, *, secondary: bool = False) -> None:
        if self._side.state != "open":
            self._side.check()
        if secondary:
            self._secondary._side.check()  # noqa: SLF001

    def _forget(self, sender: PairedSender) -> None:
        self._senders.discard(sender)

    def _closed_behind(self, *, primary: bool) -> NoReturn:
        """The SDK's client was closed without our knowing, and a sender has just noticed."""
        side = self._side if primary else self._secondary._side  # noqa: SLF001
        if side.state == "open":
            side.state = "closed"
            side.reason = "the SDK client below it was closed"
            self._one_is_down(side.name)
        side.check()
        raise AssertionError("a side that is not open raises")

    def _one_is_down(self, name: str) -> None:
        """One of the two is closed or faulted. Where the syphon runs, the other has 5 seconds."""
        if self._syphon is not None and not self._is_watching:
            self._is_watching = True
            aspawn(self._fault_other, name, name="pairbus fault watch")

    async def _fault_other(self, name: str) -> None:
        await asleep(FAULT_AFTER)
        reason = f"the {name} client is down, and this one was not closed within {FAULT_AFTER:g} s"
        if name == "secondary":
            if self._side.state == "open":
                await self.fault(reason)
        elif self._secondary._side.state == "open":  # noqa: SLF001
            self._secondary._fault(reason)  # noqa: SLF001
            await _close_sdk(self._secondary_sdk)
            self._pair.hub.emit(events.ClientFaulted, side="secondary", reason=reason)

    async def fault(self, reason: str) -> None:
        """Fault the paired client: every use of it, its senders and receivers raises `reason`."""
        if self._side.state != "open":
            return
        self._side.state, self._side.reason = "faulted", reason
        for receiver in list(self._given):
            _sdk.poison(receiver, ClientFaultedError(reason))
        self._pair.hub.emit(events.ClientFaulted, side="paired", reason=reason)
        self._pair.close()
        await _close_sdk(self._primary)
        self._one_is_down("paired")


async def _close_sdk(client: ServiceBusClient) -> None:
    """Close an SDK client; one whose peer is deaf is left behind."""
    for _ in range(5):
        try:
            await aabandonable(10.0, client.close, what="closing a client")
        except RuntimeError as error:
            # The SDK stops half-way when a sender is made or closed meanwhile: go on with the rest.
            logger.debug("closing a client: %r", error)
        except Exception as error:  # noqa: BLE001  # closed for us, whatever it says
            logger.warning("closing a client: %r", error)
            return
        else:
            return


async def pair_namespace(
    primary: ServiceBusClient, options: SendAvailabilityPairedNamespaceOptions
) -> PairedClient:
    """Pair `primary` with a secondary namespace; returns a client whose senders are available.

    Works with the primary down. Creates the backlog queues that are missing.

    Raises:
        PairingError: the clients cannot be a pair, or no backlog queue can be had. Nothing is
            half-done, and the call can be repeated.
        ValueError, TypeError: wrong arguments.
    """
    secondary, admin = options.secondary, options.secondary_admin
    if isinstance(primary, PairedClient):
        raise PairingError("This primary client is paired already.")
    if isinstance(secondary, PairedClient):
        raise PairingError("The secondary client is itself paired.")
    if isinstance(primary, SecondaryClient) or isinstance(secondary, SecondaryClient):
        raise PairingError("The secondary client is the secondary of another primary client.")
    for name, value, wanted in (
        ("primary", primary, ServiceBusClient),
        ("secondary", secondary, ServiceBusClient),
        ("secondary_admin", admin, ServiceBusAdministrationClient),
    ):
        if not isinstance(value, wanted):
            raise TypeError(
                f"{name} must be a {wanted.__module__.split('._')[0]}.{wanted.__name__}, "
                f"got {type(value).__module__}.{type(value).__name__}"
            )
    _sdk.check_transport(primary)
    _sdk.check_transport(secondary)
    assert isinstance(secondary, ServiceBusClient)
    assert isinstance(admin, ServiceBusAdministrationClient)
    namespace = registry.namespace_of(primary, options.primary_namespace)
    ledger = _ledger(options)
    registry.enter(primary, secondary)
    try:
        return await _pair(primary, secondary, admin, namespace, options, ledger)
    except BaseException:
        registry.leave(primary, secondary)
        if ledger is not None:
            await ablocking(ledger.close)
        raise


async def _pair(
    primary: ServiceBusClient,
    secondary: ServiceBusClient,
    admin: ServiceBusAdministrationClient,
    namespace: str,
    options: SendAvailabilityPairedNamespaceOptions,
    ledger: Any,
) -> PairedClient:
    timing = Timing(
        failover_interval=float(options.failover_interval),  # type: ignore[arg-type]
        ping_primary_interval=float(options.ping_primary_interval),  # type: ignore[arg-type]
        send_timeout=float(options.send_timeout),  # type: ignore[arg-type]
        backlog_cooldown=float(options.backlog_cooldown),  # type: ignore[arg-type]
    )
    paths = backlog_paths(namespace, options.backlog_queue_count)
    queues, limit, calls = await provide_queues(admin, paths, timeout=timing.send_timeout)
    hosts = (primary.fully_qualified_namespace, secondary.fully_qualified_namespace)
    hub = Hub(f"{hosts[0]}>{hosts[1]}", options.observers)
    client_id = ledger.client_id if ledger is not None else _client_id()
    if ledger is not None:
        ledger.count(
            hosts[1], namespace, "management", "provision", messages=0, size=0, calls=calls
        )
    pair = Pair(
        client_id=client_id,
        primary=primary,
        secondary=secondary,
        primary_namespace=namespace,
        queues=queues,
        timing=timing,
        hub=hub,
        rule=options.classify,
        oversize=options.oversize,
        message_limit=limit,
        ledger=ledger,
    )
    client = PairedClient(primary, options, pair, secondary)
    if options.enable_syphon:
        client._syphon = await ablocking(_start_syphon, options, namespace)  # noqa: SLF001
    if options.ledger is not None:
        status_file = StatusFile(str(options.ledger), client_id, client.status, ledger.write_status)
        client._status_file = status_file  # noqa: SLF001
        hub.on_transition = status_file.notify
    return client


def _client_id() -> str:
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _ledger(options: SendAvailabilityPairedNamespaceOptions) -> Any:
    if options.ledger is None:
        return None
    try:
        from pairbus.ledger.writer import LedgerWriter
    except ImportError as error:
        raise PairingError("A ledger needs: pip install 'pairbus[ledger]'") from error
    return LedgerWriter(str(options.ledger), client_id=_client_id())


def _start_syphon(options: SendAvailabilityPairedNamespaceOptions, namespace: str) -> Any:
    syphon = options.syphon
    assert syphon is not None  # the options have checked
    try:
        module = importlib.import_module("pairbus.spark.syphon")
        importlib.import_module("pyspark")
    except ImportError as error:
        raise PairingError("enable_syphon needs: pip install 'pairbus[spark]'") from error
    return module.start_syphon(
        replace(
            syphon,
            primary_namespace=syphon.primary_namespace or namespace,
            backlog_queue_count=options.backlog_queue_count,
            ledger=syphon.ledger or (None if options.ledger is None else str(options.ledger)),
            ttl_policy="deduct" if options.ttl_policy == "deduct" else syphon.ttl_policy,
        )
    )
