"""Calls that wait before they connect to the secondary again; the first success wakes the others.

While the secondary is unreachable, every sender of the client tries to connect to it. Without
coordination, a hundred senders would spend the processor on refused connections, and each would
notice the end of the outage only after its own wait.
"""

from __future__ import annotations

from pairbus.pairing.runtime import AEvent, AGuard


class Reconnecting:
    """The waiting calls of one paired client."""

    def __init__(self) -> None:
        self.waiting = 0
        self._connected = AEvent()
        self._guard = AGuard()

    async def wait(self, seconds: float) -> None:
        """Wait at most `seconds`, or until another call has connected."""
        with self._guard:
            self.waiting += 1
            connected = self._connected
        try:
            await connected.wait(seconds)
        finally:
            with self._guard:
                self.waiting -= 1

    def connected(self) -> None:
        """A call has connected: wake those that wait."""
        with self._guard:
            connected, self._connected = self._connected, AEvent()
        connected.set()
