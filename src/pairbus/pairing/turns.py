"""Turns on a link: one user at a time, in the order of arrival, with a deadline.

There are two variants, as in `pairbus.pairing.runtime`: `_async` uses `ALock`, `_sync` uses `Lock`.
Each user takes the lock with its own `Turn`. The current owner can also take a waiting `Request`
out of the queue, send its message and answer it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.pairing.core.coalescing import Single


class TurnTimeoutError(OperationTimeoutError):
    """Other sends on the same link took most of the time until this one's deadline.

    `was_sent` says whether it was on the wire for the rest, so that it may have been stored.
    """

    def __init__(self, message: str, *, was_sent: bool = False) -> None:
        super().__init__(message=message)
        self.was_sent = was_sent


class Turn:
    """One user of a lock; it exists as long as the frame that created it."""

    __slots__ = ("__weakref__",)


class Request(Turn):
    """A send that waits for its turn, and that may share a list with others.

    Attributes:
        what: The message, list or batch to send.
        single: How it can be coalesced; None if it cannot.
        deadline: When its caller stops waiting, in monotonic seconds.
        wanted: Whether it must still be sent.
        taken_at: When it was taken out of the queue to be sent with others; 0 if it was not.
        answer: Its result: True if it was sent, an error, or None if that is not known.
        is_over: Whether its caller has stopped waiting.
    """

    __slots__ = ("answer", "deadline", "is_over", "single", "taken_at", "wanted", "what")

    def __init__(
        self, what: Any, single: Single | None, deadline: float, wanted: Callable[[], bool] | None
    ) -> None:
        self.what = what
        self.single = single
        self.deadline = deadline
        self.wanted = wanted
        self.taken_at = 0.0
        self.answer: Exception | bool | None = None
        self.is_over = False


class ALock:
    """One task at a time, in the order of arrival; waiting for it has a deadline.

    Unlike `asyncio.Lock` it can be taken without a coroutine if it is free: `now()` says whether it
    was. It is handed to the first waiter, so nobody is overtaken.

    Attributes:
        waiters: Those that wait for the lock, in order.
    """

    def __init__(self) -> None:
        self._owner: object = None
        self.waiters: deque[tuple[object, asyncio.Future[bool]]] = deque()
        self._taken: dict[object, asyncio.Future[bool]] = {}

    def now(self, turn: object) -> bool:
        """Take the lock if it is free."""
        if self._owner is None:
            self._owner = turn
        return self._owner is turn

    async def acquire(self, turn: object, deadline: float) -> bool:
        """Take the lock, if it is free before `deadline`, in monotonic seconds.

        False means that the deadline has passed, or that the request was answered.
        """
        if self.now(turn):
            return True
        loop = asyncio.get_running_loop()
        handed: asyncio.Future[bool] = loop.create_future()
        self.waiters.append((turn, handed))
        timer = loop.call_later(max(0.0, deadline - time.monotonic()), _decide, handed, False)
        try:
            return await handed
        finally:
            timer.cancel()

    def has(self, turn: object) -> bool:
        """Whether `turn` has the lock."""
        return self._owner is turn

    def release(self, turn: object) -> None:
        """Release the lock if `turn` has it, or hand it to the first waiter."""
        if self._owner is not turn:
            return
        while self.waiters:
            self._owner, handed = self.waiters.popleft()
            if _decide(handed, True):
                return
        self._owner = None

    abandon = release  # a task that is cancelled while it waits has a future that is done

    def hand(self, turn: object, other: object) -> bool:
        """Hand the lock from `turn`, if that has it, to `other`."""
        if self._owner is turn:
            self._owner = other
        return self._owner is other

    def waiting(self) -> list[object]:
        """The turns that wait for the lock, in order."""
        return [turn for turn, handed in self.waiters if not handed.done()]

    def take(self, requests: Collection[Request]) -> list[Request]:
        """Take these requests out of the queue, to answer them; returns those that still wait."""
        chosen = set(requests)
        kept: deque[tuple[object, asyncio.Future[bool]]] = deque()
        taken: list[Request] = []
        for turn, handed in self.waiters:
            if turn in chosen and not handed.done():
                turn.taken_at = time.monotonic()
                self._taken[turn] = handed
                taken.append(turn)
            else:
                kept.append((turn, handed))
        self.waiters = kept
        return taken

    def answer(self, request: Request, answer: Exception | bool) -> None:
        """Give a request that was taken its result."""
        request.answer = answer
        _decide(self._taken.pop(request), False)


def _decide(turn: asyncio.Future[bool], answer: bool) -> bool:
    if turn.done():
        return False
    turn.set_result(answer)
    return True


class Lock:
    """One thread at a time, in the order of arrival; waiting for it has a deadline.

    The lock is taken by one assignment, and holds its owner weakly. So a signal handler that raises
    (KeyboardInterrupt, a soft time limit) at any line leaves no lock behind: either the owner's
    `finally` releases it, or the owner's turn is gone with its frame, and the next user takes it.

    Attributes:
        waiters: Those that wait for the lock, in order.
    """

    def __init__(self) -> None:
        self._owner: weakref.ref[Turn] | None = None
        self.waiters: deque[tuple[weakref.ref[Turn], threading.Event]] = deque()
        self._taken: dict[Request, threading.Event] = {}
        self._guard = threading.Lock()

    def now(self, turn: Turn) -> bool:
        """Take the lock if it is free."""
        with self._guard:
            if self._owner is None or self._owner() is None:
                self._owner = weakref.ref(turn)
                return True
            return False

    def acquire(self, turn: Turn, deadline: float) -> bool:
        """Take the lock, if it is free before `deadline`, in monotonic seconds.

        False means that the deadline has passed, or that the request was answered.
        """
        if self.now(turn):
            return True
        waiter = (weakref.ref(turn), threading.Event())
        self.waiters.append(waiter)
        try:
            while True:
                left = deadline - time.monotonic()
                # In slices: an owner that is gone wakes nobody.
                waiter[1].wait(max(0.0, min(left, 0.25)))
                is_over = waiter[1].is_set()  # read first: it may be handed the lock at any line
                if self.has(turn):
                    return True
                if not is_over and self.now(turn):
                    return not waiter[1].is_set()  # set: it was answered in the meantime
                if left <= 0 or is_over:
                    return False
        finally:
            with contextlib.suppress(ValueError):
                self.waiters.remove(waiter)

    def has(self, turn: Turn) -> bool:
        """Whether `turn` has the lock."""
        owner = self._owner
        return owner is not None and owner() is turn

    def release(self, turn: Turn) -> None:
        """Release the lock if `turn` has it, or hand it to the first waiter."""
        with self._guard:
            owner = self._owner
            if owner is None or owner() is not turn:
                return
            self._owner = None
            if not self.waiters:
                return
            with contextlib.suppress(IndexError):  # the last of them may give up meanwhile
                while self._owner is None:
                    owner, handed = self.waiters.popleft()
                    if owner() is not None:
                        self._owner = owner
                        handed.set()

    def abandon(self, turn: Turn) -> None:
        """As `release`, for a user that was interrupted: it may also still be in the queue."""
        for waiter in list(self.waiters):
            if waiter[0]() is turn:
                with contextlib.suppress(ValueError):
                    self.waiters.remove(waiter)
        self.release(turn)

    def hand(self, turn: Turn, other: Turn) -> bool:
        """Hand the lock from `turn`, if that has it, to `other`."""
        with self._guard:
            if self.has(turn):
                self._owner = weakref.ref(other)
            return self.has(other)

    def waiting(self) -> list[Turn | None]:
        """The turns that wait for the lock, in order; None for one that no longer exists."""
        return [turn() for turn, _ in list(self.waiters)]

    def take(self, requests: Collection[Request]) -> list[Request]:
        """Take these requests out of the queue, to answer them; returns those that still wait."""
        chosen = set(requests)
        taken: list[Request] = []
        with self._guard:
            for waiter in list(self.waiters):
                request = waiter[0]()
                if request not in chosen:
                    continue
                request.taken_at = time.monotonic()  # before the caller can see that it is gone
                try:
                    self.waiters.remove(waiter)
                except ValueError:
                    continue  # its caller stopped waiting in this moment
                self._taken[request] = waiter[1]
                taken.append(request)
        return taken

    def answer(self, request: Request, answer: Exception | bool) -> None:
        """Give a request that was taken its result."""
        request.answer = answer
        self._taken.pop(request).set()
