"""The broker's listener."""

import asyncio
import contextlib
import socket

from pairbus.broker.faults.faults import Faults
from pairbus.broker.server.listener import Listener


async def test_connection_that_is_being_admitted_is_closed_with_the_listener():
    listener = Listener(
        amqp=lambda lost: asyncio.Protocol(),
        http=lambda lost: asyncio.Protocol(),
        tls=None,
        faults=Faults(),
    )
    address = listener.bind("127.0.0.1", 0)
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(b"A")
        while not listener.connections:
            await asyncio.sleep(0)
        while listener.connections:  # its first byte was seen, and it has no transport yet
            await asyncio.sleep(0)
        await listener.close()
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
