"""Counts the pings and probes that are under way, so that a closing client can wait for them.

The SDK's client closes all of its senders, including one that another thread is opening. That
thread then fails inside the SDK, and the close may wait for an answer that the thread has already
read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from pairbus.pairing.runtime import AEvent


class Attempts:
    """The attempts of one paired client that run in the background."""

    def __init__(self) -> None:
        self._ends: set[AEvent] = set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count an attempt while the block runs."""
        end = AEvent()
        self._ends.add(end)
        try:
            yield
        finally:
            self._ends.discard(end)
            end.set()

    async def wait(self, seconds: float) -> None:
        """Wait until all attempts that are under way have ended, at most `seconds`."""
        deadline = monotonic() + seconds
        for end in list(self._ends):
            await end.wait(deadline - monotonic())
