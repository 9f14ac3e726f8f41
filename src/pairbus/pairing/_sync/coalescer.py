# generated from src/pairbus/pairing/_async/coalescer.py by tools/gen_unasync.py; edit that one
"""Sends single messages that wait for the same link as one list, and answers each caller.

The decisions are in `pairbus.pairing.core.coalescing`. A list is sent by a task or thread of its
own, not by one of the callers: so each caller keeps its own deadline, and one that is cancelled or
interrupted does not affect the others.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.envelope.sdk import annotated
from pairbus.exceptions import twin
from pairbus.pairing._sync.connection import Connection
from pairbus.pairing.core.coalescing import Coalescing, Single, choose
from pairbus.pairing.outgoing import rough_size
from pairbus.pairing.runtime import spawn
from pairbus.pairing.sdk.senders import UnwantedError
from pairbus.pairing.turns import Lock, Request, Turn, TurnTimeoutError

logger = logging.getLogger("pairbus.link")

_PARTITION_KEYS = (
    b"x-opt-partition-key",
    "x-opt-partition-key",
    b"x-opt-via-partition-key",
    "x-opt-via-partition-key",
)


def single_of(what: Any, size: int = 0) -> Single | None:
    """How `what` can be coalesced; None if it is a list or a batch."""
    if not isinstance(what, ServiceBusMessage | AmqpAnnotatedMessage):
        return None
    raw = annotated(what)
    session = raw.properties.group_id if raw.properties is not None else None
    annotations = raw.annotations or {}
    partition = tuple(annotations.get(name) for name in _PARTITION_KEYS)
    return Single((session, partition), size or rough_size(what))


@dataclass(frozen=True, slots=True)
class Sharing:
    """The settings by which the sends of one link are coalesced.

    Args:
        state: Whether the entity's sends are coalesced, shared by all links to it.
        is_answer: Whether an error shows that the service refused the list: it is neither an
            outage nor a busy service.
        count: Records an accepted list in the ledger, by the sizes of its messages.
    """

    state: Coalescing
    is_answer: Callable[[Exception], bool]
    count: Callable[[Sequence[int]], None]


Transmit = Callable[[Any, float], None]


class Coalescer:
    """The lists of one link.

    Args:
        lock: The turns on the link.
        sharing: How the link's sends are coalesced.
        connection: Knows how many bytes the service takes in one send.
    """

    def __init__(self, lock: Lock, sharing: Sharing, connection: Connection) -> None:
        self._lock = lock
        self._sharing = sharing
        self._connection = connection

    def release(self, turn: Turn, transmit: Transmit) -> None:
        """Pass the turn on: to a task, if the next sends can go as a list, else to the next send.

        `transmit` sends over the link, for the owner of the turn. (It is not stored: a link that
        the application drops must be freed without a garbage collection.)
        """
        if self._lock.has(turn) and self._next_list():
            try:
                spawn(self._run, turn, transmit, name=f"pairbus lists {self._connection.name}")
            except RuntimeError as error:
                logger.debug("no task for the lists of %s: %r", self._connection.name, error)
            else:
                return
        self._lock.release(turn)

    def _next_list(self) -> list[Request]:
        """The requests that go as the next list; none if the next send goes alone."""
        if not self._sharing.state.is_allowed:
            return []
        waiting = self._lock.waiting()
        limit = self._connection.batch_limit
        singles = [turn.single if isinstance(turn, Request) else None for turn in waiting]
        chosen = (waiting[position] for position in choose(singles, limit))
        return [turn for turn in chosen if isinstance(turn, Request)]

    def _run(self, turn: Turn, transmit: Transmit) -> None:
        """Take the turn over from its owner, and send lists until the next send goes alone."""
        own = Turn()
        if not self._lock.hand(turn, own):
            return  # the owner was interrupted after it started this task, and released the turn
        try:
            while group := self._lock.take(self._next_list()):
                try:
                    self._send(group, transmit)
                finally:
                    # Requests without an answer are left only if this task is cancelled: whether
                    # the service has their messages is not known.
                    interrupted = TurnTimeoutError("The send was interrupted.", was_sent=True)
                    self._answer(group, interrupted)
        finally:
            self._lock.release(own)

    def _send(self, group: Sequence[Request], transmit: Transmit) -> None:
        group = [request for request in group if self._is_wanted(request)]
        if not group:
            return
        deadline = max(request.deadline for request in group)
        try:
            transmit([request.what for request in group], deadline)
        except Exception as error:  # noqa: BLE001  # each caller decides
            if not self._sharing.is_answer(error):
                self._answer(group, error)
                return
            self._sharing.state.refused(by_service=isinstance(error, ServiceBusError))
            logger.debug("%s refused a list; sending one by one: %r", self._connection.name, error)
        else:
            self._sent(group)
            return
        for request in group:
            if request.is_over or not self._is_wanted(request):
                continue
            try:
                transmit(request.what, request.deadline)
            except Exception as error:  # noqa: BLE001  # the caller decides
                self._answer([request], error)
            else:
                self._sent([request])

    def _is_wanted(self, request: Request) -> bool:
        if request.wanted is None or request.wanted():
            return True
        self._answer([request], UnwantedError())
        return False

    def _sent(self, group: Sequence[Request]) -> None:
        self._sharing.count([request.single.size for request in group if request.single])
        for request in group:
            self._lock.answer(request, True)

    def _answer(self, group: Sequence[Request], error: Exception) -> None:
        """Give each request that has no answer yet an error of its own."""
        for request in group:
            if request.answer is None:
                self._lock.answer(request, error)
                error = twin(error)
