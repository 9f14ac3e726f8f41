"""What the source, the sink and the keeper do on the wire, on the connections of this process.

Here is what happens when a connection breaks: what can be repeated is repeated, what cannot is told
as an outcome. A broken secondary never fails a task: the queue counts as quiet, and the doorbell
finds out when it is back.
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from pairbus.client.errors import (
    ConnectionLostError,
    LeanError,
    LinkDetachedError,
    OperationTimeoutError,
    RequestFailedError,
)
from pairbus.client.receiver import Mode
from pairbus.client.sender import Posted
from pairbus.names import namespace_or_host, parse_connection_string
from pairbus.spark.options import Target
from pairbus.syphon.connections import Pool, open_connection
from pairbus.syphon.deliverer import Outcome
from pairbus.syphon.orphaned_locks import Look, look_at

__all__ = ["BacklogSide", "Browser", "Receiving", "Sends", "Settles", "check", "namespace_of"]

log = logging.getLogger("pairbus.syphon")
T = TypeVar("T")

TOKENS = 1000
ENVELOPE = 1024  # what a batch says of itself
LOST = "amqp:connection:forced"
_BROKEN = (ConnectionLostError, LinkDetachedError, OperationTimeoutError)


def namespace_of(target: Target) -> str:
    """The first label of the namespace's host, or the host where it is an address."""
    text = target.connection_string()
    return namespace_or_host(parse_connection_string(text).authority if text else target.host)


def check(target: Target, entity: str, timeout: float = 10.0) -> LeanError | None:
    """Try to get in: None, or what stood in the way."""
    try:
        with open_connection(target, timeout) as connection:
            connection.connect()
            connection.authorize(entity, connection.deadline())
    except LeanError as exc:
        return exc
    return None


class Receiving:
    """The reader's side.

    Args:
        target: the namespace.
        delete: whether what is received is gone.
        ordered: whether a receive that breaks off must not be tried again: what was handed out and
            did not arrive is locked, and the next ones would pass it.
    """

    def __init__(self, target: Target, delete: bool = False, *, ordered: bool = False) -> None:
        self._pool = Pool(target, "reader")
        self._mode = Mode.RECEIVE_AND_DELETE if delete else Mode.PEEK_LOCK
        self._backlog = BacklogSide(target, "reader")
        self._ordered = ordered
        self.namespace = namespace_of(target)
        self.failed = False  # the last receive found out nothing about the queue
        self.broke_off = False  # more may have been handed out than it gave

    def receive(self, queue: str, count: int, size: int) -> list[tuple[bytes | None, bytes]]:
        """What is there now; nothing where the queue cannot be read."""
        self.failed = self.broke_off = False
        for attempt in (0, 1):
            asked = False
            try:
                receiver = self._pool.receiver(queue, self._mode)
                asked = True
                got = receiver.take_now(count, size)
            except LeanError as exc:
                self._pool.forget_receiver(queue)
                if attempt or (asked and self._ordered):
                    log.warning("%s: not read: %s", queue, exc.condition)
                    self.failed = str(exc.condition) != "amqp:not-found"
                    self.broke_off = asked and self.failed
                    return []
            else:
                self.broke_off = receiver.broke_off
                if self.broke_off:
                    self._pool.forget_receiver(queue)
                if self._mode is Mode.RECEIVE_AND_DELETE:
                    return [(None, payload) for _, payload in got]
                return list(got)
        return []

    def give_back(self, queue: str, tokens: Sequence[bytes]) -> bool:
        """Abandon locks, in this order; False if the queue could not be asked to."""
        return self._backlog.give_back(queue, tokens)


class Browser:
    """Looks at messages without touching them."""

    def __init__(self, target: Target, role: str) -> None:
        self._pool = Pool(target, role)

    def peek(self, entity: str, first: int, count: int) -> list[bytes]:
        """Messages from this sequence number on."""
        try:
            found = self._pool.management(entity).peek(first, count)
        except _BROKEN:
            self._pool.drop()
            found = self._pool.management(entity).peek(first, count)
        return [one.payload for one in found]


class Sends:
    """The primary, for the deliverer."""

    def __init__(self, target: Target, timeout: float) -> None:
        self._pool = Pool(target, "writer", timeout=timeout)
        self._timeout = timeout
        self._refused: dict[str, Outcome] = {}

    def limit(self, destination: str) -> int:
        """Most bytes of one batch; where the link cannot be had, sending will tell."""
        try:
            return self._pool.sender(destination).max_batch_bytes - ENVELOPE
        except LeanError as exc:
            self._refused[destination] = _outcome(exc)
            return 1 << 20

    def send(self, jobs: Sequence[tuple[str, Sequence[bytes]]]) -> list[Outcome]:
        """One batch to each of several destinations, all in flight at once."""
        answers: list[Outcome | Posted] = []
        for destination, messages in jobs:
            refused = self._refused.pop(destination, None)
            if refused is not None:
                answers.append(refused)
                continue
            try:
                answers.append(self._pool.sender(destination).post(messages))
            except LeanError as exc:
                answers.append(_outcome(exc))
        return [self._answer(one) for one in answers]

    def _answer(self, answer: Outcome | Posted) -> Outcome:
        if isinstance(answer, Outcome):
            return answer
        for outcome in answer.wait(self._timeout):
            if outcome.error is not None:
                return _outcome(outcome.error)
        return Outcome()


def _outcome(error: LeanError) -> Outcome:
    lost = isinstance(error, ConnectionLostError)
    busy = str(error.condition) == "com.microsoft:server-busy"
    return Outcome(LOST if lost and not busy else str(error.condition), error.description or "")


class BacklogSide:
    """The secondary, for the keeper and for whoever settles or gives back."""

    def __init__(self, target: Target, role: str = "keeper", *, patience: float = 5.0) -> None:
        self._pool = Pool(target, role)
        self._patience = patience

    def settle(
        self,
        queue: str,
        tokens: Sequence[bytes],
        how: str,
        reason: str = "",
        description: str = "",
        *,
        patience: float = 20.0,
    ) -> int:
        """Settle by lock token; how many of the locks were lost already.

        A secondary that cannot be reached is tried again for `patience` seconds; after that the
        locks end by themselves, and the messages come again.
        """
        lost = self._settle(queue, tokens, how, reason, description, patience)
        return len(tokens) if lost is None else lost

    def _settle(
        self,
        queue: str,
        tokens: Sequence[bytes],
        how: str,
        reason: str,
        description: str,
        patience: float,
    ) -> int | None:
        """How many of the locks were lost; None if it could not be asked, for some at least."""
        ids = list(tokens)
        groups = [ids[i : i + TOKENS] for i in range(0, len(ids), TOKENS)]

        def ask(some: Sequence[Sequence[bytes]]) -> list[LeanError | None]:
            return self._pool.management(queue).settle_each(
                some, how, reason or None, description or None
            )

        answers = self._again(lambda: ask(groups), patience)
        if answers is None:
            log.warning("%s: %d messages not settled, they will come again", queue, len(ids))
            return None
        lost = 0
        for group, error in zip(groups, answers, strict=True):
            if error is None:
                continue
            if len(group) == 1:
                lost += 1
                continue
            # One lost lock may have kept the others from being settled: each by itself.
            alone = self._again(lambda: ask([[token] for token in group]), patience)  # noqa: B023
            if alone is None:
                return None
            lost += sum(one is not None for one in alone)
        return lost

    def give_back(self, queue: str, tokens: Sequence[bytes]) -> bool:
        """Abandon locks, in this order; False if the queue could not be asked to."""
        try:
            for i in range(0, len(tokens), TOKENS):
                if (
                    self._settle(queue, tokens[i : i + TOKENS], "abandoned", "", "", self._patience)
                    is None
                ):
                    return False
        except LinkDetachedError as exc:
            if str(exc.condition) != "amqp:not-found":
                raise
        return True

    def renew(self, queue: str, tokens: Sequence[bytes]) -> dict[bytes, float]:
        """Renew locks: until when each lasts now; a lock that was lost is left out."""
        until: dict[bytes, float] = {}

        def ask(some: Sequence[bytes]) -> None:
            ends = self._pool.management(queue).renew(some)
            until.update(zip(some, (end / 1000 for end in ends), strict=True))

        pending = [list(tokens[i : i + TOKENS]) for i in range(0, len(tokens), TOKENS)]
        while pending:
            some = pending.pop()
            try:
                self._again(lambda: ask(some), self._patience)  # noqa: B023
            except RequestFailedError:
                if len(some) > 1:  # one lost lock fails the request for all
                    half = len(some) // 2
                    pending += [some[:half], some[half:]]
        return until

    def is_empty(self, queue: str) -> bool | None:
        """Whether there is no message at all, locked ones included; None if that is not known."""
        try:
            found = self._again(lambda: self._pool.management(queue).peek(0, 1), self._patience)
        except LeanError as exc:
            if str(exc.condition) == "amqp:not-found":
                return True
            log.warning("%s: cannot be browsed: %s", queue, exc.condition)
            return None
        return None if found is None else not found

    def look(self, queue: str, after: int, known: Collection[int]) -> Look | None:
        """Whether messages are locked that nobody knows of; None if it could not be asked."""
        try:
            return self._again(
                lambda: look_at(
                    self._pool.receiver(queue), self._pool.management(queue), after, known
                ),
                self._patience,
            )
        except LeanError as exc:
            if str(exc.condition) == "amqp:not-found":
                return Look(True)
            log.warning("%s: cannot be looked at: %s", queue, exc.condition)
            return None

    def _again(self, action: Callable[[], T], patience: float) -> T | None:
        """Do it; where the connection breaks, on a new one; None when patience is at its end."""
        deadline = time.monotonic() + patience
        delay = 0.1
        while True:
            try:
                return action()
            except _BROKEN as exc:
                if str(exc.condition) == "amqp:not-found":
                    raise
                self._pool.drop()
                if time.monotonic() + delay > deadline:
                    log.warning("secondary: %s", exc.condition)
                    return None
                time.sleep(delay)
                delay = min(2.0, delay * 2)


class Settles(BacklogSide):
    """The secondary, for the deliverer."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, "settler")
