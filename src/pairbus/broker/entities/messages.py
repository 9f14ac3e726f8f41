"""Messages of the broker: as they arrive, as they are stored, and as they are delivered.

Times are integers: milliseconds since the Unix epoch, UTC. Everything from the AMQP ``properties``
section on is one opaque ``bare`` byte string, and the sender's message annotations are another, so
that every AMQP type is delivered as it was sent.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypedDict

if TYPE_CHECKING:
    from pairbus.broker.entities.errors import BrokerError

NEVER = 1 << 62
"""A time later than any other: no deadline."""


# States of a stored message; the first three are the values on the wire. They are plain numbers,
# because looking up a member of an enum is slow in Python 3.11.
ACTIVE = 0
DEFERRED = 1
SCHEDULED = 2
LOCKED = 3
LOCKED_DEFERRED = 4  # a deferred message that was fetched by its number
GONE = 5  # settled, expired or moved; indexes that still have it skip it


class Outcome(enum.Enum):
    """How a receiver settles a message it has locked."""

    COMPLETE = "completed"
    ABANDON = "abandoned"  # back to its position, one delivery counted
    RELEASE = "released"  # back to its position, no delivery counted
    DEFER = "defered"  # (sic: the spelling on the wire) received only by its number
    DEAD_LETTER = "suspended"  # to the dead-letter queue


class Details(TypedDict, total=False):
    """What a receiver says about a message that it settles without completing it."""

    reason: str | None
    """Why it is dead-lettered."""
    description: str | None
    """More about the reason."""
    properties: Mapping[str, object] | None
    """Application properties to set."""


@dataclass(slots=True, repr=False, eq=False)
class IncomingMessage:
    """A message as it arrived, with the fields that the broker needs decoded.

    Attributes:
        bare: everything from the ``properties`` section on, untouched.
        annotations: the encoded map of the sender's message annotations, ``b""`` if there is none.
        size: bytes of the whole encoded message, for limits, quotas and billing; 0: of its parts.
        message_id: ``properties.message-id`` as text, or None.
        session_id: ``properties.group-id``, or None.
        partition_key: annotation ``x-opt-partition-key``, or None.
        content_type: ``properties.content-type``, or None.
        ttl: ``header.ttl`` in milliseconds, or None.
        scheduled: annotation ``x-opt-scheduled-enqueue-time`` in milliseconds, or None.
        durable: ``header.durable``.
        priority: ``header.priority``.
        hops: how often it was forwarded.
        origin: its number at the entity that accepted it first; 0: the number here.
    """

    bare: bytes
    _: KW_ONLY
    annotations: bytes = b""
    size: int = 0
    message_id: str | None = None
    session_id: str | None = None
    partition_key: str | None = None
    content_type: str | None = None
    ttl: int | None = None
    scheduled: int | None = None
    durable: bool = False
    priority: int = 4
    hops: int = 0
    origin: int = 0

    def __post_init__(self) -> None:
        if not self.size:
            self.size = len(self.bare) + len(self.annotations)

    def __repr__(self) -> str:
        return f"<IncomingMessage {self.size} bytes>"


@dataclass(slots=True, init=False, repr=False, eq=False)
class StoredMessage:
    """One message in an entity. Links read it to render a delivery; only the entity changes it.

    ``bare`` and ``annotations`` are None while the bytes are only in the store; in a
    :class:`Delivery` they are always set.
    """

    annotations: bytes | None
    bare: bytes | None
    dead_letter_source: str | None
    delivery_count: int
    durable: bool
    enqueued_sequence_number: int
    enqueued_time: int
    expires_at: int
    hops: int  # how often it was forwarded
    lock_token: bytes
    locked_until: int
    priority: int
    sequence_number: int
    session_id: str | None
    size: int
    state: int
    ttl: int | None

    def __repr__(self) -> str:
        return f"<StoredMessage {self.sequence_number} state={self.state}>"


class Delivery(NamedTuple):
    """A message that is delivered to a receiver.

    Attributes:
        lock_token: 16 bytes, the delivery tag and little-endian form of the lock token's GUID;
            ``b""`` without a lock (peek, receive and delete).
        locked_until: when the lock ends, 0 without a lock.
        message: the message to encode: ``bare``, ``annotations`` (the sender's, encoded map or
            ``b""``), ``sequence_number``, ``enqueued_sequence_number``, ``enqueued_time``,
            ``delivery_count`` (0 at the first delivery), ``ttl``, ``durable``, ``priority``,
            ``state`` (1 deferred, 2 scheduled, as ``x-opt-message-state``; else 0),
            ``dead_letter_source``.
    """

    lock_token: bytes
    locked_until: int
    message: StoredMessage

    @property
    def wire_state(self) -> int:
        """The value of ``x-opt-message-state``: 0 active, 1 deferred, 2 scheduled."""
        state = self.message.state
        if state == LOCKED_DEFERRED:
            return DEFERRED
        return state if state in (DEFERRED, SCHEDULED) else ACTIVE


class ReceiverHost(Protocol):
    """Delivers messages of a receiver to its client. All calls are made on the event loop."""

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Send these messages to the client; they are already deducted from the credit.

        Their bytes may be dropped after this returns: encode them before.
        """

    def drained(self) -> None:
        """The requested drain is over: no credit is left and all deliveries were made."""

    def closed(self, error: BrokerError) -> None:
        """The broker ended this receiver: entity deleted or disabled, session lock lost."""


AfterCommit = Callable[[Exception | None], None]
"""Called once with None when everything staged before is durable, or with the error."""
