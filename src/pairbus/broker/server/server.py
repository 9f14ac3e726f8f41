"""The broker: a namespace and its listener, on one event loop.

`Broker` owns the listener, the connections, the namespace and its store; `run.py` puts it on a
thread, the command line in a process of its own.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from pairbus.broker.auth.sas import ALL_RIGHTS, KeyRing
from pairbus.broker.config import load
from pairbus.broker.entities.credits import CreditBalance
from pairbus.broker.entities.errors import BrokerError, NotImplementedByBrokerError, StoreError
from pairbus.broker.entities.model import AuthorizationRule
from pairbus.broker.faults.faults import Faults
from pairbus.broker.namespace.declare import declare
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.server.connection import READ_SIZE, AmqpConnection
from pairbus.broker.server.http import HttpProtocol
from pairbus.broker.server.http_routes import HttpRoutes
from pairbus.broker.server.listener import Listener
from pairbus.broker.server.throttle import Throttle
from pairbus.broker.server.tls import Certificate
from pairbus.broker.settings import BrokerSettings, BrokerStartError
from pairbus.broker.store.store import Store
from pairbus.names import join_host

_log = logging.getLogger("pairbus.broker")
T = TypeVar("T")


class Broker:
    """One namespace, served on one port. All methods are called on its event loop."""

    def __init__(self, settings: BrokerSettings, faults: Faults) -> None:
        self.settings = settings
        self.faults = faults
        self.is_running = False
        self.connections: set[AmqpConnection] = set()
        self.read_buffer = memoryview(bytearray(READ_SIZE))
        self._clock: Callable[[], float] = settings.clock or time.time
        self.key_ring = KeyRing(
            namespace_rules=(
                AuthorizationRule(settings.key_name, ALL_RIGHTS, settings.shared_access_key),
            ),
            entity_rules=self._entity_rules,
            entity_paths=lambda: [e.path for e in self.namespace.catalog.by_key.values()],
        )
        self._namespace: Namespace | None = None
        self._store: Store | None = None
        self._control_listener: Listener | None = None
        self._fault_timer: asyncio.TimerHandle | None = None
        self._certificate = Certificate(settings.data, settings.host)
        limits = settings.limits
        self._http = HttpRoutes(self)
        self.listener = self._make_listener(
            amqp=lambda lost: AmqpConnection(self, lost),
            http=lambda lost: HttpProtocol(
                self._http.handle,
                upgrade=self._http.upgrade,
                idle_timeout=limits.open_timeout,
                closed=lost,
            ),
            faults=faults,
            max_connections=limits.connections,
            sniff_timeout=limits.sniff_timeout,
        )
        self._logged_features: set[str] = set()
        balance = CreditBalance(settings.credits_per_second, is_debt_owed=limits.is_debt_owed)
        self.throttle = Throttle(settings.namespace, balance, lambda: self.namespace.now())
        self.idle_links = 0  # links that were detached because they were idle
        self.idle_connections = 0  # connections that were closed because they had no links
        self.started_at = 0.0
        self.on_fatal: Callable[[Exception], None] = lambda problem: None
        self._end: asyncio.Task[None] | None = None
        self._stopping = asyncio.Lock()  # a second stop waits for the first

    # -- used by links and the handle ------------------------------------------------------------

    @property
    def namespace(self) -> Namespace:
        """The namespace; only while the broker runs."""
        assert self._namespace is not None
        return self._namespace

    @property
    def certificate(self) -> Path:
        """The certificate of the TLS port."""
        return self._certificate.path

    @property
    def control_address(self) -> str | None:
        """The "host:port" of the second port, if there is one."""
        if self._control_listener is None:
            return None
        return join_host(self.settings.reachable_host, self._control_listener.address[1])

    def now(self) -> float:
        """Return the real time, for the expiry of tokens, even if `settings.clock` is set."""
        return time.time()

    def unsupported(self, feature: str, description: str) -> NotImplementedByBrokerError:
        """Return the error for a feature that is not supported; log the first request for it."""
        if feature not in self._logged_features and len(self._logged_features) < 100:
            self._logged_features.add(feature)
            _log.warning("a client requested %s, which is not supported", feature)
        return NotImplementedByBrokerError(description)

    async def do(self, action: Callable[[Namespace], T]) -> T:
        """Run `action` with the namespace and wait until its changes are durable."""
        result = action(self.namespace)
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if durable.done():
                return
            if error is None:
                durable.set_result(None)
            else:
                durable.set_exception(error)

        self.namespace.committer.after_commit(done)
        await durable
        return result

    def operations(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return the operations that the service would bill, per entity and kind."""
        shown: dict[str, dict[str, dict[str, int]]] = {}
        for (entity, kind), counts in self.namespace.operations.snapshot().items():
            shown.setdefault(entity, {})[kind] = counts._asdict()
        return shown

    # -- start and stop --------------------------------------------------------------------------

    async def start(self, port: int) -> int:
        """Start serving on `port` (0 picks a free one) and return the port.

        Raises:
            BrokerStartError: The message is one line with the reason.
        """
        settings = self.settings
        declared = (
            load(settings.entities, settings.namespace) if settings.entities is not None else None
        )
        self._bind(self.listener, port)
        try:
            self._open_namespace()
            if declared is not None:
                await self.do(lambda ns: declare(ns.admin, declared))
            self._open_control_port()
        except BaseException:
            await self.listener.close()
            self.listener.release()
            self._close_namespace(abrupt=False)
            raise
        self.started_at = time.time()
        self.is_running = True
        self.faults.on_change = self._faults_changed
        self._faults_changed()
        return self.listener.address[1]

    async def stop(self, *, abrupt: bool = False) -> None:
        """Stop serving; with `abrupt`, as if the process had crashed."""
        async with self._stopping:
            if self.is_running:
                await self._stop(abrupt=abrupt)

    async def _stop(self, *, abrupt: bool) -> None:
        self.is_running = False
        if self._fault_timer is not None:
            self._fault_timer.cancel()
        self.listener.shut()
        if abrupt:
            self.listener.reset_all()
        else:
            for connection in list(self.connections):
                connection.close("amqp:connection:forced", "The broker is shutting down.")
        await self.listener.close()
        if self._control_listener is not None:
            await self._control_listener.close()
            self._control_listener.release()
            self._control_listener = None
        self._close_namespace(abrupt=abrupt)

    async def close(self) -> None:
        """Stop permanently."""
        await self.stop()
        self.listener.release()
        self.faults.on_change = lambda: None
        self._namespace = None
        self._certificate.close()

    def _make_listener(self, **options: Any) -> Listener:
        """A listener with TLS; the simulation overrides this."""
        return Listener(tls=self._certificate.context, **options)

    def _make_store(self, directory: Path) -> Store:
        """The store in a directory; the simulation overrides this."""
        return Store(directory, self.settings.durability)

    def _bind(self, listener: Listener, port: int) -> None:
        try:
            listener.bind(self.settings.host, port)
        except OSError as exc:
            is_in_use = exc.errno == errno.EADDRINUSE
            why = "is in use: choose another" if is_in_use else f"cannot be used: {exc.strerror}"
            raise BrokerStartError(f"port {port} of {self.settings.host} {why}") from exc

    def _open_namespace(self) -> None:
        """Open the namespace; in memory it is the same one as before a stop."""
        loop = asyncio.get_running_loop()
        if self._namespace is None:
            name = self.settings.namespace
            try:
                if self.settings.data is not None:
                    self._store = self._make_store(self.settings.data)
                clock = None if self.settings.clock is None else self._milliseconds
                self._namespace = Namespace(
                    name, self._store, clock, tier=self.settings.effective_tier
                )
            except StoreError as error:
                raise BrokerStartError(str(error)) from error
        self._namespace.on_fatal = self._fatal
        self._namespace.start(loop)
        subscribe = getattr(self.settings.clock, "subscribe", None)
        if subscribe is not None:
            subscribe(lambda: loop.is_closed() or loop.call_soon_threadsafe(self._tick))

    def _fatal(self, problem: Exception) -> None:
        """Stop as if the process had crashed, because the store cannot be read any more."""
        if self._end is not None and not self._end.done():
            return
        loop = asyncio.get_running_loop()
        self._end = loop.create_task(self.stop(abrupt=True))
        self._end.add_done_callback(lambda _: self.on_fatal(problem))

    def _close_namespace(self, *, abrupt: bool) -> None:
        if self._namespace is not None:
            self._namespace.close(abrupt=abrupt)
        if self._store is not None:
            self._store.close()
            self._store = self._namespace = None

    def _milliseconds(self) -> int:
        return int(self._clock() * 1000)

    def _tick(self) -> None:
        if self.is_running and self._namespace is not None:
            self._namespace.tick()

    def _open_control_port(self) -> None:
        if self.settings.control_port is None:
            return
        listener = Listener(
            amqp=lambda lost: HttpProtocol(self._http.handle_always, closed=lost),
            http=lambda lost: HttpProtocol(self._http.handle_always, closed=lost),
            tls=None,
            faults=Faults(),
        )
        self._bind(listener, self.settings.control_port)
        self._control_listener = listener

    def _entity_rules(self, path: str) -> Iterable[AuthorizationRule]:
        try:
            description = self.namespace.catalog.entity(path).description
        except BrokerError:
            return ()
        rules: tuple[AuthorizationRule, ...] = getattr(description, "authorization_rules", ())
        return rules

    # -- faults ----------------------------------------------------------------------------------

    def _faults_changed(self) -> None:
        """Apply the faults that concern whole connections."""
        if not self.is_running:
            return
        self._http.faults_changed()
        fault = self.faults.connection_fault()
        listener = self.listener
        if fault == "refuse":
            listener.shut()
            listener.reset_all(but_http=True)
        elif not listener.is_open:
            self._bind(listener, listener.address[1])
        if fault == "reset":
            listener.reset_all(but_http=True)
        for connection in list(self.connections):
            if fault == "silent":
                connection.is_silent = True
            elif connection.is_silent:  # bytes that were not processed are lost
                connection.reset()
        if fault != "silent":
            listener.drop_silent()
        if self._fault_timer is not None:
            self._fault_timer.cancel()
        wait = self.faults.next_end()
        if wait is not None:
            loop = asyncio.get_running_loop()
            self._fault_timer = loop.call_later(wait + 0.001, self.faults.expire)
