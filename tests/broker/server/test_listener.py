"""The broker's listener."""

import asyncio
import contextlib
import socket
import ssl

import pytest

from pairbus.broker.faults.faults import Faults
from pairbus.broker.server.listener import Listener
from pairbus.broker.server.server import Broker
from pairbus.broker.server.tls import ensure_certificate, server_context
from pairbus.broker.settings import BrokerSettings, BrokerStartError
from pairbus.broker.store.store import Store


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
        while not listener._tasks:  # noqa: SLF001 - it has no transport yet
            await asyncio.sleep(0)
        await listener.close()
        listener.release()
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


@pytest.mark.parametrize("first", [b"A", b"AM", b"AMQP\x03"])
def test_however_the_amqp_header_is_cut_it_is_not_taken_for_http(first):
    listener = Listener(
        amqp=lambda lost: "amqp", http=lambda lost: "http", tls=None, faults=Faults()
    )
    assert listener.protocol_for(first, asyncio.Transport()) == "amqp"
    assert listener.protocol_for(b"GET", asyncio.Transport()) == "http"


async def test_close_waits_for_a_stop_that_is_under_way(tmp_path):
    broker = Broker(BrokerSettings(memory=False, data=tmp_path), Faults())
    port = await broker.start(0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"AMQP\x03\x01\x00\x00")
    await reader.readexactly(8)
    stopping = asyncio.ensure_future(broker.stop())
    await asyncio.sleep(0)
    await broker.close()
    Store(tmp_path).close()
    await stopping
    writer.close()


class BrokerWithAnEarlyClient(Broker):
    """A client connects before the broker is ready."""

    def _open_namespace(self) -> None:
        super()._open_namespace()
        self.client = socket.create_connection(self.listener.address, timeout=5)
        self.client.sendall(b"AMQP\x03\x01\x00\x00")


async def test_connection_that_arrives_during_a_start_that_fails_is_closed():
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = BrokerSettings(
            entities={"Queues": [{"Name": "q"}]}, control_port=other.getsockname()[1]
        )
        broker = BrokerWithAnEarlyClient(settings, Faults())
        with pytest.raises(BrokerStartError, match="in use"):
            await broker.start(0)
    with broker.client, contextlib.suppress(ConnectionResetError):
        assert broker.client.recv(1) == b""
    await broker.close()


async def test_tls_handshake_that_is_not_finished_counts_as_a_connection(tmp_path):
    has_begun = asyncio.Event()

    def tls() -> ssl.SSLContext:
        has_begun.set()
        return server_context(ensure_certificate(tmp_path, ["127.0.0.1"]))

    listener = Listener(
        amqp=lambda lost: asyncio.Protocol(),
        http=lambda lost: asyncio.Protocol(),
        tls=tls,
        faults=Faults(),
        max_connections=1,
    )
    address = listener.bind("127.0.0.1", 0)
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(b"\x16")
        await has_begun.wait()
        assert listener.connections == 1
        await listener.close()
        listener.release()
    assert listener.connections == 0
