# generated from tests/client/_async/test_connection.py by tools/gen_unasync.py; edit that one
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
from pairbus.client._sync.receiver import LongPoll
from pairbus.client import BulkConnection
from pairbus.runtime import ThreadRuntime
from tests.client.support import KEY, message

runtime = ThreadRuntime()


def test_nobody_listening_is_a_lost_connection():
    with socket.socket() as bound:  # it does not listen, and keeps the port from others
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        client = BulkConnection(
            host="127.0.0.1", port=port, tls=False, credential=SasKey("a", "b"), timeout=2
        )
        with pytest.raises(ConnectionLostError) as caught:
            client.connect()
        assert caught.value.condition == "amqp:socket-error"
        with pytest.raises(ConnectionLostError):
            client.sender("q")


def test_peer_that_says_nothing_is_timed_out():
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        client = BulkConnection(
            host="127.0.0.1", port=port, tls=False, credential=SasKey("a", "b"), timeout=0.05
        )
        with pytest.raises(ConnectTimeoutError) as caught:
            client.sender("q")
        assert caught.value.condition == "com.microsoft:timeout"
        assert not client.is_usable


def test_broken_connection_is_told_to_everybody():
    with broker.run(memory=True) as ns:
        ns.create_queue("q")
        client = BulkConnection(ns.connection_string, timeout=10)
        receiver, sender = client.receiver("q"), client.sender("q")
        seen = []

        def wait():
            try:
                receiver.wait(30)
            except ConnectionLostError as exc:
                seen.append(exc)

        waiter = runtime.spawn(wait, name="waiter")
        runtime.run_blocking(ns.kill)
        assert waiter.join(60)
        assert seen
        (outcome,) = sender.send_batch([message(1)])
        assert isinstance(outcome.error, ConnectionLostError)
        assert not client.is_usable
        with pytest.raises(ConnectionLostError):
            client.management("q").peek()
        client.close()


def test_encrypted_connection(ns, queue):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    client = BulkConnection(
        host="127.0.0.1", port=ns.port, tls=True, ssl_context=context, timeout=10,
        credential=KEY,
    )  # fmt: skip
    with client:
        sender = client.sender(queue)
        outcomes = sender.send_batch([message(n, 5000) for n in range(400)])
        assert all(outcome.is_accepted for outcome in outcomes)
        assert len((client.receiver(queue)).receive_now(400)) == 400


def test_untrusted_certificate_is_refused(ns):
    client = BulkConnection(host="127.0.0.1", port=ns.port, credential=SasKey("a", "b"), timeout=5)
    with pytest.raises(ConnectionLostError):
        client.connect()


def test_many_users_share_a_connection(connection, queue):
    sender, receiver = connection.sender(queue), connection.receiver(queue)
    failures = []

    def send(worker):
        for n in range(20):
            outcomes = sender.send_batch([message(f"{worker}-{n}")])
            failures.extend(o.error for o in outcomes if not o.is_accepted)

    for task in [runtime.spawn(send, n, name="sender") for n in range(4)]:
        assert task.join(60)
    assert not failures
    assert len(receiver.receive_now(1000)) == 80


def test_detached_link_is_told_and_others_go_on(ns, connection, queue):
    sender = connection.sender(queue)
    other = connection.receiver(queue)
    with ns.faults.detach("com.microsoft:entity-disabled", entity=queue):
        (outcome,) = sender.send_batch([message(1)])
    assert isinstance(outcome.error, LinkDetachedError)
    assert outcome.error.condition == "com.microsoft:entity-disabled"
    assert sender.is_detached
    (outcome,) = sender.send_batch([message(1)])
    assert isinstance(outcome.error, LinkDetachedError)
    assert (other.receive_now(1)) == []
    assert ((connection.sender(queue)).send_batch([message(1)]))[0].is_accepted


def test_closed_connection_carries_the_peers_condition(ns, queue):
    with BulkConnection(ns.connection_string, timeout=10) as client:
        sender = client.sender(queue)
        with ns.faults.close("amqp:internal-error", entity=queue):
            (outcome,) = sender.send_batch([message(1)])
        assert isinstance(outcome.error, ConnectionLostError)
        assert outcome.error.condition == "amqp:internal-error"


def test_link_that_is_closed_cannot_be_used(connection, queue):
    receiver = connection.receiver(queue)
    receiver.close()
    receiver.close()
    with pytest.raises(LinkDetachedError):
        receiver.receive_now(1)
    management = connection.management(queue)
    management.peek()
    management.close()
    assert (connection.management(queue).peek()) == []


@pytest.mark.slow
def test_heartbeats_keep_a_long_poll_alive_in_both_directions():
    with broker.run(memory=True, limits=Limits(idle_timeout=5.0)) as ns:
        ns.create_queue("q")
        with BulkConnection(ns.connection_string, idle_time_out=5.0, timeout=10) as client:
            receiver = client.receiver("q")
            assert (receiver.wait(6.0)) is False
            assert client.is_usable


def test_a_broker_that_ends_lets_go_of_idle_clients_over_tls(tmp_path):
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
            (client.sender("q")).close()
            clients.append(client)
    for client in clients:
        while client.is_usable:  # until the event loop sees the end of the connection
            runtime.sleep(0.01)
        client.close()


def test_a_connection_that_closed_with_credit_out_is_given_nothing_more(
    ns, queue, connection
):
    gone = BulkConnection(ns.connection_string, timeout=10)
    receiver = gone.receiver(queue)
    with gone.mux.condition:
        LongPoll(receiver)  # credit is out
    gone.close()  # without a word about its link
    (connection.sender(queue)).send_batch([message(1)])
    (one,) = (connection.receiver(queue)).receive(1, max_wait=5)
    assert one.delivery_count == 0
