"""Why pairbus uses the SDK as it does: facts about the SDK, and what is made of them."""

import socket
import threading
import time

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityPairedNamespaceOptions, broker, pair_namespace
from pairbus.pairing.sdk import wire

pytestmark = [
    pytest.mark.sdk,
    pytest.mark.slow,
    # The SDK leaves the socket of a connection that was reset to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

DEAF = (
    "Endpoint=sb://127.0.0.1:{};SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
)


@pytest.fixture(scope="module")
def pair():
    with (
        broker.run(namespace="contoso") as primary,
        broker.run(namespace="backup") as secondary,
        secondary.admin_client() as admin,
    ):
        primary.create_queue("orders")
        client = pair_namespace(
            ServiceBusClient.from_connection_string(primary.connection_string),
            SendAvailabilityPairedNamespaceOptions(
                secondary=ServiceBusClient.from_connection_string(secondary.connection_string),
                secondary_admin=admin,
                primary_namespace="contoso",
                backlog_queue_count=1,
                send_timeout=5,
            ),
        )
        with client, client.get_queue_sender("orders") as sender:
            yield primary, sender


def test_socket_timeout_does_not_bound_the_sdks_handshake():
    """So links are opened on a thread that can be left behind, and whose connection is cut."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        text = DEAF.format(deaf.getsockname()[1])
        with ServiceBusClient.from_connection_string(
            text, retry_total=0, try_timeout=0.2
        ) as client:
            sender = client.get_queue_sender("orders", socket_timeout=0.2)
            ended = threading.Event()

            def open_it():
                try:
                    sender.__enter__()
                except Exception:
                    pass
                ended.set()

            threading.Thread(target=open_it, daemon=True).start()
            assert not ended.wait(1.5), "the SDK has learnt to give up: see senders.disable_retries"
            wire.hang_up(sender)
            assert ended.wait(60), "cutting the connection brings the thread back"


def test_healthy_send_stays_on_the_callers_own_thread(pair):
    _, sender = pair
    sender.send_messages(ServiceBusMessage("opens"))
    sdk_sender = sender._primary.connection.sender  # noqa: SLF001 - watches the SDK object below the sender
    threads = []
    send = sdk_sender.send_messages

    def recording(*args, **kwargs):
        threads.append(threading.current_thread())
        return send(*args, **kwargs)

    sdk_sender.send_messages = recording
    try:
        sender.send_messages(ServiceBusMessage("a"))
        sender.send_messages([ServiceBusMessage("b")])
    finally:
        del sdk_sender.send_messages

    assert threads == [threading.current_thread()] * 2


def test_send_that_must_renew_its_token_runs_where_it_can_be_left_behind(pair):
    _, sender = pair
    sender.send_messages(ServiceBusMessage("opens"))
    assert sender._primary.connection.ready.holds()  # noqa: SLF001 - watches the SDK object below the sender
    ready = sender._primary.connection.ready  # noqa: SLF001 - watches the SDK object below the sender
    authenticator = ready.authenticator
    authenticator._expires_on = int(time.time()) + authenticator._refresh_window - 5  # noqa: SLF001 - watches the SDK object below the sender
    ready.expires_on, ready.good_until = authenticator._expires_on, 0.0  # noqa: SLF001 - watches the SDK object below the sender
    threads = []
    refresh = authenticator.update_token

    def recording():
        threads.append(threading.current_thread())
        return refresh()

    authenticator.update_token = recording
    sender.send_messages(ServiceBusMessage("with a new token"))

    assert threads
    assert threads[0] is not threading.current_thread()
    sender.send_messages(ServiceBusMessage("quick again"))
    assert sender._primary.connection.ready.holds()  # noqa: SLF001 - watches the SDK object below the sender
