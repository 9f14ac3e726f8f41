"""The life of a connection to the embedded broker."""

import socket
import ssl

import pytest

from pairbus import broker
from pairbus.broker.settings import Limits
from pairbus.client import (
    ConnectionLostError,
    ConnectTimeoutError,
    LinkDetachedError,
    SasKey,
)
from pairbus.client._async.receiver import LongPoll
from pairbus.client.aio import BulkConnection
from pairbus.runtime import AsyncioRuntime
from tests.client.support import KEY, message

runtime = AsyncioRuntime()


async def test_nobody_listening_is_a_lost_connection():
    with socket.socket() as bound:  # it does not listen, and keeps the port from others
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        client = BulkConnection(
            host="127.0.0.1", port=port, tls=False, credential=SasKey("a", "b"), timeout=2
        )
        with pytest.raises(ConnectionLostError) as caught:
            await client.connect()
        assert caught.value.condition == "amqp:socket-error"
        with pytest.raises(ConnectionLostError):
            await client.sender("q")


async def test_peer_that_says_nothing_is_timed_out():
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        client = BulkConnection(
            host="127.0.0.1", port=port, tls=False, credential=SasKey("a", "b"), timeout=0.05
        )
        with pytest.raises(ConnectTimeoutError) as caught:
            await client.sender("q")
        assert caught.value.condition == "com.microsoft:timeout"
        assert not client.is_usable


async def test_broken_connection_is_told_to_everybody():
    with broker.run(memory=True) as ns:
        ns.create_queue("q")
        client = BulkConnection(ns.connection_string, timeout=10)
        receiver, sender = await client.receiver("q"), await client.sender("q")
        seen = []

        async def wait():
            try:
                await receiver.wait(30)
            except ConnectionLostError as exc:
                seen.append(exc)

        waiter = runtime.spawn(wait, name="waiter")
        await runtime.run_blocking(ns.kill)
        assert await waiter.join(60)
        assert seen
        (outcome,) = await sender.send_batch([message(1)])
        assert isinstance(outcome.error, ConnectionLostError)
        assert not client.is_usable
        with pytest.raises(ConnectionLostError):
            await client.management("q").peek()
        await client.close()


async def test_encrypted_connection(ns, queue):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    client = BulkConnection(
        host="127.0.0.1", port=ns.port, tls=True, ssl_context=context, timeout=10,
        credential=KEY,
    )  # fmt: skip
    async with client:
        sender = await client.sender(queue)
        outcomes = await sender.send_batch([message(n, 5000) for n in range(400)])
        assert all(outcome.is_accepted for outcome in outcomes)
        assert len(await (await client.receiver(queue)).receive_now(400)) == 400


async def test_untrusted_certificate_is_refused(ns):
    client = BulkConnection(host="127.0.0.1", port=ns.port, credential=SasKey("a", "b"), timeout=5)
    with pytest.raises(ConnectionLostError):
        await client.connect()


async def test_many_users_share_a_connection(connection, queue):
    sender, receiver = await connection.sender(queue), await connection.receiver(queue)
    failures = []

    async def send(worker):
        for n in range(20):
            outcomes = await sender.send_batch([message(f"{worker}-{n}")])
            failures.extend(o.error for o in outcomes if not o.is_accepted)

    for task in [runtime.spawn(send, n, name="sender") for n in range(4)]:
        assert await task.join(60)
    assert not failures
    assert len(await receiver.receive_now(1000)) == 80


async def test_detached_link_is_told_and_others_go_on(ns, connection, queue):
    sender = await connection.sender(queue)
    other = await connection.receiver(queue)
    with ns.faults.detach("com.microsoft:entity-disabled", entity=queue):
        (outcome,) = await sender.send_batch([message(1)])
    assert isinstance(outcome.error, LinkDetachedError)
    assert outcome.error.condition == "com.microsoft:entity-disabled"
    assert sender.is_detached
    (outcome,) = await sender.send_batch([message(1)])
    assert isinstance(outcome.error, LinkDetachedError)
    assert (await other.receive_now(1)) == []
    assert (await (await connection.sender(queue)).send_batch([message(1)]))[0].is_accepted


async def test_closed_connection_carries_the_peers_condition(ns, queue):
    async with BulkConnection(ns.connection_string, timeout=10) as client:
        sender = await client.sender(queue)
        with ns.faults.close("amqp:internal-error", entity=queue):
            (outcome,) = await sender.send_batch([message(1)])
        assert isinstance(outcome.error, ConnectionLostError)
        assert outcome.error.condition == "amqp:internal-error"


async def test_link_that_is_closed_cannot_be_used(connection, queue):
    receiver = await connection.receiver(queue)
    await receiver.close()
    await receiver.close()
    with pytest.raises(LinkDetachedError):
        await receiver.receive_now(1)
    management = connection.management(queue)
    await management.peek()
    await management.close()
    assert (await connection.management(queue).peek()) == []


@pytest.mark.slow
async def test_heartbeats_keep_a_long_poll_alive_in_both_directions():
    with broker.run(memory=True, limits=Limits(idle_timeout=5.0)) as ns:
        ns.create_queue("q")
        async with BulkConnection(ns.connection_string, idle_time_out=5.0, timeout=10) as client:
            receiver = await client.receiver("q")
            assert (await receiver.wait(6.0)) is False
            assert client.is_usable


async def test_a_broker_that_ends_lets_go_of_idle_clients_over_tls(tmp_path):
    trusted = tmp_path / "trusted.pem"
    with broker.run("contoso") as one, broker.run("contoso-dr") as other:
        trusted.write_text("".join(side.certificate.read_text() for side in (one, other)))
        clients = []
        for side in (one, other):
            side.create_queue("q")
            client = BulkConnection(
                host="127.0.0.1", port=side.port, timeout=10,
                credential=KEY,
                ssl_context=ssl.create_default_context(cafile=str(trusted)),
            )  # fmt: skip
            await (await client.sender("q")).close()
            clients.append(client)
    for client in clients:
        while client.is_usable:  # until the event loop sees the end of the connection
            await runtime.sleep(0.01)
        await client.close()


async def test_a_connection_that_closed_with_credit_out_is_given_nothing_more(
    ns, queue, connection
):
    gone = BulkConnection(ns.connection_string, timeout=10)
    receiver = await gone.receiver(queue)
    with gone.mux.condition:
        LongPoll(receiver)  # credit is out
    await gone.close()  # without a word about its link
    await (await connection.sender(queue)).send_batch([message(1)])
    (one,) = await (await connection.receiver(queue)).receive(1, max_wait=5)
    assert one.delivery_count == 0
