"""Fences: messages by which a paired client learns that its backlog has been delivered.

A client with `recovery="drain_first"` puts a fence into a backlog queue behind its last message for
one destination. The syphon does not forward a fence. When every earlier message of that queue for
that destination has been delivered, it sends an *answer* to the reply queue of the pair, which has
sessions: each client receives the session that is named after it.

| field             | fence                               | answer                  |
|-------------------|-------------------------------------|-------------------------|
| content-type      | `application/vnd.pairbus.fence`     | `...fence-answer`       |
| message-id        | the fence's id                      | a new one               |
| correlation-id    |                                     | the fence's id          |
| to                | the destination                     | the destination         |
| reply-to-group-id | the client's session                |                         |
| group-id          |                                     | the client's session    |
| subject           |                                     | the syphon that answers |

A fence has no `x-ms-path`: a syphon that knows no fences dead-letters it (`NoDestination`) instead
of forwarding an empty message to the application's consumers.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.errors import ProtocolError
from pairbus.amqp.types import Symbol, UInt
from pairbus.envelope.cutting import PROPERTIES, sections

FENCE_CONTENT_TYPE: Final = "application/vnd.pairbus.fence"
ANSWER_CONTENT_TYPE: Final = "application/vnd.pairbus.fence-answer"
#: An operator's order to stop waiting: `to` is the entity, the session is the client's.
RELEASE_CONTENT_TYPE: Final = "application/vnd.pairbus.fence-release"
#: The time to live of an answer: a client that has ended never receives it.
ANSWER_SECONDS: Final = 86_400

_MESSAGE_ID, _TO, _CONTENT_TYPE, _REPLY_TO_GROUP_ID = 0, 2, 6, 12
_MARK: Final = FENCE_CONTENT_TYPE.encode()


class Fence(NamedTuple):
    """A fence in a backlog queue."""

    id: str
    destination: str
    session: str  # of the client, in the reply queue


def read_fence(message: bytes) -> Fence | None:
    """Return the fence in an encoded message; None if the message is not a fence."""
    if _MARK not in message:
        return None
    try:
        found, _ = sections(message)
        properties = decode(message, found[PROPERTIES][0])[0]
    except (ValueError, LookupError, ProtocolError):
        return None  # no properties, or a message that its sender encoded wrongly
    if not isinstance(properties, list):
        return None
    fields = [*properties, *[None] * 13][:13]
    values = [fields[n] for n in (_MESSAGE_ID, _TO, _REPLY_TO_GROUP_ID)]
    if str(fields[_CONTENT_TYPE]) != FENCE_CONTENT_TYPE or not all(map(_is_text, values)):
        return None
    return Fence(*values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def encode_answer(fence: Fence, *, message_id: str, syphon: str) -> bytes:
    """Return the encoded answer to a fence, for the reply queue.

    Args:
        fence: The fence.
        message_id: A new id.
        syphon: The syphon that answers: with two syphons a client cannot rely on the order.
    """
    properties = [
        message_id, None, fence.destination, syphon, None, fence.id,
        Symbol(ANSWER_CONTENT_TYPE), None, None, None, fence.session,
    ]  # fmt: skip
    return b"".join(
        (
            b"\x00\x53\x70" + encode([True, None, UInt(ANSWER_SECONDS * 1000)]),
            b"\x00\x53\x73" + encode(properties),
            b"\x00\x53\x75" + encode(b""),
        )
    )
