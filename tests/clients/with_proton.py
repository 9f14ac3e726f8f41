# mypy: ignore-errors
"""Qpid Proton as a client: `python with_proton.py SCENARIO`, settings in the environment."""

import os
import sys

from proton import ConnectionException, Message, SSLDomain
from proton.utils import BlockingConnection

HOST, QUEUE = os.environ["HOST"], os.environ["QUEUE"]
KEY_NAME, KEY = os.environ["KEY_NAME"], os.environ["KEY"]


def connect(scheme: str = "amqp", password: str = KEY) -> BlockingConnection:
    domain = None
    if scheme == "amqps":
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(os.environ["CERTIFICATE"])
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER)  # it knows no addresses
    return BlockingConnection(
        f"{scheme}://{HOST}",
        timeout=20,
        user=KEY_NAME,
        password=password,
        ssl_domain=domain,
        allowed_mechs="PLAIN",
        sasl_enabled=True,
        allow_insecure_mechs=True,
    )


def exchange(scheme: str) -> None:
    connection = connect(scheme)
    sender = connection.create_sender(QUEUE)
    sender.send(Message(body="one", properties={"n": 1}, subject="s"))
    sender.send(Message(body={"two": 2}))
    receiver = connection.create_receiver(QUEUE, credit=2)
    first = receiver.receive(timeout=20)
    assert (first.body, first.properties, first.subject) == ("one", {"n": 1}, "s"), first
    assert first.id, "a message without an id gets one"
    assert first.annotations["x-opt-sequence-number"] > 0
    receiver.accept()
    second = receiver.receive(timeout=20)
    assert second.body == {"two": 2}, second
    receiver.accept()
    connection.close()


def wrong_key() -> None:
    try:
        connect(password="wrong")
    except ConnectionException:
        return
    raise AssertionError("a wrong key was accepted")


SCENARIOS = {
    "plain": lambda: exchange("amqp"),
    "plain_over_tls": lambda: exchange("amqps"),
    "wrong_key": wrong_key,
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()
