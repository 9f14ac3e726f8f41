"""The broker's listener: one port that speaks AMQP, AMQP over TLS, HTTP, HTTPS and WebSocket.

The first byte selects the protocol: `A` begins the AMQP header, 0x16 a TLS handshake, anything else
is a method of HTTP. The byte is only peeked, because the TLS handshake needs it; inside TLS the
protocol is selected again by the first bytes.

The listener also refuses too many connections and disconnects clients that send nothing or too
slowly. Faults that concern whole connections are applied here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial

from pairbus.broker.faults.faults import Faults
from pairbus.broker.server.sockets import Port, abort_with_reset, linger_zero

_log = logging.getLogger("pairbus.broker")


#: Makes a protocol; its argument is called when the connection is lost.
MakeProtocol = Callable[[Callable[[], None]], asyncio.Protocol]


class Listener:
    """Listens on one port and hands each connection to the protocol that it speaks.

    Args:
        amqp: Makes the protocol for an AMQP connection.
        http: Makes the protocol for an HTTP connection.
        tls: Returns the context for TLS, when the first client uses it; None: TLS is refused.
        faults: The faults of the namespace.
        max_connections: Further connections are closed immediately.
        sniff_timeout: Seconds for the first byte, and for a TLS handshake.
    """

    def __init__(
        self,
        *,
        amqp: MakeProtocol,
        http: MakeProtocol,
        tls: Callable[[], ssl.SSLContext] | None,
        faults: Faults,
        max_connections: int = 5000,
        sniff_timeout: float = 20.0,
    ) -> None:
        self._amqp = amqp
        self._http = http
        self._tls = tls
        self._faults = faults
        self._max_connections = max_connections
        self.sniff_timeout = sniff_timeout
        self._port = Port()
        self._sniffing: dict[socket.socket, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._admitting: set[socket.socket] = set()  # without a transport yet: a TLS handshake
        self._transports: dict[asyncio.Transport, str] = {}  # each with what it speaks
        self.address: tuple[str, int] = ("", 0)

    @property
    def connections(self) -> int:
        """How many connections are open, including those whose protocol is not known yet."""
        return len(self._transports) + len(self._sniffing) + len(self._admitting)

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """Bind the port and accept connections.

        Raises:
            OSError: The port is in use, or the address does not belong to this machine.
        """
        listener = self._port.listen(host, port)
        self.address = self._port.address
        asyncio.get_running_loop().add_reader(listener.fileno(), self._accept)
        return self.address

    def shut(self) -> None:
        """Refuse connections from now on, and keep the port until `release`."""
        if self._port.listener is not None:
            asyncio.get_running_loop().remove_reader(self._port.listener.fileno())
            self._port.refuse()

    def release(self) -> None:
        """Stop listening, and let others use the port."""
        self.shut()
        self._port.release()

    @property
    def is_open(self) -> bool:
        """Whether the port accepts connections."""
        return self._port.listener is not None

    def reset_all(self, *, but_http: bool = False) -> None:
        """Reset every connection; with `but_http`, leave those that use HTTP (the control API)."""
        for sock in list(self._sniffing):
            self._forget(sock)
            linger_zero(sock)
            sock.close()
        for transport, spoken in list(self._transports.items()):
            if not (but_http and spoken == "http"):
                abort_with_reset(transport)

    def drop_silent(self) -> None:
        """Reset the connections that were accepted and never answered."""
        for transport, spoken in list(self._transports.items()):
            if spoken == "nothing":
                abort_with_reset(transport)

    async def close(self) -> None:
        """Refuse connections, as `shut` does, and end those that are open."""
        self.shut()
        for sock in list(self._sniffing):
            self._forget(sock)
            sock.close()
        if tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for transport in list(self._transports):
            if not transport.is_closing():  # asyncio's TLS cannot be aborted after a second close
                transport.close()
        # A peer that does not read would keep a transport open.
        for _ in range(20):
            if not self._transports:
                return
            await asyncio.sleep(0.01)
        for transport in list(self._transports):
            transport.abort()
        await asyncio.sleep(0)

    def opened(self, transport: asyncio.Transport, sock: socket.socket | None) -> None:
        """Register the transport of a connection that was accepted."""
        if sock is not None:
            self._admitting.discard(sock)
        self._transports[transport] = "unknown"

    def upgraded(self, transport: asyncio.Transport) -> None:
        """Take note that a connection does not use HTTP any more."""
        if transport in self._transports:
            self._transports[transport] = "amqp"

    def lost(self, transport: asyncio.Transport | None) -> None:
        """Forget a connection that is closed."""
        if transport is not None:
            self._transports.pop(transport, None)

    # -- accepting -------------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(64):
            if self._port.listener is None:
                return
            try:
                sock, _ = self._port.listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as exc:  # out of file descriptors: retry in a moment
                _log.warning("a connection could not be accepted: %s", exc.strerror)
                self._pause()
                return
            if self.connections >= self._max_connections:
                _log.warning("a connection was refused: %d are open", self.connections)
                linger_zero(sock)
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop = asyncio.get_running_loop()
            self._sniffing[sock] = loop.call_later(self.sniff_timeout, self._too_slow, sock)
            loop.add_reader(sock.fileno(), self._sniff, sock)

    def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        assert self._port.listener is not None
        loop.remove_reader(self._port.listener.fileno())

        def resume() -> None:
            if self._port.listener is not None:
                loop.add_reader(self._port.listener.fileno(), self._accept)

        loop.call_later(0.2, resume)

    def _forget(self, sock: socket.socket) -> None:
        timer = self._sniffing.pop(sock, None)
        if timer is not None:
            timer.cancel()
            asyncio.get_running_loop().remove_reader(sock.fileno())

    def _too_slow(self, sock: socket.socket) -> None:
        self._forget(sock)
        sock.close()

    def _sniff(self, sock: socket.socket) -> None:
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        self._forget(sock)
        if not first or (first == b"\x16" and self._tls is None):
            sock.close()
            return
        task = asyncio.get_running_loop().create_task(self._admit(sock, tls=first == b"\x16"))
        self._tasks.add(task)
        self._admitting.add(sock)
        task.add_done_callback(partial(self._admitted, sock))

    def _admitted(self, sock: socket.socket, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._admitting.discard(sock)
        if task.cancelled():  # possibly before it started
            sock.close()

    async def _admit(self, sock: socket.socket, *, tls: bool) -> None:
        loop = asyncio.get_running_loop()
        choose = partial(self._choose, sock)
        try:
            if tls and self._tls is not None and self._faults.connection_fault() is None:
                await loop.connect_accepted_socket(
                    choose,
                    sock,
                    ssl=self._tls(),
                    ssl_handshake_timeout=self.sniff_timeout,
                    ssl_shutdown_timeout=1.0,
                )
            else:
                await loop.connect_accepted_socket(choose, sock)
        except (OSError, ssl.SSLError) as exc:
            _log.debug("a connection failed before its first byte: %s", exc)
            sock.close()

    def _choose(self, sock: socket.socket | None = None) -> asyncio.Protocol:
        return _ProtocolChooser(self, sock)

    def protocol_for(self, first: bytes, transport: asyncio.Transport) -> asyncio.Protocol:
        """Return the protocol for the first bytes, or that of an active fault."""
        fault = self._faults.connection_fault()
        is_http = first[:1].isalpha() and not b"AMQP".startswith(first[:4])
        if fault is not None and not is_http:  # the control API must stay reachable
            self._transports[transport] = "nothing"
            if fault != "silent":
                abort_with_reset(transport)
            return SilentProtocol(self)
        self._transports[transport] = "http" if is_http else "amqp"
        make = self._http if is_http else self._amqp
        return make(partial(self.lost, transport))


class _ProtocolChooser(asyncio.Protocol):
    """Waits for the first bytes, and switches to the protocol that they select."""

    def __init__(self, owner: Listener, sock: socket.socket | None) -> None:
        self._owner = owner
        self._socket = sock
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._owner.opened(transport, self._socket)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._owner.sniff_timeout, transport.abort)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        protocol = self._owner.protocol_for(data[:8], transport)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._owner.lost(self._transport)


class SilentProtocol(asyncio.Protocol):
    """Reads everything and never answers."""

    def __init__(self, owner: Listener) -> None:
        self._owner = owner
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        assert isinstance(self._transport, asyncio.Transport)
        self._owner.lost(self._transport)
