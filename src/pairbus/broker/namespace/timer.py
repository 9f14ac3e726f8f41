"""Sets the event loop's timer to the next deadline of a namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pairbus.broker.entities.messages import NEVER

LONGEST = 1.0  # seconds: read the clock this often, because it may be set


class DeadlineTimer:
    """One timer for all deadlines: lock ends, schedules, expiries, idle entities.

    Args:
        deadline: the soonest time at which something is due, in milliseconds.
        now: the time in milliseconds.
        tick: performs the actions that are due.
    """

    def __init__(
        self, deadline: Callable[[], int], now: Callable[[], int], tick: Callable[[], None]
    ) -> None:
        self._deadline = deadline
        self._now = now
        self._tick = tick
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._due = NEVER

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run on this loop."""
        self._loop = loop
        self.update()

    def stop(self) -> None:
        """Cancel the timer."""
        self._loop = None
        self._cancel()

    def update(self) -> None:
        """Set the timer to the next deadline, which may have changed."""
        if self._loop is None:
            return
        due = self._deadline()
        if due == self._due and self._handle is not None:
            return
        self._cancel()
        self._due = due
        if due != NEVER:
            delay = max(0, due - self._now()) / 1000
            self._handle = self._loop.call_later(min(delay, LONGEST), self._fire)

    def _cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        try:
            if self._now() >= self._due:
                self._tick()
        finally:
            self.update()
