"""AMQP over WebSocket: `/$servicebus/websocket` with the subprotocol AMQPWSB10.

A server's side of RFC 6455, just enough to carry a stream of bytes in binary messages: it wraps a
connection's transport and protocol so that the AMQP protocol on top does not notice.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
from typing import Any

from pairbus.broker.server.http import Request

PATH = "/$servicebus/websocket"
SUBPROTOCOL = "AMQPWSB10"
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10


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
    max_frame: int,
) -> None:
    """Answer the handshake and put `protocol` on top of the WebSocket."""
    key = request.headers["sec-websocket-key"].encode()
    digest = base64.b64encode(hashlib.sha1(key + _MAGIC, usedforsecurity=False).digest())
    transport.write(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + digest + b"\r\n"
        b"Sec-WebSocket-Protocol: " + SUBPROTOCOL.encode() + b"\r\n\r\n"
    )
    wrapper = _WebSocketProtocol(protocol, max_frame)
    transport.set_protocol(wrapper)
    wrapper.connection_made(transport)
    if rest:
        wrapper.data_received(rest)


def frame(opcode: int, payload: bytes) -> bytes:
    """Return one final, unmasked frame."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, size)
    elif size < 65536:
        head = struct.pack("!BBH", 0x80 | opcode, 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 127, size)
    return head + payload


class WebSocketTransport(asyncio.Transport):
    """What the protocol on top writes to: each write is one binary message."""

    def __init__(self, below: asyncio.Transport) -> None:
        super().__init__()
        self._below = below

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes as one message."""
        self._below.write(frame(_BINARY, bytes(data)))

    def close(self) -> None:
        """Say goodbye and close."""
        if not self._below.is_closing():
            self._below.write(frame(_CLOSE, struct.pack("!H", 1000)))
        self._below.close()

    def abort(self) -> None:
        """Close at once."""
        self._below.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._below.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the connection below says."""
        return self._below.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when the protocol is told to pause."""
        self._below.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        """Read nothing for a while."""
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._below.resume_reading()


class _WebSocketProtocol(asyncio.Protocol):
    def __init__(self, above: asyncio.Protocol, max_frame: int) -> None:
        self._above = above
        self._max_frame = max_frame + 64
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._above.connection_made(WebSocketTransport(transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._above.connection_lost(exc)

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while self._transport is not None:
            taken = self._next()
            if taken is None:
                return
            opcode, payload = taken
            if opcode in {_CONTINUATION, _BINARY}:
                self._above.data_received(payload)
            elif opcode == _PING:
                self._transport.write(frame(_PONG, payload[:125]))
            elif opcode == _CLOSE:
                self._transport.write(frame(_CLOSE, payload[:2]))
                self._transport.close()
                return
            elif opcode != _PONG:
                self._fail(1003)
                return

    def _next(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        opcode, size, start = buffer[0] & 0x0F, buffer[1] & 0x7F, 2
        if not buffer[1] & 0x80:  # a client's frames are masked
            self._fail(1002)
            return None
        if size == 126:
            if len(buffer) < 4:
                return None
            size, start = int.from_bytes(buffer[2:4], "big"), 4
        elif size == 127:
            if len(buffer) < 10:
                return None
            size, start = int.from_bytes(buffer[2:10], "big"), 10
        if size > self._max_frame:
            self._fail(1009)
            return None
        end = start + 4 + size
        if len(buffer) < end:
            return None
        payload = _unmask(bytes(buffer[start + 4 : end]), bytes(buffer[start : start + 4]))
        del buffer[:end]
        return opcode, payload

    def _fail(self, code: int) -> None:
        if self._transport is not None:
            self._transport.write(frame(_CLOSE, struct.pack("!H", code)))
            self._transport.close()
            self._buffer.clear()


def _unmask(payload: bytes, mask: bytes) -> bytes:
    """XOR with the mask repeated, as one long number: fast without a loop in Python."""
    size = len(payload)
    repeated = mask * (size // 4 + 1)
    value = int.from_bytes(payload, "big") ^ int.from_bytes(repeated[:size], "big")
    return value.to_bytes(size, "big")
