"""Routes the HTTP requests of a broker: control API, administration API, AMQP over WebSocket."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from pairbus.broker.admin.api import AdminApi
from pairbus.broker.auth.jwt import verify_token
from pairbus.broker.entities.credits import MANAGEMENT
from pairbus.broker.entities.model import AccessRight
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
        self._control = ControlApi(
            broker.faults,
            health=self._health,
            operations=broker.operations,
            limits=self._limits,
            is_safe_to_refuse=lambda: broker.control_address is not None,
            authorize=self._authorize_control,
        )

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

    def _authorize_control(self, request: Request) -> None:
        """Require the Manage claim, except on loopback addresses."""
        if self._settings.is_loopback:
            return
        token = request.headers.get("authorization", "")
        claims = verify_token(token, "", self._broker.key_ring, self._broker.now())
        claims.require(AccessRight.MANAGE, "")

    def _admin(self) -> AdminApi:
        broker = self._broker
        admin = broker.namespace.admin
        return AdminApi(admin, broker.key_ring, broker.now, broker.started_at, self._charge_admin)

    def _charge_admin(self, path: str) -> None:
        self._broker.throttle.check(path, "admin")
        self._broker.throttle.charge(MANAGEMENT)

    def _health(self) -> dict[str, Any]:
        return {
            "status": "ok",
            "namespace": self._settings.namespace,
            "port": self._broker.listener.address[1],
            "connections": len(self._broker.connections),
            "uptime_seconds": round(time.time() - self._broker.started_at, 3),
            "faults": len(self._faults.active),
        }

    def _limits(self) -> dict[str, Any]:
        """The tier, the limits in force and how often they were applied."""
        refused: dict[str, dict[str, int]] = {}
        for (entity, operation), count in self._broker.throttle.refused.items():
            refused.setdefault(entity, {})[operation] = count
        return {
            "tier": self._settings.effective_tier.value,
            "credits_per_second": self._settings.credits_per_second,
            "idle_link_timeout": self._settings.idle_link_timeout,
            "idle_connection_timeout": self._settings.idle_connection_timeout,
            "throttled": refused,
            "idle_links_detached": self._broker.idle_links,
            "idle_connections_closed": self._broker.idle_connections,
        }
