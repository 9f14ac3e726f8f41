"""The broker's listener."""

import asyncio
import contextlib
import socket

from pairbus.broker.faults.faults import Faults
from pairbus.broker.server.listener import FrontDoor


async def test_connection_that_is_being_admitted_is_closed_with_the_listener():
    door = FrontDoor(
        amqp=lambda lost: asyncio.Protocol(),
        http=lambda lost: asyncio.Protocol(),
        tls=None,
        faults=Faults(),
    )
    address = door.bind("127.0.0.1", 0)
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(b"A")
        while not door.connections:
            await asyncio.sleep(0)
        while door.connections:  # its first byte was seen, and it has no transport yet
            await asyncio.sleep(0)
        await door.close()
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
