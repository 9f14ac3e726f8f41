"""The Python SDK on uamqp, the C library of the service's older clients (SASL MSSBCBS).

`python with_uamqp.py SCENARIO`, settings in the environment.
"""

import os
import sys

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    TransportType,
)
from azure.servicebus._transport._uamqp_transport import UamqpTransport

QUEUE, SESSIONS = os.environ["QUEUE"], os.environ["SESSIONS"]


def connect() -> ServiceBusClient:
    # uamqp knows no emulator mode: it always speaks TLS, and looks for the broker at the endpoint.
    client = ServiceBusClient.from_connection_string(
        os.environ["CONNECTION_STRING"].replace(";UseDevelopmentEmulator=true", ""),
        uamqp_transport=True,
        custom_endpoint_address=f"sb://{os.environ['HOST']}",
        transport_type=TransportType.Amqp,
        connection_verify=os.environ["CERTIFICATE"],
        retry_total=0,
    )
    assert client._amqp_transport is UamqpTransport  # noqa: SLF001 - the SDK shows its transport nowhere else
    return client


def exchange() -> None:
    with connect() as client:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
            sender.send_messages(ServiceBusMessage("three", application_properties={"n": 3}))
        with client.get_queue_receiver(QUEUE) as receiver:
            found: list[ServiceBusReceivedMessage] = []
            while len(found) < 3:
                found += receiver.receive_messages(max_message_count=3, max_wait_time=10)
            assert [str(message) for message in found] == ["one", "two", "three"]
            receiver.renew_message_lock(found[0])
            for message in found:
                receiver.complete_message(message)
            assert receiver.peek_messages() == []


def sessions() -> None:
    with connect() as client:
        with client.get_queue_sender(SESSIONS) as sender:
            sender.send_messages(ServiceBusMessage("a", session_id="s"))
        with client.get_queue_receiver(SESSIONS, session_id="s") as receiver:
            receiver.session.set_state("state")
            assert receiver.session.get_state() == b"state"
            [message] = receiver.receive_messages(max_wait_time=10)
            receiver.complete_message(message)


SCENARIOS = {
    "exchange": exchange,
    "sessions": sessions,
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()
