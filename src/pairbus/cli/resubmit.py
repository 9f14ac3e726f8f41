"""Puts dead letters of a backlog queue back into it.

Through the lean client, which moves messages as the bytes that they are: the SDK would not keep the
AMQP types of the aliases, and the syphon would refuse the message again.
"""

from pairbus.amqp.message import Message
from pairbus.client import LeanConnection
from pairbus.monitoring.configuration import Endpoint

DEAD_LETTER_PROPERTIES = {"DeadLetterReason", "DeadLetterErrorDescription"}
PAGE = 100


def resubmit(
    secondary: Endpoint, path: str, wanted: set[int] | None
) -> tuple[list[int], list[int]]:
    """Move dead letters back; None means all. Return the numbers moved and those not found.

    A dead letter is completed after the backlog queue took its copy. Those that are not wanted stay
    locked until the end, so that the next page reaches what is behind them, and are then released.
    """
    done: list[int] = []
    kept = []
    with connect(secondary) as connection:
        dead = f"{path}/$DeadLetterQueue"
        receiver = connection.receiver(dead)
        sender = connection.sender(path)
        while page := receiver.receive_now(PAGE, 4 << 20):
            chosen = [m for m in page if wanted is None or m.sequence_number in wanted]
            kept += [m for m in page if m not in chosen]
            for message in chosen:
                sender.send(cleaned(message.payload))
                receiver.complete([message])
                done.append(message.sequence_number or 0)
            if wanted is not None and wanted <= set(done):
                break
        if kept:
            receiver.release(kept)
    return done, sorted((wanted or set()) - set(done))


def connect(endpoint: Endpoint) -> LeanConnection:
    """A lean connection to a namespace."""
    if endpoint.is_connection_string:
        return LeanConnection(endpoint.value)
    return LeanConnection(host=endpoint.host, credential=endpoint.load_credential())


def cleaned(payload: bytes) -> bytes:
    """The message as it was before it was dead-lettered."""
    message = Message.parse(payload)
    properties = dict(message.application_properties or {})
    for name in DEAD_LETTER_PROPERTIES:
        properties.pop(name, None)
    return message.replace(
        delivery_annotations=None, message_annotations=None, application_properties=properties
    ).encode()
