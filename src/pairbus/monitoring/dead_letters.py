"""Resubmits dead letters of a backlog queue.

With the bulk client, which copies messages byte for byte: the SDK would not keep the AMQP types of
the aliases, and the syphon would refuse the message again.
"""

from pairbus.amqp.message import Message
from pairbus.monitoring.endpoints import Endpoint

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
    with secondary.bulk_connection() as connection:
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


def cleaned(payload: bytes) -> bytes:
    """Return the message without what dead-lettering added."""
    message = Message.parse(payload)
    properties = dict(message.application_properties or {})
    for name in DEAD_LETTER_PROPERTIES:
        properties.pop(name, None)
    return message.replace(
        delivery_annotations=None, message_annotations=None, application_properties=properties
    ).encode()
