"""Run a namespace inside this process: `with broker.run() as ns:`.

The broker has an event loop on a thread of its own, so that it serves sync and async code alike.
A method of the handle (a fault, a stop, a new queue) has taken effect when it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pairbus.broker.faults.faults import Faults
from pairbus.broker.settings import DEFAULT_KEY_NAME, BrokerSettings, Limits, Tier
from pairbus.extras import check_installed, needs

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient
    from azure.servicebus.aio import ServiceBusClient as AioClient
    from azure.servicebus.aio.management import (
        ServiceBusAdministrationClient as AioAdministrationClient,
    )
    from azure.servicebus.management import ServiceBusAdministrationClient

    from pairbus.broker.auth.credentials import AioBrokerCredential, BrokerCredential
    from pairbus.broker.namespace.namespace import Namespace
    from pairbus.broker.server.server import Broker

T = TypeVar("T")


def run(
    namespace: str = "contoso",
    *,
    port: int = 0,
    host: str = "127.0.0.1",
    memory: bool | None = None,
    data: str | Path | None = None,
    durability: Literal["normal", "full"] = "normal",
    entities: Mapping[str, Any] | str | Path | None = None,
    key: str | None = None,
    key_name: str = DEFAULT_KEY_NAME,
    control_port: int | None = None,
    clock: Callable[[], float] | None = None,
    limits: Limits | None = None,
    allowed_origins: Iterable[str] = (),
    tier: Literal["standard", "premium"] | None = None,
    credits_per_second: int | None = None,
    idle_link_timeout: float | None = None,
    idle_connection_timeout: float | None = None,
) -> RunningNamespace:
    """Return a Service Bus namespace that runs in this process while its `with` block does.

    Args:
        namespace: Its name.
        port: The port it listens on; 0 picks a free one.
        host: The address it binds. An address that is not loopback needs a `key`.
        memory: Keep nothing on disk; the default unless `data` is given.
        data: The directory in which messages are stored.
        durability: "normal" survives a crash of the process, "full" also a power loss.
        entities: Entities to create, in the form of the official emulator's `Config.json`: the
            path of such a file, or its content.
        key: The shared access key; on loopback addresses the well-known one by default.
        key_name: The name of the key's rule.
        control_port: A second port with the control and administration APIs, which faults do not
            affect; 0 picks a free one.
        clock: Returns the time in seconds since the epoch, such as a `pairbus.testing.FakeClock`.
        limits: Limits of connections, links, sizes and times.
        allowed_origins: Origins of web pages that may connect over WebSocket or use the
            administration API, such as `https://app.example`;
            `*` allows all. Clients that are not web pages need none.
        tier: "standard" (the default) or "premium": the tier whose limits and refusals apply. The
            environment variable PAIRBUS_BROKER_TIER sets another default.
        credits_per_second: Operations beyond this are refused with server-busy; 0: no throttling.
            By default 1,000 on Standard, and 0 on Premium.
        idle_link_timeout: Seconds until an idle link is detached, 600 by default; 0: never.
        idle_connection_timeout: Seconds until a connection without links is closed, 60 by default;
            0: never.

    Raises:
        ValueError: A value cannot work, or cannot be part of a connection string.
        BrokerStartError: On entering: the port is in use, the directory is locked, or an
            entity is invalid.
    """
    chosen: dict[str, Any] = {
        "credits_per_second": credits_per_second,
        "idle_link_timeout": idle_link_timeout,
        "idle_connection_timeout": idle_connection_timeout,
    }
    settings = BrokerSettings(
        namespace=namespace,
        port=port,
        host=host,
        data=None if data is None else Path(data),
        memory=data is None if memory is None else memory,
        durability=durability,
        entities=entities,
        key=key,
        key_name=key_name,
        control_port=control_port,
        clock=clock,
        allowed_origins=tuple(allowed_origins),
        limits=replace(limits or Limits(), **{n: v for n, v in chosen.items() if v is not None}),
        tier=None if tier is None else Tier.parse(tier),
    )
    return RunningNamespace(settings)


class RunningNamespace:
    """A namespace that runs in this process, with methods that make it fail.

    Attributes:
        faults: Injects faults; see `pairbus.broker.faults.faults`.
        on_fatal: Called, on the broker's thread, after it has stopped by itself because its store
            cannot be read any more.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.faults = Faults(self._call)
        self.on_fatal: Callable[[Exception], None] = lambda problem: None
        self._broker: Broker | None = None
        self._port = settings.port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        state = "running" if self.is_running else "stopped"
        return f"<RunningNamespace {self.name} {self.host}:{self.port} {state}>"

    def __enter__(self) -> RunningNamespace:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- addresses -------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The namespace's name."""
        return self.settings.namespace

    @property
    def host(self) -> str:
        """The address that clients on this machine use."""
        return self.settings.reachable_host

    @property
    def port(self) -> int:
        """The port it listens on; the same after a stop and a start."""
        return self._port

    @property
    def connection_string(self) -> str:
        """The connection string for both of the SDK's clients."""
        return self.settings.connection_string(self._port)

    @property
    def control_address(self) -> str | None:
        """The address of the second port, with host and port number; None if there is none."""
        return self._broker.control_address if self._broker is not None else None

    @property
    def certificate(self) -> Path:
        """The file with the certificate of the TLS port, for clients to trust."""
        return self._running().certificate

    @property
    def is_running(self) -> bool:
        """Whether it is started and not stopped."""
        return self._broker is not None and self._broker.is_running

    # -- clients ---------------------------------------------------------------------------------

    def client(self, **options: Any) -> ServiceBusClient:
        """Return the SDK's client."""
        from azure.servicebus import ServiceBusClient

        return ServiceBusClient.from_connection_string(self.connection_string, **options)

    def aio_client(self, **options: Any) -> AioClient:
        """Return the SDK's asynchronous client."""
        from azure.servicebus.aio import ServiceBusClient

        return ServiceBusClient.from_connection_string(self.connection_string, **options)

    def admin_client(self, **options: Any) -> ServiceBusAdministrationClient:
        """Return the SDK's administration client, over plain HTTP: no certificate to trust."""
        from pairbus.administration import admin_client

        return admin_client(self.connection_string, **options)

    def aio_admin_client(self, **options: Any) -> AioAdministrationClient:
        """Return the SDK's asynchronous administration client, over plain HTTP."""
        from pairbus.administration import aio_admin_client

        return aio_admin_client(self.connection_string, **options)

    def credential(self, *roles: str, lifetime: float = 3600.0) -> BrokerCredential:
        """Return a token credential for code that takes one from azure-identity.

        Args:
            roles: Of `pairbus.testing`: `OWNER` (the default), `SENDER`, `RECEIVER`.
            lifetime: Seconds that each of its tokens is valid.
        """
        from pairbus.broker.auth.credentials import BrokerCredential

        return BrokerCredential(self.connection_string, *roles, lifetime=lifetime)

    def aio_credential(self, *roles: str, lifetime: float = 3600.0) -> AioBrokerCredential:
        """Return a token credential for the asynchronous clients; see `credential`."""
        from pairbus.broker.auth.credentials import AioBrokerCredential

        return AioBrokerCredential(self.connection_string, *roles, lifetime=lifetime)

    def create_queue(self, name: str, **properties: Any) -> None:
        """Create a queue; `properties` are named as in the SDK's `create_queue`."""
        from pairbus.broker.entities.model import QueueDescription

        self.do(lambda ns: ns.admin.create(QueueDescription(name, **_read(properties))))

    def create_topic(self, name: str, **properties: Any) -> None:
        """Create a topic; `properties` are named as in the SDK's `create_topic`."""
        from pairbus.broker.entities.model import TopicDescription

        self.do(lambda ns: ns.admin.create(TopicDescription(name, **_read(properties))))

    def create_subscription(self, topic: str, name: str, **properties: Any) -> None:
        """Create a subscription, with a rule that matches all messages."""
        from pairbus.broker.entities.model import SubscriptionDescription

        self.do(
            lambda ns: ns.admin.create(SubscriptionDescription(topic, name, **_read(properties)))
        )

    # -- counters ---------------------------------------------------------------------------------

    @property
    def operations(self) -> dict[str, dict[str, dict[str, int]]]:
        """Operations as the service would bill them, by entity and kind, with their counts."""
        return self._call(lambda: self._running().operations())

    @property
    def connections(self) -> int:
        """How many AMQP connections are open."""
        return self._call(lambda: len(self._running().connections))

    def do(self, action: Callable[[Namespace], T]) -> T:
        """Run `action` with the namespace on the broker's thread; return when it is durable."""
        return self._await(self._running().do(action))

    # -- start and stop --------------------------------------------------------------------------

    def start(self) -> RunningNamespace:
        """Start serving, on the same port as before if it was stopped."""
        if self.is_running:
            return self
        if self._thread is None:
            self._start_thread()
        from pairbus.broker.config import load

        with needs("broker"):
            from pairbus.broker.server.server import Broker

            check_installed("cryptography")  # imported only when a client asks for TLS

        if self._broker is None:
            settings = self.settings
            if settings.entities is not None:
                declared = load(settings.entities, settings.namespace)
                settings = settings.with_declared(declared.tier, declared.limits)
            self._broker = Broker(settings, self.faults)
            self._broker.on_fatal = lambda problem: self.on_fatal(problem)
        self._port = self._await(self._broker.start(self._port))
        return self

    def stop(self) -> None:
        """Shut down cleanly; `start` serves again, with all entities and messages."""
        if self._broker is not None:
            self._await(self._broker.stop())

    def kill(self) -> None:
        """Stop like a killed process: connections are reset, nothing is answered or written.

        With a data directory, uncommitted changes are lost. A namespace in memory keeps everything:
        after `start` it continues where it was.
        """
        if self._broker is not None:
            self._await(self._broker.stop(abrupt=True))

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop permanently; a second call does nothing."""
        if self._thread is None or self._loop is None:
            return
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_thread)
            if self._broker is not None:
                self._await(self._broker.close())
                self._broker = None

    def _running(self) -> Broker:
        if self._broker is None or not self._broker.is_running:
            raise RuntimeError(f"the namespace {self.name} is not running")
        return self._broker

    def _start_thread(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"pairbus-broker-{self.name}", daemon=True
        )
        self._thread.start()

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise RuntimeError(f"the namespace {self.name} is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _call(self, action: Callable[[], T]) -> T:
        if self._loop is None or threading.current_thread() is self._thread:
            return action()

        async def on_loop() -> T:
            return action()

        return self._await(on_loop())


def _read(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Read durations in ISO 8601 form, such as `PT1M`, which the SDK takes too."""
    from pairbus.broker.entities.model_values import parse_duration

    durations = {
        "lock_duration",
        "default_message_time_to_live",
        "duplicate_detection_history_time_window",
        "auto_delete_on_idle",
    }
    return {
        name: parse_duration(value) if name in durations and isinstance(value, str) else value
        for name, value in properties.items()
    }
