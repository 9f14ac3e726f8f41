"""Connections of the asyncio runtime are closed, whatever the peer does."""

import asyncio
import socket
import ssl
import threading

from pairbus.runtime import AsyncioRuntime

runtime = AsyncioRuntime()


def read_to_end(connection):
    """Read until the other side has closed; a connection that stays open is a `TimeoutError`."""
    connection.settimeout(30)
    count = 0
    try:
        while data := connection.recv(1 << 20):
            count += len(data)
    except ConnectionResetError:
        pass
    return count


async def test_closing_does_not_wait_for_a_peer_that_does_not_read(peer):
    stream = await runtime.connect("127.0.0.1", peer.port, tls=None, timeout=10)
    with await runtime.run_blocking(peer.accept) as other:
        stream.write(bytes(1 << 24))  # more than the buffers between the two
        assert stream.has_unsent
        stream.close()
        await asyncio.sleep(0)
        assert await runtime.run_blocking(read_to_end, other) < 1 << 24


async def test_closing_does_not_wait_for_the_peers_end_of_tls(peer, tls_file):
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tls_file)
    accepted = []

    def accept():
        accepted.append(server.wrap_socket(peer.accept(), server_side=True))

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    client = ssl.create_default_context(cafile=tls_file.with_name("cert.pem"))
    stream = await runtime.connect("localhost", peer.port, tls=client, timeout=10)
    await runtime.run_blocking(thread.join, 60)
    with accepted[0] as other:
        stream.close()
        await asyncio.sleep(0)
        # Beneath TLS: the peer sees the end of the connection, which it has not answered.
        plain = other.detach()
        with socket.socket(fileno=plain) as beneath:
            await runtime.run_blocking(read_to_end, beneath)
