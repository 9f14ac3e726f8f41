# generated from src/pairbus/syphon/_async/primary_probe.py by tools/gen_unasync.py; edit that one
"""Detect that an unreachable primary is available again: connect to it, which costs no operation.

Without the probe the coordinator would notice only when its back-off ends, up to a minute later, by
reading a message and sending it.
"""

import logging
from collections.abc import Awaitable, Callable

from pairbus.runtime import Runtime, Task
from pairbus.syphon.state import StateDirectory

__all__ = ["PrimaryProbe"]

log = logging.getLogger("pairbus.syphon")

PROBE_EVERY = 0.2  # seconds
REMOTE_PROBE_EVERY = 0.5  # where each look at the state is a request
AFTER_FAILURE = 2.0  # a credential that fails is not asked more often


class PrimaryProbe:
    """Connects to the primary while the syphon waits for it.

    Args:
        runtime: clock and background task.
        state: has the end of the wait; the time of a successful probe is written to it.
        is_reachable: connects to the primary and authorizes.
    """

    def __init__(
        self,
        runtime: Runtime,
        state: StateDirectory,
        is_reachable: Callable[[], bool],
    ) -> None:
        self._runtime = runtime
        self._state = state
        self._is_reachable = is_reachable
        self._stop = runtime.event()
        self._task: Task | None = None

    def start(self) -> None:
        """Probe in the background."""
        self._task = self._runtime.spawn(self._run, name="pairbus-primary-probe")

    def close(self) -> None:
        """Stop probing."""
        self._stop.set()
        if self._task is not None:
            self._task.join(timeout=5)

    def probe(self) -> bool:
        """If the syphon waits for the primary, check whether it can be reached, and record it.

        Returns False if the credential or the state failed, so that nothing is known.
        """
        try:
            is_waiting = self._state.blocked().primary_until > self._runtime.time()
            if is_waiting and self._is_reachable():
                self._state.write_reachable(self._runtime.time())
        except Exception as exc:  # noqa: BLE001 - the credential or the state: try again later
            log.debug("the primary cannot be probed: %s", type(exc).__name__)
            return False
        return True

    def _run(self) -> None:
        every = REMOTE_PROBE_EVERY if self._state.is_remote else PROBE_EVERY
        wait = every
        while not self._stop.wait(wait):
            wait = every if self.probe() else AFTER_FAILURE
