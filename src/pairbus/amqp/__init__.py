"""An AMQP 1.0 engine: pure, without I/O, for both ends of a connection.

`Connection` speaks the protocol, `Message` reads and edits messages, `encode` and `decode` are the
type system. Nothing here touches a socket, a clock or a log.
"""

from pairbus.amqp.codec import decode, encode, skip
from pairbus.amqp.connection import Connection, Role
from pairbus.amqp.errors import AmqpError, ProtocolError
from pairbus.amqp.link import Link, Outgoing
from pairbus.amqp.message import (
    BATCH_FORMAT,
    Header,
    Message,
    Properties,
    join_batch,
    split_batch,
)
from pairbus.amqp.session import Session

__all__ = [
    "BATCH_FORMAT",
    "AmqpError",
    "Connection",
    "Header",
    "Link",
    "Message",
    "Outgoing",
    "Properties",
    "ProtocolError",
    "Role",
    "Session",
    "decode",
    "encode",
    "join_batch",
    "skip",
    "split_batch",
]
