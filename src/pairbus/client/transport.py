"""A socket that never blocks by itself: reads and writes what it can, and waits by deadline."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque

from pairbus.client.errors import SOCKET_ERROR, ConnectionLostError, OperationTimeoutError

READ_SIZE = 1 << 18
_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Transport:
    """A connected TCP or TLS socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._unsent: deque[memoryview] = deque()
        sock.setblocking(False)
        self._fd = sock.fileno()

    @classmethod
    def connect(
        cls, host: str, port: int, *, tls: ssl.SSLContext | None, deadline: float
    ) -> Transport:
        """Connect, and shake hands for TLS, before the deadline (of `time.monotonic`)."""
        sock: socket.socket | None = None
        try:
            left = max(0.001, deadline - time.monotonic())
            sock = socket.create_connection((host, port), timeout=left)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                sock.settimeout(max(0.001, deadline - time.monotonic()))
                sock = tls.wrap_socket(sock, server_hostname=host)
            return cls(sock)
        except TimeoutError as exc:
            if sock is not None:
                sock.close()
            raise OperationTimeoutError(f"connecting to {host}:{port}") from exc
        except OSError as exc:
            if sock is not None:
                sock.close()
            raise ConnectionLostError(SOCKET_ERROR, f"connecting to {host}:{port}: {exc}") from exc

    @property
    def has_unsent(self) -> bool:
        """Something is still to be written."""
        return bool(self._unsent)

    def write(self, data: bytes) -> None:
        """Write what the socket takes now; the rest goes with later calls."""
        self._unsent.append(memoryview(data))
        self.flush()

    def flush(self) -> None:
        """Write more of what is unsent, without waiting."""
        try:
            unsent = self._unsent
            while unsent:
                # TLS wants to see the same bytes again after "not now": the view keeps them.
                view = unsent[0]
                sent = self._socket.send(view)
                if sent == len(view):
                    unsent.popleft()
                else:
                    unsent[0] = view[sent:]
        except _WOULD_BLOCK:
            pass
        except OSError as exc:
            raise ConnectionLostError(SOCKET_ERROR, f"writing: {exc}") from exc

    def read(self) -> bytes | None:
        """What has arrived; None if nothing has.

        Raises:
            ConnectionLostError: the peer is gone.
        """
        try:
            data = self._socket.recv(READ_SIZE)
        except _WOULD_BLOCK:
            return None
        except OSError as exc:
            raise ConnectionLostError(SOCKET_ERROR, f"reading: {exc}") from exc
        if not data:
            raise ConnectionLostError(SOCKET_ERROR, "the peer closed the connection")
        return data

    def wait(self, timeout: float, *, read: bool = True) -> None:
        """Wait until something can be read (or written, if something is unsent)."""
        if read and isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return
        poll = select.poll()
        mask = (select.POLLIN if read else 0) | (select.POLLOUT if self._unsent else 0)
        poll.register(self._fd, mask)
        poll.poll(max(0.0, timeout) * 1000)

    def close(self) -> None:
        """Close, without waiting for anything; a thread that waits here wakes up."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # gone already
        self._socket.close()
