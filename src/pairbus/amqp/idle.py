"""Heartbeats, and giving up on a silent peer (part 2, section 2.4.5)."""

from __future__ import annotations


class IdleTimer:
    """Knows when a heartbeat is due and when the peer has been silent for too long.

    It reads no clock. The connection sets `has_received` and `has_sent`, and the next `update`
    counts them as activity of that moment.
    """

    __slots__ = ("_heartbeat_interval", "_last_received", "_last_sent", "_timeout",
                 "has_received", "has_sent")  # fmt: skip

    def __init__(self, timeout: float | None) -> None:
        """Set up the timer.

        Args:
            timeout: seconds of silence after which the peer counts as gone; None: never.
        """
        self._timeout = timeout
        self._last_received: float | None = None
        self._last_sent: float | None = None
        self.has_received = False
        self.has_sent = False
        self._heartbeat_interval: float | None = None

    def request_heartbeats(self, idle_time_out: int | None) -> None:
        """Take the idle-time-out of the peer's open, in milliseconds."""
        if idle_time_out:
            # A third, because data sent just after one update is only noticed at the next one.
            self._heartbeat_interval = idle_time_out / 3000

    def stop_heartbeats(self) -> None:
        """Send no more heartbeats: our close is sent."""
        self._heartbeat_interval = None

    def update(self, now: float) -> None:
        """Record the activity since the last update."""
        if self.has_received or self._last_received is None:
            self.has_received = False
            self._last_received = now
        if self.has_sent or self._last_sent is None:
            self.has_sent = False
            self._last_sent = now

    def is_peer_silent(self, now: float) -> bool:
        """Return whether the peer has been silent for the whole timeout."""
        return (
            self._timeout is not None
            and self._last_received is not None
            and now - self._last_received >= self._timeout
        )

    def is_heartbeat_due(self, now: float) -> bool:
        """Return whether a heartbeat must be sent now; the next interval begins if so."""
        if self._heartbeat_interval is None or self._last_sent is None:
            return False
        if now - self._last_sent < self._heartbeat_interval:
            return False
        self._last_sent = now
        return True

    def next_deadline(self) -> float | None:
        """Return when to update next; None if there is nothing to wait for."""
        deadlines = []
        if self._timeout is not None and self._last_received is not None:
            deadlines.append(self._last_received + self._timeout)
        if self._heartbeat_interval is not None and self._last_sent is not None:
            deadlines.append(self._last_sent + self._heartbeat_interval)
        return min(deadlines, default=None)
