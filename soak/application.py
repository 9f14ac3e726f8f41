"""An application of the soak: a paired client that sends messages until SIGTERM.

After SIGTERM it continues until each entity has accepted a message in the primary, records `healed`
in its history, and ends. It may be killed at any time. The environment variables `PAIRBUS_PRIMARY`
and `PAIRBUS_SECONDARY` have the connection strings, because others can see a command line.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.exceptions import ServiceBusError

import pairbus
import pairbus.aio
from pairbus.events import Event
from pairbus.names import parse_connection_string
from soak.records import Journal

TRANSPORTS = ("plain", "tls", "websocket")
VARIABLES = {"primary": "PAIRBUS_PRIMARY", "secondary": "PAIRBUS_SECONDARY"}
NAMES = {"primary": "contoso", "secondary": "contoso-dr"}
ENTITIES = ("orders", "invoices")
BACKLOG_QUEUES = 2
SEND_TIMEOUT = 10.0
QUIET = {"MessageBacklogged", "PingSent"}


def client_arguments(
    text: str, transport: str, certificate: str, host: str
) -> tuple[str, dict[str, Any]]:
    """Return connection string and options of an SDK client, over one of the transports."""
    if transport == "plain":
        return text, {}
    parts = parse_connection_string(text)
    name, key = parts.key_name, parts.key
    chosen = TransportType.Amqp if transport == "tls" else TransportType.AmqpOverWebsocket
    options: dict[str, Any] = {
        "custom_endpoint_address": f"sb://localhost:{parts.port}",
        "transport_type": chosen,
    }
    if transport == "tls":
        options["ssl_context"] = ssl.create_default_context(cafile=certificate)
    else:
        options["connection_verify"] = certificate
    return f"Endpoint=sb://{host}/;SharedAccessKeyName={name};SharedAccessKey={key}", options


class Application:
    """What both kinds share: options, history, ids.

    Args:
        given: the arguments of the process.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.journal = Journal(given.history)
        self.is_ending = threading.Event()
        self._numbers = itertools.count()
        signal.signal(signal.SIGTERM, lambda *_: self.is_ending.set())

    def arguments(self, side: str) -> tuple[str, dict[str, Any]]:
        """Return connection string and options of a client of one side."""
        given = self.given
        text, certificate = os.environ[VARIABLES[side]], getattr(given, f"{side}_certificate")
        host = f"{NAMES[side]}.servicebus.windows.net"
        return client_arguments(text, given.transport, certificate, host)

    def options(self, secondary: Any) -> pairbus.SendAvailabilityPairedNamespaceOptions:
        """Return the options of the pair."""
        return pairbus.SendAvailabilityPairedNamespaceOptions(
            secondary=secondary,
            primary_namespace="contoso",
            backlog_queue_count=BACKLOG_QUEUES,
            failover_interval=self.given.failover_interval,
            ping_primary_interval=1.0,
            send_timeout=SEND_TIMEOUT,
            backlog_cooldown=5.0,
            ledger=self.given.ledger,
            observers=[self._observe],
        )

    def _observe(self, event: Event) -> None:
        if event.name not in QUIET:
            self.journal.add(event=event.name, entity=event.entity, at=time.time())

    def next_id(self) -> str:
        """Return the id of the next message; no other process ever uses it."""
        return f"{self.given.name}.{self.given.life}.{next(self._numbers)}"

    def begin(self, entity: str, name: str) -> None:
        """A send begins."""
        self.journal.add(id=name, entity=entity, began=time.time())

    def end(self, name: str, error: ServiceBusError | None) -> None:
        """A send has ended."""
        failure = type(error).__name__ if error is not None else ""
        self.journal.add(id=name, ended=time.time(), is_ok=error is None, error=failure)

    def has_healed(self, status: Callable[[], Any], before: dict[str, int]) -> bool:
        """Whether every entity took a message directly since `before` was counted."""
        if not self.is_ending.is_set():
            return False
        counts = direct(status())
        if not before:
            before.update(dict.fromkeys(ENTITIES, 0) | counts)
            return False
        return all(counts.get(entity, 0) > before[entity] for entity in ENTITIES)


def direct(status: Any) -> dict[str, int]:
    """Return how many messages went to the primary, by entity."""
    return {entity.entity: entity.counts.sent_primary for entity in status.entities}


def run_sync(app: Application) -> None:
    """Send from a thread."""
    primary, more = app.arguments("primary")
    secondary, others = app.arguments("secondary")
    options = app.options(ServiceBusClient.from_connection_string(secondary, **others))
    before: dict[str, int] = {}
    with pairbus.pair_namespace(
        ServiceBusClient.from_connection_string(primary, **more), options
    ) as client:
        senders = {entity: client.get_queue_sender(entity) for entity in ENTITIES}
        while not app.has_healed(client.status, before):
            for entity, sender in senders.items():
                name = app.next_id()
                app.begin(entity, name)
                try:
                    sender.send_messages(ServiceBusMessage(name, message_id=name))
                except ServiceBusError as error:
                    app.end(name, error)
                else:
                    app.end(name, None)
                time.sleep(app.given.pause)


async def run_aio(app: Application) -> None:
    """Send from an event loop."""
    primary, more = app.arguments("primary")
    secondary, others = app.arguments("secondary")
    options = app.options(AioClient.from_connection_string(secondary, **others))
    before: dict[str, int] = {}
    async with await pairbus.aio.pair_namespace(
        AioClient.from_connection_string(primary, **more), options
    ) as client:
        senders = {entity: client.get_queue_sender(entity) for entity in ENTITIES}
        while not app.has_healed(client.status, before):
            for entity, sender in senders.items():
                name = app.next_id()
                app.begin(entity, name)
                try:
                    await sender.send_messages(ServiceBusMessage(name, message_id=name))
                except ServiceBusError as error:
                    app.end(name, error)
                else:
                    app.end(name, None)
                await asyncio.sleep(app.given.pause)


def main() -> None:
    """Run one application."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("kind", choices=("sync", "aio"))
    parser.add_argument("transport", choices=TRANSPORTS)
    parser.add_argument("--life", type=int, required=True)
    for name in ("primary-certificate", "secondary-certificate", "ledger"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--failover-interval", type=float, default=1.0)
    parser.add_argument("--pause", type=float, default=0.1)
    app = Application(parser.parse_args())
    if app.given.kind == "sync":
        run_sync(app)
    else:
        asyncio.run(run_aio(app))
    app.journal.add(healed=True, at=time.time())


if __name__ == "__main__":
    main()
