"""The staged changes of one group, as plain tuples.

Entities append; the committer takes the whole journal once per turn of the event loop and hands it
to the store as one transaction. Within a group the store applies ``entities`` first, then
``inserts``, ``updates``, ``bodies``, ``deletes`` and last ``purges``: a message is inserted before
it is changed, and changed before it is deleted, and identifiers are never used again, so this order
is correct for any sequence of operations.

A message's row identifier is its queue's number and its sequence number in one integer, so that a
queue is one range of the table's key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pairbus.broker.entities.message_store import MessageStore
    from pairbus.broker.entities.messages import StoredMessage

SEQUENCE_BITS = 40
"""Enough for 10**12 messages in each of eight million queues."""

MessageRow = tuple[
    int,  # id
    int,  # state
    int,  # enqueued_time
    int,  # due: expires_at, or when to enqueue while scheduled
    int,  # delivery_count
    int,  # size
    int,  # enqueued_sequence_number
    "int | None",  # ttl
    int,  # flags: durable | priority << 1 | hops << 9
    "str | None",  # session_id
    "str | None",  # dead_letter_source
    "bytes | None",  # annotations
    "bytes | None",  # bare
]


class Journal:
    """The changes of one group."""

    def __init__(self) -> None:
        self.entities: list[tuple[str, tuple[Any, ...]]] = []
        self.inserts: list[MessageRow] = []
        self.size = 0
        """Bytes of the messages in ``inserts``."""
        self.updates: list[tuple[int, int, int, int]] = []
        """``(state, due, delivery_count, id)``"""
        self.deletes: list[int] = []
        self.purges: list[tuple[str, tuple[Any, ...]]] = []
        self.bodies: list[tuple[bytes, int, int]] = []
        """``(bare, size, id)`` of messages whose properties changed."""
        self.arrivals: list[tuple[MessageStore, list[StoredMessage]]] = []
        """Messages that become visible once the group is durable."""
        self.numbers: list[tuple[int, int]] = []
        """``(queue, number)``: the queue may use sequence numbers up to this one."""
        self.callbacks: list[Callable[[Exception | None], None]] = []
        """Called after the arrivals; with the error when the group failed."""

    def __bool__(self) -> bool:
        """Whether there is something to commit; numbers alone can wait for the next group."""
        return bool(
            self.inserts
            or self.deletes
            or self.updates
            or self.callbacks
            or self.arrivals
            or self.entities
            or self.purges
            or self.bodies
        )

    @property
    def only_sends(self) -> bool:
        """Whether only new messages are staged, which can be withdrawn if the commit fails."""
        return not (self.deletes or self.updates or self.bodies or self.purges) and all(
            kind == "remember" for kind, _ in self.entities
        )
