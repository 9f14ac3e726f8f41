"""Make a pair of two clients: check them, provide the backlog queues, start the syphon."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from pairbus.exceptions import PairingError
from pairbus.extras import is_installed
from pairbus.options import SendAvailabilityPairedNamespaceOptions
from pairbus.pairing import registry
from pairbus.pairing._async.client import PairedClient
from pairbus.pairing._async.guarded import SecondaryClient
from pairbus.pairing._async.lifecycle import Lifecycle
from pairbus.pairing._async.pair import Pair
from pairbus.pairing._async.protection import Protection
from pairbus.pairing.runtime import ablocking
from pairbus.pairing.sdk.contract import probe_new_sender
from pairbus.pairing.sdk.senders import check_transport, share_tls_context
from pairbus.pairing.syphon_hook import RunningSyphon, check_syphon, start_registered_syphon
from pairbus.status import new_client_id

WAIT = 1.0  # seconds that pairing waits for the secondary
REQUIRED_WAIT = 30.0  # the same with `require_secondary`


async def pair_namespace(
    primary: ServiceBusClient, options: SendAvailabilityPairedNamespaceOptions
) -> PairedClient:
    """Pair `primary` with a secondary namespace; returns a client whose senders are available.

    Works with the primary down, and with the secondary down: it waits a second for the secondary
    and then returns a client that is unprotected until the secondary can be used. Creates the
    backlog queues that are missing, if `secondary_admin` is given.

    Raises:
        PairingError: the clients cannot be a pair; or, with `require_secondary`, no backlog queue
            can be used. Nothing is half-done, and the call can be repeated.
        ValueError, TypeError: wrong arguments.
    """
    if not isinstance(options, SendAvailabilityPairedNamespaceOptions):
        raise TypeError(
            "options must be SendAvailabilityPairedNamespaceOptions(secondary=...), "
            f"got {type(options).__module__}.{type(options).__name__}"
        )
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
        if not isinstance(value, wanted) and not (name == "secondary_admin" and value is None):
            raise TypeError(
                f"{name} must be an {wanted.__module__.split('._')[0]}.{wanted.__name__}, "
                f"got {type(value).__module__}.{type(value).__name__}"
            )
    check_transport(primary)
    check_transport(secondary)
    assert isinstance(secondary, ServiceBusClient)
    assert admin is None or isinstance(admin, ServiceBusAdministrationClient)
    namespace = registry.namespace_of(primary, options.primary_namespace)
    if options.enable_syphon:
        check_syphon()
    ledger = _ledger(options)
    _probe_sdk(primary)
    registry.enter(primary, secondary)
    try:
        if admin is not None:
            registry.check_same_namespace(primary, secondary, admin)
        return await _pair(primary, secondary, admin, namespace, options, ledger)
    except BaseException:
        registry.leave(primary, secondary)
        if ledger is not None:
            await ablocking(ledger.close)
        raise


async def _pair(
    primary: ServiceBusClient,
    secondary: ServiceBusClient,
    admin: ServiceBusAdministrationClient | None,
    namespace: str,
    options: SendAvailabilityPairedNamespaceOptions,
    ledger: Any,
) -> PairedClient:
    for client in (primary, secondary):
        await ablocking(share_tls_context, client)
    client_id = ledger.client_id if ledger is not None else new_client_id()
    pair = Pair(primary, secondary, namespace, options, client_id, ledger)
    directory = None if options.ledger is None else str(options.ledger)
    lifecycle = Lifecycle(primary, pair, secondary, directory)
    protection = lifecycle.protection = Protection(pair, admin)
    try:
        if options.require_secondary:
            await protection.require(REQUIRED_WAIT)
        else:
            await protection.start(WAIT)
        if options.enable_syphon:
            start = partial(_start_syphon, options, namespace)
            if pair.unprotected is None:
                await lifecycle.start_syphon(start)
            else:
                # The syphon needs the backlog queues, which do not exist yet or cannot be reached.
                lifecycle.start_syphon_when_protected(start)
    except BaseException:
        protection.stop()
        await lifecycle.refuse_syphon()
        raise
    lifecycle.keep_status()
    lifecycle.close_if_dropped()
    return PairedClient(lifecycle)


def _probe_sdk(primary: ServiceBusClient) -> None:
    sender: ServiceBusSender | None = None
    with suppress(ValueError):  # it has an EntityPath, and senders to that entity only
        sender = primary.get_queue_sender("probe")
    probe_new_sender(primary, sender, ServiceBusMessageBatch(), ServiceBusMessage(""))


def _ledger(options: SendAvailabilityPairedNamespaceOptions) -> Any:
    if options.ledger is None:
        return None
    if not is_installed("pyarrow"):
        # The writer would only report it when it writes for the first time.
        raise PairingError("The option ledger needs: pip install 'pairbus[ledger]'")
    from pairbus.ledger.writer import LedgerWriter

    return LedgerWriter(str(options.ledger), client_id=new_client_id())


def _start_syphon(options: SendAvailabilityPairedNamespaceOptions, namespace: str) -> RunningSyphon:
    syphon = options.syphon
    assert syphon is not None  # the options have checked
    return start_registered_syphon(
        replace(
            syphon,
            primary_namespace=syphon.primary_namespace or namespace,
            backlog_queue_count=options.backlog_queue_count,
            ledger=syphon.ledger or (None if options.ledger is None else str(options.ledger)),
            ttl_policy="deduct" if options.ttl_policy == "deduct" else syphon.ttl_policy,
        )
    )
