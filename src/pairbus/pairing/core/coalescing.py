"""Decides which waiting sends go as one list, and how to handle a refused list.

A sender has one send under way at a time, so a hundred tasks on one sender wait for a hundred round
trips. Single messages that wait together are sent as one list instead. The service takes a list as
a whole or not at all, and only if all its messages belong to one partition: so only messages with
equal session id and partition key share a list. Lists and batches of the application are sent as
they are, and nothing overtakes them.

A list can be refused because of one message in it, or because the entity takes no lists. Then its
messages are sent one by one, in order, and each caller gets its own answer. The entity's sends are
not coalesced again, because each refused list costs an additional round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_BYTES = 192 * 1024  # three quarters of the Standard tier's limit: sizes are estimates
MAX_MESSAGES = 500


@dataclass(frozen=True, slots=True)
class Single:
    """A single message that waits: its session id and partition key, and its size, about."""

    key: object
    size: int


@dataclass(slots=True)
class Coalescing:
    """Whether sends to one entity are coalesced; all links to the entity share it."""

    is_allowed: bool = True

    def refused(self, *, by_service: bool) -> None:
        """A list was refused: by the service, or by the SDK because of an argument."""
        if by_service:
            self.is_allowed = False


def choose(waiting: Sequence[Single | None], limit: int = 0) -> list[int]:
    """The positions in the queue of the sends that go as one list; none if there would be one.

    Args:
        waiting: The sends that wait, in order; None for one that cannot be coalesced.
        limit: How many bytes the entity takes in one send; 0 if that is not known.

    The first send of the queue is always among them, so none waits for ever. Messages with another
    key are passed over: between sessions, and between partitions, there is no order.
    """
    first = waiting[0] if waiting else None
    if first is None:
        return []
    room = min(MAX_BYTES, limit * 3 // 4 or MAX_BYTES)
    chosen: list[int] = []
    for position, single in enumerate(waiting):
        if single is None or len(chosen) == MAX_MESSAGES:
            break
        if single.key != first.key:
            continue
        room -= single.size
        if room < 0:
            break
        chosen.append(position)
    return chosen if len(chosen) > 1 else []
