"""The secondary: settle, return and renew by lock token, peek, and find orphaned locks.

Idempotent requests are retried on a new connection for some seconds. If the result is still unknown
after that, the caller gets None.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from pairbus.client.errors import (
    ClientError,
    ConnectionLostError,
    LinkDetachedError,
    OperationTimeoutError,
)
from pairbus.client.received import Received
from pairbus.runtime import AsyncRuntime
from pairbus.syphon._async.connections import NamespaceConnections
from pairbus.syphon._async.fetching import Fetched, fetch
from pairbus.syphon.orphaned_locks import Inspection
from pairbus.syphon.refusals import CREDENTIAL_FAILED
from pairbus.syphon.settlement import DEFER

__all__ = ["BROKEN", "MISSING", "BacklogQueues"]

log = logging.getLogger("pairbus.syphon")
T = TypeVar("T")

TOKENS = 1000  # in one request
PEEKS = 100  # at most, in one inspection
BROKEN = (ConnectionLostError, LinkDetachedError, OperationTimeoutError)
MISSING = "amqp:not-found"
#: Refusals of a settlement or renewal that say nothing about the locks, and may pass in seconds.
TRANSIENT = frozenset(
    (
        "com.microsoft:server-busy",
        "com.microsoft:timeout",
        "com.microsoft:operation-cancelled",
        "amqp:internal-error",
        CREDENTIAL_FAILED,
    )
)
#: Those that last: they are repeated once.
LASTING = frozenset(
    ("com.microsoft:entity-disabled", "com.microsoft:auth-failed", "amqp:unauthorized-access")
)


class BacklogQueues:
    """The backlog queues, for the coordinator and the parts that settle or return messages.

    Args:
        runtime: clock and sleep.
        connections: the connection to the secondary.
        patience: seconds for which a broken connection is retried.
    """

    def __init__(
        self, runtime: AsyncRuntime, connections: NamespaceConnections, *, patience: float = 5.0
    ) -> None:
        self._runtime = runtime
        self._connections = connections
        self._patience = patience

    async def settle(
        self,
        queue: str,
        tokens: Sequence[bytes],
        how: str,
        reason: str = "",
        description: str = "",
        *,
        patience: float = 20.0,
    ) -> int | None:
        """Settle by lock token.

        A secondary that cannot be reached, or refuses for a reason that says nothing about the
        locks, is retried for `patience` seconds; after that the locks expire by themselves, and the
        messages are delivered again.

        Returns how many of the locks were lost (all of a queue that does not exist any more); None
        if that is unknown for some of them.
        """
        ids = list(tokens)
        pending = [ids[i : i + TOKENS] for i in range(0, len(ids), TOKENS)]
        refused: list[list[bytes]] = []

        async def ask() -> bool:
            """Settle the pending groups; those that were answered are not pending any more."""
            nonlocal pending
            management = self._connections.management(queue)
            answers = await management.settle_each(
                pending, how, reason or None, description or None
            )
            unknown: list[tuple[list[bytes], ClientError]] = []
            for group, error in zip(pending, answers, strict=True):
                if error is not None and _is_unknown(error):
                    unknown.append((group, error))
                elif error is not None:
                    refused.append(group)
            pending = [group for group, _ in unknown]
            if unknown:
                raise unknown[0][1]
            return True

        try:
            is_answered = await self._retry(ask, patience, TRANSIENT | LASTING)
            if is_answered:
                # One lost lock may have prevented the settlement of the others: settle each alone.
                pending = [[token] for group in refused if len(group) > 1 for token in group]
                refused = [group for group in refused if len(group) == 1]
                is_answered = not pending or await self._retry(ask, patience, TRANSIENT | LASTING)
        except LinkDetachedError:  # others are retried: the queue does not exist
            return len(ids)
        if not is_answered:
            log.warning("%s: %d messages were not settled; their locks expire", queue, len(ids))
            return None
        return len(refused)

    async def abandon(self, queue: str, tokens: Sequence[bytes]) -> int | None:
        """Abandon messages, in this order.

        Returns how many were still locked; None if the queue could not be reached.
        """
        done = 0
        for i in range(0, len(tokens), TOKENS):
            some = tokens[i : i + TOKENS]
            lost = await self.settle(queue, some, "abandoned", patience=self._patience)
            if lost is None:
                return None
            done += len(some) - lost
        return done

    async def defer(self, queue: str, tokens: Sequence[bytes]) -> bool:
        """Defer messages by lock token; False if some of them may still be locked."""
        return await self.settle(queue, tokens, DEFER, patience=self._patience) == 0

    async def fetch(self, queue: str, numbers: Sequence[int]) -> Fetched:
        """Receive deferred messages by their sequence numbers, in this order."""

        async def abandon(tokens: Sequence[bytes]) -> bool:
            return await self.abandon(queue, tokens) is not None

        try:
            management = self._connections.management(queue)
        except ClientError as exc:
            log.warning("%s: deferred messages not received: %s", queue, exc.condition)
            return Fetched(broke_off=True)
        return await fetch(management, abandon, numbers)

    async def browse(self, queue: str, first: int, count: int = 250) -> list[Received] | None:
        """Return messages from a sequence number on; None if the queue cannot be asked."""
        nothing: list[Received] = []
        return await self._ask(queue, lambda: self._peek(queue, first, count), nothing)

    async def renew(self, queue: str, tokens: Sequence[bytes]) -> dict[bytes, float | None]:
        """Renew locks: when each expires now; None for a lock that was lost.

        A lock is left out if the queue could not be asked to renew it: it may still be locked.
        """
        until: dict[bytes, float | None] = {}

        async def ask(some: Sequence[bytes]) -> None:
            ends = await self._connections.management(queue).renew(some)
            until.update(zip(some, (end / 1000 for end in ends), strict=True))

        pending = [list(tokens[i : i + TOKENS]) for i in range(0, len(tokens), TOKENS)]
        while pending:
            some = pending.pop()
            try:
                await self._retry(lambda: ask(some), self._patience)  # noqa: B023 - called before the next
            except ClientError as exc:
                if _is_unknown(exc):
                    log.warning("%s: locks were not renewed: %s", queue, exc.condition)
                elif len(some) > 1 and str(exc.condition) != MISSING:
                    half = len(some) // 2  # one lost lock fails the request for all
                    pending += [some[:half], some[half:]]
                else:
                    until |= dict.fromkeys(some)
        return until

    async def is_empty(self, queue: str) -> bool | None:
        """Whether there is no message, locked ones included; None if that is not known."""
        found = await self.browse(queue, 0, 1)
        return None if found is None else not found

    async def inspect(self, queue: str, after: int, known: Collection[int]) -> Inspection | None:
        """Check for unknown locked messages; None if the queue could not be reached.

        Args:
            queue: the queue.
            after: consider messages after this sequence number only.
            known: sequence numbers of messages that the syphon itself holds.
        """
        clean = Inspection(True)
        return await self._ask(queue, lambda: self._inspect(queue, after, known), clean)

    async def _ask(self, queue: str, action: Callable[[], Awaitable[T]], missing: T) -> T | None:
        """Return the answer to a request.

        It is `missing` if there is no such queue, and None if the queue cannot be asked.
        """
        try:
            return await self._retry(action, self._patience)
        except ClientError as exc:
            if str(exc.condition) == MISSING:
                return missing
            log.warning("%s: cannot be peeked or received from: %s", queue, exc.condition)
            return None

    async def _inspect(self, queue: str, after: int, known: Collection[int]) -> Inspection:
        receiver = await self._connections.receiver(queue)
        first, size, lock = None, None, None
        got = await receiver.receive_now(1)
        if got:
            first, size = got[0].sequence_number, len(got[0].payload)
            if got[0].locked_until is not None:
                lock = got[0].locked_until / 1000 - self._runtime.time()
            await receiver.settle(got, "released")  # waits: the next reader must find it
            if first <= after or got[0].delivery_count:
                # It was handed out before and is back; others behind it may still be locked.
                return Inspection(False, lock, size)
        number, count = after + 1, 1
        for peeks in range(1, PEEKS + 1):
            found = await self._peek(queue, number, count)
            for one in found:
                if first is not None and one.sequence_number >= first:
                    return Inspection(True, lock, size, peeks)
                if one.sequence_number not in known and not one.facts.get("state"):
                    return Inspection(False, lock, size, peeks)
                number = one.sequence_number + 1
            if not found:
                return Inspection(True, lock, size, peeks)
            count = 250
        return Inspection(False, lock, size, PEEKS)

    async def _peek(self, queue: str, first: int, count: int) -> list[Received]:
        return await self._connections.management(queue).peek(first, count)

    async def _retry(
        self,
        action: Callable[[], Awaitable[T]],
        patience: float,
        transient: Collection[str] = (),
    ) -> T | None:
        """Perform a request, and retry it on a new connection if the connection broke.

        It is also retried if it is refused with one of the `transient` conditions, but only once
        with one of those that last. Returns None if `patience` seconds were not enough. There are
        at least two attempts: a connection that was lost without a reset uses up the patience, and
        a new one may work.
        """
        deadline = self._runtime.monotonic() + patience
        delay = 0.1
        is_first = True
        while True:
            try:
                return await action()
            except ClientError as exc:
                is_broken = isinstance(exc, BROKEN)
                condition = str(exc.condition)
                if condition == MISSING or not (is_broken or condition in transient):
                    raise
                if is_broken:
                    await self._connections.drop()
                is_late = self._runtime.monotonic() + delay > deadline
                if not is_first and (is_late or condition in LASTING):
                    log.warning("a request to the secondary failed: %s", exc.condition)
                    return None
                is_first = False
                await self._runtime.sleep(delay)
                delay = min(2.0, delay * 2)


def _is_unknown(error: ClientError) -> bool:
    """Whether the answer does not say if a lock is lost: the request may be repeated."""
    condition = str(error.condition)
    return condition in TRANSIENT | LASTING or (isinstance(error, BROKEN) and condition != MISSING)
