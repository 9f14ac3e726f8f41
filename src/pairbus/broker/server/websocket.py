"""AMQP over WebSocket: `/$servicebus/websocket` with the subprotocol AMQPWSB10.

wsproto does the handshake and the framing (RFC 6455). This module stands between transport and
protocol of a connection, so that the AMQP protocol above it sees a stream of bytes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    TextMessage,
)
from wsproto.utilities import RemoteProtocolError

from pairbus.broker.server.http import Request, Response

PATH = "/$servicebus/websocket"
SUBPROTOCOL = "AMQPWSB10"
_NORMAL, _UNSUPPORTED_DATA, _TOO_BIG = 1000, 1003, 1009


def is_upgrade(request: Request) -> bool:
    """Whether a request asks for AMQP over WebSocket."""
    headers = request.headers
    return (
        request.method == "GET"
        and request.target.partition("?")[0].rstrip("/").lower() == PATH
        and headers.get("upgrade", "").lower() == "websocket"
        and "sec-websocket-key" in headers
        and SUBPROTOCOL in {p.strip() for p in headers.get("sec-websocket-protocol", "").split(",")}
    )


def accept(
    request: Request,
    transport: asyncio.Transport,
    rest: bytes,
    protocol: asyncio.Protocol,
    max_message: int,
) -> Response | None:
    """Answer the handshake and put `protocol` on top of the WebSocket.

    Returns:
        None, or the answer that refuses a handshake which is not valid.
    """
    websocket = WSConnection(ConnectionType.SERVER)
    headers = [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()
    ]
    try:
        websocket.initiate_upgrade_connection(headers, request.target)
    except RemoteProtocolError as error:
        status = getattr(error.event_hint, "status_code", 400)
        hints = getattr(error.event_hint, "headers", [])
        return Response(
            status,
            b"the WebSocket handshake is not valid",
            {bytes(name).decode(): bytes(value).decode() for name, value in hints},
        )
    transport.write(websocket.send(AcceptConnection(subprotocol=SUBPROTOCOL)))
    for _ in websocket.events():
        pass  # the request, which is answered above
    wrapper = _WebSocket(websocket, protocol, max_message)
    transport.set_protocol(wrapper)
    wrapper.connection_made(transport)
    if rest:
        wrapper.data_received(rest)
    return None


class _WebSocket(asyncio.Transport, asyncio.Protocol):
    """The protocol of the connection below, and the transport of the protocol above.

    Each write is one binary message; the payload of binary messages is passed up as it arrives.
    """

    def __init__(self, websocket: WSConnection, above: asyncio.Protocol, max_message: int) -> None:
        super().__init__()
        self._websocket = websocket
        self._above = above
        self._below: asyncio.Transport
        self._max_message = max_message + 64
        self._message_size = 0
        self._is_paused = False

    # -- the transport of the protocol above -----------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._below.is_closing():
            self._below.write(self._websocket.send(BytesMessage(data=bytes(data))))

    def close(self) -> None:
        self._close_with(_NORMAL)

    def _close_with(self, code: int) -> None:
        """Send a close frame with a status code, and close."""
        if not self._below.is_closing():
            if self._websocket.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
                self._below.write(self._websocket.send(CloseConnection(code=code)))
            self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()

    # -- the protocol of the connection below ----------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._below = transport
        self._above.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._above.connection_lost(exc)

    def pause_writing(self) -> None:
        self._is_paused = True
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._above.resume_writing()

    def data_received(self, data: bytes) -> None:
        self._websocket.receive_data(data)
        for event in self._websocket.events():
            if self._below.is_closing():
                return
            if isinstance(event, BytesMessage):
                self._on_bytes(event)
            elif isinstance(event, Ping):
                # A client that does not read gets no answers to its pings: they would accumulate.
                if not self._is_paused:
                    self._below.write(self._websocket.send(event.response()))
            elif isinstance(event, CloseConnection):  # from the client, or after an invalid frame
                self._close_with(event.code)
            elif isinstance(event, TextMessage):
                self._close_with(_UNSUPPORTED_DATA)

    def _on_bytes(self, event: BytesMessage) -> None:
        self._message_size += len(event.data)
        if self._message_size > self._max_message:
            self._close_with(_TOO_BIG)
            return
        if event.message_finished:
            self._message_size = 0
        self._above.data_received(bytes(event.data))
