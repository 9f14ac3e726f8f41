"""Receive and browse on executors.

A receive that fails raises nothing: it leaves its reason, and the reader decides whether the task
fails.
"""

import logging
from collections.abc import Callable, Sequence

from pairbus.client.errors import SERVER_BUSY, ClientError, OperationTimeoutError
from pairbus.client.settlement import Mode
from pairbus.syphon._async.backlog import BROKEN, MISSING
from pairbus.syphon._async.connections import NamespaceConnections

__all__ = ["Browser", "QueueReceiver"]

log = logging.getLogger("pairbus.syphon")


class QueueReceiver:
    """Receives the messages that are available in a queue.

    Args:
        connections: the connection to the namespace.
        deletes: receive and delete instead of peek-lock.
        is_ordered: do not retry a receive that broke off: messages that were handed out and did not
            arrive are locked, and a retry would get newer ones.
    """

    def __init__(
        self, connections: NamespaceConnections, *, deletes: bool = False, is_ordered: bool = False
    ) -> None:
        self._connections = connections
        self._mode = Mode.RECEIVE_AND_DELETE if deletes else Mode.PEEK_LOCK
        self._is_ordered = is_ordered
        self.deletes = deletes
        self.problem: str | None = None  # of the last receive; also that the queue does not exist
        self.has_failed = False  # the last receive failed: whether the queue is empty is unknown
        self.broke_off = False  # more may have been handed out than the last receive returned
        self.is_busy = False  # the namespace answered server-busy

    async def receive(
        self, queue: str, count: int, size: int, before: Callable[[], None] = lambda: None
    ) -> list[tuple[bytes | None, bytes]]:
        """Return lock tokens and payloads of the available messages; none if the receive failed.

        `before` is called when the link is open, immediately before messages are requested: opening
        it may take long. If `before` raises, nothing is requested.
        """
        self.has_failed = self.broke_off = self.is_busy = False
        self.problem = None
        for attempt in (0, 1):
            asked = False
            try:
                receiver = await self._connections.receiver(queue, self._mode)
                before()
                asked = True
                got = await receiver.take_now(count, size)
            except ClientError as exc:
                if isinstance(exc, OperationTimeoutError):
                    await self._connections.drop()  # it may be half open: nothing will ever come
                else:
                    await self._connections.forget_receiver(queue)
                self.problem = f"{exc.condition}: {exc.description}"
                if str(exc.condition) == SERVER_BUSY:
                    # The request was refused as a whole: nothing was handed out for it.
                    self.is_busy = self.has_failed = True
                    return []
                if attempt or (asked and self._is_ordered):
                    self.has_failed = str(exc.condition) != MISSING
                    if self.has_failed:
                        log.warning("%s: cannot be received from: %s", queue, exc.condition)
                    self.broke_off = asked and self.has_failed
                    return []
            else:
                self.broke_off = receiver.broke_off
                self.problem = "the connection was lost" if self.broke_off else None
                if self.broke_off:
                    await self._connections.forget_receiver(queue)
                if self._mode is Mode.RECEIVE_AND_DELETE:
                    return [(None, payload) for _, payload in got]
                return list(got)
        return []


class Browser:
    """Browses messages without changing them."""

    def __init__(self, connections: NamespaceConnections) -> None:
        self._connections = connections

    async def peek(self, entity: str, first: int, count: int) -> Sequence[bytes]:
        """Return encoded messages from this sequence number on."""
        try:
            found = await self._connections.management(entity).peek(first, count)
        except BROKEN:
            await self._connections.drop()
            found = await self._connections.management(entity).peek(first, count)
        return [one.payload for one in found]
