"""AMQP over WebSocket: `/$servicebus/websocket` with the subprotocol AMQPWSB10.

wsproto does the handshake and the framing (RFC 6455). This module wraps transport and protocol of a
connection, so that the AMQP protocol above it sees a stream of bytes.
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
    wrapper = _WebSocketProtocol(websocket, protocol, max_message)
    transport.set_protocol(wrapper)
    wrapper.connection_made(transport)
    if rest:
        wrapper.data_received(rest)
    return None


class WebSocketTransport(asyncio.Transport):
    """The transport of the protocol above: each write is one binary message."""

    def __init__(self, websocket: WSConnection, below: asyncio.Transport) -> None:
        super().__init__()
        self._websocket = websocket
        self._below = below

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes as one message."""
        if not self._below.is_closing():
            self._below.write(self._websocket.send(BytesMessage(data=bytes(data))))

    def close(self) -> None:
        """Send a close frame and close."""
        self.close_with(_NORMAL)

    def close_with(self, code: int) -> None:
        """Send a close frame with a status code, and close."""
        if not self._below.is_closing():
            if self._websocket.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
                self._below.write(self._websocket.send(CloseConnection(code=code)))
            self._below.close()

    def abort(self) -> None:
        """Close immediately, without a close frame."""
        self._below.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._below.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the information of the connection below."""
        return self._below.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that wait to be sent."""
        return self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when the protocol above is paused."""
        self._below.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        """Stop reading."""
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._below.resume_reading()


class _WebSocketProtocol(asyncio.Protocol):
    """Passes the payload of binary messages to the protocol above, as it arrives."""

    def __init__(self, websocket: WSConnection, above: asyncio.Protocol, max_message: int) -> None:
        self._websocket = websocket
        self._above = above
        self._max_message = max_message + 64
        self._message_size = 0
        self._is_paused = False
        self._transport: asyncio.Transport | None = None
        self._outer: WebSocketTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._outer = WebSocketTransport(self._websocket, transport)
        self._above.connection_made(self._outer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._outer = None
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
            transport, outer = self._transport, self._outer
            if transport is None or outer is None or transport.is_closing():
                return
            if isinstance(event, BytesMessage):
                self._on_bytes(event, outer)
            elif isinstance(event, Ping):
                # A client that does not read gets no answers to its pings: they would accumulate.
                if not self._is_paused:
                    transport.write(self._websocket.send(event.response()))
            elif isinstance(event, CloseConnection):  # from the client, or after an invalid frame
                outer.close_with(event.code)
            elif isinstance(event, TextMessage):
                outer.close_with(_UNSUPPORTED_DATA)

    def _on_bytes(self, event: BytesMessage, outer: WebSocketTransport) -> None:
        self._message_size += len(event.data)
        if self._message_size > self._max_message:
            outer.close_with(_TOO_BIG)
            return
        if event.message_finished:
            self._message_size = 0
        self._above.data_received(bytes(event.data))
