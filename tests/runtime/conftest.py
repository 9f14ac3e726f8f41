"""A peer that tests connect to: it does what the test says, on a thread of its own."""

import socket
import threading

import pytest


class Peer:
    """A listening socket and the connections that it took."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def accept(self):
        connection, _ = self._listener.accept()
        return connection

    def echo(self):
        """Send everything back on one connection, until its end."""

        def run():
            with self.accept() as connection:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def close(self):
        self._listener.close()


@pytest.fixture
def peer():
    peer = Peer()
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def tls_file(tmp_path_factory):
    """A key and its self-signed certificate for localhost, in one file."""
    from pairbus.broker.server.tls import ensure_certificate

    return ensure_certificate(tmp_path_factory.mktemp("tls"), [])
