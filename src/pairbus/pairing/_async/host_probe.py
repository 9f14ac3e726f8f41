"""Checks whether a host that does not answer on an open link answers on a second connection.

If an open link goes silent, the cause may be a slow entity, a half-open connection, or a host that
is unavailable. The deadline of the send would show it, but only after half a minute. A second
connection shows it sooner: if the host does not answer that one either, the host is unavailable; if
it answers in any way, the send continues to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from azure.servicebus.aio import ServiceBusSender

from pairbus.exceptions import twin
from pairbus.pairing._async.link import Link
from pairbus.pairing.runtime import AEvent, AGuard


class HostProbe:
    """Opens second connections to one host: one at a time, for all links that ask.

    Args:
        name: The host's name in errors.
        open_timeout: How long a host may take to answer, in seconds.
        is_outage: Whether an error of the second connection is evidence of an outage.
    """

    def __init__(
        self, name: str, open_timeout: float, is_outage: Callable[[Exception], bool]
    ) -> None:
        self._name = name
        self._open_timeout = open_timeout
        self._is_outage = is_outage
        self._guard = AGuard()
        self._current: _Probe | None = None

    async def failure(self, make: Callable[[], ServiceBusSender]) -> Exception | None:
        """Why the host cannot be reached; None if it can, or if that is not known."""
        with self._guard:
            probe = self._current
            if probe is None:
                own = self._current = _Probe()
        if probe is not None:
            await probe.ended.wait(2 * self._open_timeout)
            return twin(probe.failure) if probe.failure is not None else None
        link = Link(make, f"second connection to {self._name}", open_timeout=self._open_timeout)
        try:
            await link.open(deadline=monotonic() + self._open_timeout)
        except Exception as error:  # noqa: BLE001  # any answer will do
            if self._is_outage(error):
                own.failure = error
        finally:
            self._current = None
            own.ended.set()
            link.discard()
        return own.failure


class _Probe:
    """A second connection that is being opened, and its result."""

    def __init__(self) -> None:
        self.ended = AEvent()
        self.failure: Exception | None = None
