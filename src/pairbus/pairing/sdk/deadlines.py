"""Deadlines for sends that run on the caller's own thread or in its own task.

There are two variants, as in `pairbus.pairing.runtime`: `_async` uses `AWatch`, `_sync` uses
`Watch`. Every send to a healthy primary passes here, so what a send needs is written out: calling
a `KeepingOpen` as a context costs half a percent of the SDK's own send.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any, Final

from pairbus.pairing.runtime import close_dropped
from pairbus.pairing.sdk.contract import CLOSE_HANDLER
from pairbus.pairing.sdk.senders import KeepingOpen
from pairbus.pairing.sdk.wire import hang_up

logger = logging.getLogger("pairbus.tasks")

_CLOSE: Final = CLOSE_HANDLER.name


class AWatch:
    """Bounds a send in the running task: the event loop cancels it at the deadline.

    As `asyncio.timeout`, but with one timer for many sends: a new timer for each would cost more
    than the rest. The timer of the first send stays set; when it fires, it checks whether a send is
    under way and when that one is due.

    Args:
        patience: How long a send may go without an answer, in seconds, before `on_silence`.
        on_silence: Called once for a send that has no answer by then; None for never.
    """

    def __init__(
        self, patience: float = math.inf, on_silence: Callable[[], None] | None = None
    ) -> None:
        self._patience = patience if on_silence is not None else math.inf
        self._on_silence = on_silence
        self._quiet_at = math.inf  # when to report that there is no answer; inf: done, or never
        self._deadline = 0.0
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._has_fired = False
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # when the timer fires, in monotonic seconds
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(
        self,
        sender: Any,
        what: Any,
        deadline: float,
        left: float,
        keeping: KeepingOpen | None = None,
    ) -> None:
        """Send `what` before `deadline`, in monotonic seconds, which is `left` seconds away.

        `keeping` is the context for calls of `sender`, if it has one.

        Raises:
            TimeoutError: at the deadline.
        """
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._deadline = deadline
        self._cancelling = task.cancelling()
        self._quiet_at = quiet_at = deadline - left + self._patience
        due = self._due
        if deadline < due or quiet_at < due or task.get_loop() is not self._loop:
            self._set_timer(task.get_loop())
        if keeping is not None:
            keeping.caller = task
            setattr(sender, _CLOSE, keeping.close_unless_called)
        try:
            await sender.send_messages(what, timeout=left)
        except asyncio.CancelledError as error:
            if self._has_fired and self._uncancel(task):
                raise TimeoutError from error
            raise
        finally:
            self._task = None
            if keeping is not None:
                delattr(sender, _CLOSE)
                keeping.caller = None
            if self._has_fired:
                self._uncancel(task)

    def _uncancel(self, task: asyncio.Task[Any]) -> bool:
        """Undo the cancellation at the deadline; return whether it was the only one."""
        self._has_fired = False
        return task.uncancel() <= self._cancelling

    def give_up(self) -> bool:
        """End the send whose silence was reported; False if it has ended."""
        if self._task is None or self._quiet_at < math.inf or self._has_fired:
            return False
        self._has_fired = True
        self._task.cancel()
        return True

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop = loop
        self._due = min(self._deadline, self._quiet_at)
        self._timer = loop.call_later(self._due - time.monotonic(), self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._due = None, math.inf
        task, loop = self._task, self._loop
        if task is None or loop is None or self._has_fired:
            return  # the next send sets it again; a send that was given up is ending
        now = time.monotonic()
        if now < self._deadline:
            if now >= self._quiet_at and self._on_silence is not None:
                self._quiet_at = math.inf
                self._on_silence()
            self._set_timer(loop)
            return
        self._has_fired = True
        task.cancel()


class Watch:
    """Bounds a send on the caller's own thread.

    The SDK's `timeout=` bounds the wait for the answer. Where the SDK waits for something else, one
    watchdog thread cuts the connection a moment after the deadline, and the send fails. A send
    pays three assignments for it.

    Args:
        patience: How long a send may go without an answer, in seconds, before `on_silence`.
        on_silence: Called once for a send that has no answer by then; None for never.
    """

    __slots__ = ("__weakref__", "deadline", "on_silence", "patience", "quiet_at", "sender")

    def __init__(
        self, patience: float = math.inf, on_silence: Callable[[], None] | None = None
    ) -> None:
        self.patience = patience if on_silence is not None else math.inf
        self.on_silence = on_silence
        self.quiet_at = math.inf  # when to report that there is no answer; inf: done, or never
        self.deadline = 0.0
        self.sender: object = None
        _watchdog.add(self)

    def send(
        self,
        sender: Any,
        what: Any,
        deadline: float,
        left: float,
        keeping: KeepingOpen | None = None,
    ) -> None:
        """Send `what` before `deadline`, in monotonic seconds, which is `left` seconds away.

        `keeping` is the context for calls of `sender`, if it has one.
        """
        self.deadline = deadline
        self.quiet_at = deadline - left + self.patience
        self.sender = sender
        try:
            if keeping is None:
                sender.send_messages(what, timeout=left)
                return
            keeping.caller = get_ident()
            setattr(sender, _CLOSE, keeping.close_unless_called)
            try:
                sender.send_messages(what, timeout=left)
            finally:
                delattr(sender, _CLOSE)
                keeping.caller = None
        finally:
            self.sender = None

    def give_up(self) -> bool:
        """End the send whose silence was reported; False if it has ended."""
        sender = self.sender
        if sender is None or self.quiet_at < math.inf:
            return False
        hang_up(sender)
        return True


class _Watchdog:
    """One thread for all watches of the process, as long as there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def add(self, watch: Watch) -> None:
        with self._lock:
            self._watches.add(watch)
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="pairbus-watchdog", daemon=True)
        thread.start()
        self._thread = thread  # not before: if it cannot be started, the next watch tries again

    def _run(self) -> None:
        while True:
            time.sleep(0.5)
            with self._lock:
                watches = list(self._watches)
                if not watches:
                    self._thread = None
            try:
                close_dropped()  # also when the last watch is gone
                _check(watches, time.monotonic())
            except Exception:  # such as a thread that cannot be started
                logger.exception("a send or a dropped sender could not be checked")
            if not watches:
                return
            del watches  # keep no watch alive through the next sleep


def _check(watches: Iterable[Watch], now: float) -> None:
    """Report sends that are silent, and cut the connections of those past their deadline."""
    for watch in watches:
        sender = watch.sender
        if sender is not None and watch.on_silence is not None and watch.quiet_at < now:
            watch.quiet_at = math.inf
            watch.on_silence()
        if sender is not None and watch.deadline + 0.5 < now:
            logger.debug("a send outlived its deadline; cutting its connection")
            hang_up(sender)


_watchdog = _Watchdog()


def reset() -> None:
    """Start with no watches in a forked process: those of the parent are the parent's."""
    global _watchdog
    _watchdog = _Watchdog()
