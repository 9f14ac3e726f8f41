"""Routes the HTTP requests of a broker: control API, administration API, AMQP over WebSocket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pairbus.broker.admin.api import AdminApi
from pairbus.broker.entities.credits import MANAGEMENT
from pairbus.broker.server import websocket
from pairbus.broker.server.connection import AmqpConnection
from pairbus.broker.server.control import PREFIX, ControlApi
from pairbus.broker.server.http import Request, Response
from pairbus.broker.server.origins import refuse_origin

if TYPE_CHECKING:
    from pairbus.broker.server.server import Broker


class HttpRoutes:
    """Answers the HTTP requests of one broker.

    Args:
        broker: The broker; requests arrive only while it runs or starts.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._faults = broker.faults
        self._settings = broker.settings
        self._faults_changed = asyncio.Event()
        self._control = ControlApi(broker)

    async def handle(self, request: Request) -> Response:
        """Answer a request on the namespace's port, unless a fault prevents it."""
        fault = self._faults.connection_fault()
        if fault is not None and not request.target.startswith(PREFIX):
            while fault == "silent":
                await self._faults_changed.wait()
                fault = self._faults.connection_fault()
            raise ConnectionAbortedError
        return await self.handle_always(request)

    async def handle_always(self, request: Request) -> Response:
        """Answer a request on the control port, which faults do not affect."""
        if request.target.startswith(PREFIX):
            return self._control.handle(request)
        if (refusal := refuse_origin(request, self._settings.allowed_origins)) is not None:
            return refusal
        if request.method == "GET":
            return self._admin().handle(request)
        return await self._broker.do(lambda namespace: self._admin().handle(request))

    def upgrade(
        self, request: Request, transport: asyncio.Transport, rest: bytes
    ) -> Response | bool:
        """Turn a connection into AMQP over WebSocket; see `pairbus.broker.server.http.Upgrade`."""
        broker = self._broker
        if not websocket.is_upgrade(request) or not broker.is_running:
            return False
        if self._faults.connection_fault() is not None:
            return False  # `handle` applies the fault
        if (refusal := refuse_origin(request, self._settings.allowed_origins)) is not None:
            return refusal
        protocol = AmqpConnection(broker, lambda: broker.listener.lost(transport))
        frame_size = self._settings.limits.frame_size
        refusal = websocket.accept(request, transport, rest, protocol, frame_size)
        if refusal is None:
            broker.listener.upgraded(transport)
        return refusal or True

    def faults_changed(self) -> None:
        """Let requests that a fault holds back look at the faults again."""
        self._faults_changed.set()
        self._faults_changed = asyncio.Event()

    def _admin(self) -> AdminApi:
        broker = self._broker
        admin = broker.namespace.admin
        return AdminApi(admin, broker.key_ring, broker.now, broker.started_at, self._charge_admin)

    def _charge_admin(self, path: str) -> None:
        self._broker.throttle.check(path, "admin")
        self._broker.throttle.charge(MANAGEMENT)
