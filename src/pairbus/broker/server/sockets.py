"""The sockets below asyncio: ports that are kept while they refuse, and connections that are reset.

A port that is only bound refuses connections, and no other process gets it. A broker that is
stopped for a while, and then starts again on the same port, needs that.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct


class Port:
    """A TCP port that listens or refuses, until it is released.

    Attributes:
        listener: The socket that listens; None while the port refuses.
        address: The host and the port of the listener.
    """

    def __init__(self) -> None:
        self.listener: socket.socket | None = None
        self.address: tuple[str, int] = ("", 0)
        self._held: socket.socket | None = None

    def listen(self, host: str, port: int) -> socket.socket:
        """Return a non-blocking socket that listens on an IPv4 or IPv6 address.

        Raises:
            OSError: The port is in use, or the address does not belong to this machine.
        """
        self.release()
        listener = _bound_socket(host, port)
        try:
            listener.listen(512)
        except OSError:
            listener.close()
            raise
        name = listener.getsockname()
        self.listener, self.address = listener, (str(name[0]), int(name[1]))
        return listener

    def refuse(self) -> None:
        """Close the listener, and keep the port unless another process is faster."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None
            with contextlib.suppress(OSError):
                self._held = _bound_socket(*self.address)

    def release(self) -> None:
        """Let others use a port that refuses."""
        if self._held is not None:
            self._held.close()
            self._held = None


def _bound_socket(host: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound


def abort_with_reset(transport: asyncio.Transport) -> None:
    """Close a connection so that its peer sees a reset, not an end of stream."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        linger_zero(sock)
    transport.abort()


def linger_zero(sock: socket.socket) -> None:
    """Let the close of a socket reset its connection."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass  # closed already
