"""The broker: a namespace behind a front door, on one event loop.

`Broker` owns the listener, the connections, the namespace and its timer; `run.py` puts it on a
thread, the command line in a process of its own.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from .control import PREFIX, ControlApi
from .faults import Faults
from .frontdoor import FrontDoor, Silent
from .httpserver import HttpProtocol, Request, Response
from .settings import BrokerSettings, BrokerStartError
from .tls import ensure_certificate, server_context, temporary_certificate

_log = logging.getLogger("pairbus.broker")
T = TypeVar("T")


class Broker:
    """One namespace, served on one port. All methods are called on its event loop."""

    def __init__(self, settings: BrokerSettings, faults: Faults) -> None:
        self.settings = settings
        self.faults = faults
        self.namespace: Any = None
        self.is_running = False
        self._door: FrontDoor | None = None
        self._address = ("", 0)
        self._certificate: Path | None = None
        self._certificate_folder: Any = None
        self._control = ControlApi(
            faults,
            health=self._health,
            operations=self.operations,
            is_safe_to_refuse=lambda: settings.control_port is not None,
        )

    @property
    def certificate(self) -> Path:
        """The certificate of the TLS port."""
        assert self._certificate is not None
        return self._certificate

    @property
    def control_address(self) -> str | None:
        """The "host:port" of the second port, if there is one."""
        return None

    async def start(self, port: int) -> int:
        """Begin to serve on `port` (0 picks one) and return the port.

        Raises:
            BrokerStartError: With one line that says why not.
        """
        settings = self.settings
        pem = self._prepare_certificate()
        door = FrontDoor(
            amqp=lambda lost: Silent(door),
            http=lambda lost: HttpProtocol(self._handle, closed=lost),
            tls=server_context(pem),
            faults=self.faults,
            max_connections=settings.limits.connections,
            sniff_timeout=settings.limits.sniff_timeout,
        )
        try:
            self._address = door.bind(settings.host, port)
        except OSError as exc:
            why = "is in use" if exc.errno == errno.EADDRINUSE else f"cannot be used: {exc}"
            raise BrokerStartError(f"port {port} of {settings.host} {why}") from exc
        self._door = door
        self.is_running = True
        return self._address[1]

    async def stop(self, *, abrupt: bool = False) -> None:
        """Stop serving."""
        self.is_running = False
        if self._door is not None:
            if abrupt:
                self._door.shut()
                self._door.reset_all()
            await self._door.close()
            self._door = None

    async def close(self) -> None:
        """Stop for good."""
        await self.stop()
        if self._certificate_folder is not None:
            self._certificate_folder.cleanup()

    async def do(self, action: Callable[[Any], T]) -> T:
        """Run `action` with the namespace and wait until what it did is durable."""
        return action(self.namespace)

    def operations(self) -> dict[str, Any]:
        """Return the operations that the service would bill, per entity and kind."""
        return {}

    def _health(self) -> dict[str, Any]:
        return {"namespace": self.settings.namespace, "status": "ok", "port": self._address[1]}

    def _prepare_certificate(self) -> Path:
        hosts = [self.settings.host]
        if self.settings.data is not None:
            pem = ensure_certificate(self.settings.data, hosts)
        elif self._certificate_folder is None:
            pem, self._certificate_folder = temporary_certificate(hosts)
        else:
            pem = Path(self._certificate_folder.name) / "tls.pem"
        self._certificate = pem.with_name("cert.pem")
        return pem

    async def _handle(self, request: Request) -> Response:
        if request.target.startswith(PREFIX):
            return self._control.handle(request)
        return Response(501)
