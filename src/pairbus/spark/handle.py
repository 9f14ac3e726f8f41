"""A running syphon: its controls, its status, its bounds, and the restart of a failed query."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from pairbus.exceptions import SyphonError
from pairbus.runtime import ThreadRuntime
from pairbus.spark.query import deliver, first_line
from pairbus.syphon.lease import EXPIRES_AFTER, RENEW_EVERY
from pairbus.syphon.object_journal import open_journal
from pairbus.syphon.setup import Bounds, Setup
from pairbus.syphon.state import StateDirectory
from pairbus.syphon.status_monitor import StatusMonitor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TAKEN_OVER", "SyphonHandle"]

log = logging.getLogger("pairbus.syphon")

TAKEN_OVER = "another syphon has taken over this state directory"
PEEK_EVERY = 1.0  # seconds between two looks at queues that are not empty
RESTARTS = 5  # of a query that fails again and again without progress


class SyphonHandle:
    """A running syphon."""

    def __init__(
        self,
        setup: Setup,
        state: StateDirectory,
        monitor: StatusMonitor,
        messages: "DataFrame",
        bounds: Bounds,
        close: Callable[[], None],
        renew_lease: Callable[[], bool],
        peeking: Callable[[], AbstractContextManager[Callable[[], bool]]],
    ) -> None:
        self._setup = setup
        self._state = state
        self._monitor = monitor
        self._messages = messages
        self._query = deliver(messages, setup)
        self._bounds = bounds
        self._close = close
        self._renew_lease = renew_lease
        self._peeking = peeking
        self._started, self._began = time.monotonic(), time.time()
        self._leased_at = self._started  # the lease was valid then
        self._journal = open_journal(state.location, ThreadRuntime())
        self._failures = 0  # consecutive, without progress
        self._forwarded = 0
        self._problem = ""  # of the state directory
        self._ended = threading.Event()
        self._stop_asked = threading.Event()
        self.error: SyphonError | None = None
        self._thread = threading.Thread(target=self._watch, name="pairbus-syphon", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<SyphonHandle {self._setup.primary_name} {self.status()['state']}>"

    @property
    def checkpoint(self) -> str:
        """Where controls and status are, without the secrets of a URL."""
        return self._setup.state_shown

    def status(self) -> dict[str, Any]:
        """Return the status, which depends on the progress of the drain."""
        return self._monitor.status(
            is_active=self._is_active(), is_stopped=self._ended.is_set()
        ).to_json()

    def pause(self) -> None:
        """Read nothing more and finish the messages in flight. It survives a restart."""
        self._state.change_controls(paused=True)

    def resume(self) -> None:
        """Continue after a pause."""
        self._state.change_controls(paused=False)

    def limit(
        self,
        *,
        max_messages_per_second: float | None = None,
        max_bytes_per_second: float | None = None,
    ) -> None:
        """Limit the rate; None removes a limit. It survives a restart."""
        self._state.change_controls(
            max_messages_per_second=max_messages_per_second,
            max_bytes_per_second=max_bytes_per_second,
        )

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the syphon has ended: by its bounds, by `stop`, or by a failure (raised)."""
        ended = self._ended.wait(timeout)
        if ended and self.error is not None:
            raise self.error
        return ended

    def wait_until_empty(self, timeout: float | None = None) -> bool:
        """Wait until the backlog queues are empty and no message is in flight.

        The queues are peeked, which needs no right but Listen. A queue that cannot be peeked counts
        as not empty; the reason is logged.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        every = 0.2
        with self._peeking() as is_empty:
            while not self._ended.wait(every):
                with contextlib.suppress(OSError):  # the state cannot be read now: unknown
                    if self._is_idle():
                        if is_empty():
                            return True
                        every = PEEK_EVERY
                if deadline is not None and time.monotonic() > deadline:
                    return False
            if self.error is not None:
                raise self.error
            return is_empty()

    def stop(self, timeout: float = 30.0) -> None:
        """Finish and settle the messages in flight, and end; may be repeated."""
        self._stop_asked.set()
        self._ended.wait(timeout + 10)
        self._thread.join(timeout=5)

    # -- the watching thread

    def _is_active(self) -> bool:
        try:
            status = self._query.status
        except Exception:  # noqa: BLE001 - Spark is going down: then it is not active
            return False
        return bool(status["isTriggerActive"] and status["isDataAvailable"])

    def _is_idle(self) -> bool:
        is_waiting = self._state.progress().waiting or self._state.has_reports()
        return not self._is_active() and not is_waiting

    def _watch(self) -> None:
        has_lease = True
        try:
            while not self._stop_asked.wait(0.25):
                if not self._query.isActive and not self._restart_query():
                    return
                if self._try(self._look) or self._is_out_of_time():
                    break
            self._finish()
        except SyphonError as exc:  # the lease is lost: another syphon may work here
            self.error, has_lease = exc, False
            with contextlib.suppress(Exception):
                self._query.stop()
        except Exception as exc:  # noqa: BLE001 - raised by `wait`
            gone = _is_java_gone(exc)
            self.error = SyphonError("Spark's Java process is gone" if gone else first_line(exc))
        finally:
            with contextlib.suppress(Exception):
                if has_lease:  # else the status is the other syphon's
                    self._monitor.tick(is_active=False, is_stopped=True)
            with contextlib.suppress(Exception):  # a Java process that is gone cannot be stopped
                self._close()
            self._ended.set()

    def _try(self, action: Callable[[], bool]) -> bool:
        """Perform an action on the state directory, which may fail for a moment: then False."""
        try:
            result, problem = action(), ""
        except OSError as exc:
            result, problem = False, f"state directory: {exc}"
            if problem != self._problem:
                log.warning("%s", problem)
        self._problem = problem
        return result

    def _look(self) -> bool:
        """Renew the lease and write the status; whether the syphon has reached its bounds.

        Raises:
            SyphonError: the lease is lost.
        """
        try:
            is_held = self._renew_lease()
        except OSError as exc:
            if time.monotonic() - self._leased_at >= EXPIRES_AFTER - RENEW_EVERY:
                raise SyphonError(f"state directory: the lease cannot be renewed: {exc}") from exc
            self._monitor.tick(is_active=self._is_active())  # it reports the problem
            raise
        if not is_held:
            raise SyphonError(TAKEN_OVER)
        self._leased_at = time.monotonic()
        self._monitor.tick(is_active=self._is_active())
        return self._has_reached_bounds()

    def _is_out_of_time(self) -> bool:
        most = self._bounds.max_duration
        return most is not None and time.monotonic() - self._started >= most

    def _has_reached_bounds(self) -> bool:
        bounds = self._bounds
        if not bounds.bounded:
            return False
        progress = self._state.progress()
        if bounds.until_empty and progress.is_empty:
            return True
        return progress.is_drained and self._is_idle()

    def _finish(self) -> None:
        """Ask readers, sinks and coordinator to finish, wait for them, and end the query."""
        deadline = time.monotonic() + 30
        is_asked = self._try(self._ask_to_stop)
        while time.monotonic() < deadline and self._query.isActive:
            is_asked = is_asked or self._try(self._ask_to_stop)
            if is_asked and self._try(self._has_finished):
                break
            time.sleep(0.1)
        self._query.stop()

    def _ask_to_stop(self) -> bool:
        self._state.ask_to_stop()
        return True

    def _has_finished(self) -> bool:
        if not self._journal.has_entries_since(self._began):
            return True  # nothing was read yet, so there is nothing to finish
        is_released = self._state.progress().is_released
        return is_released and not self._is_active() and not self._state.has_reports()

    def _restart_query(self) -> bool:
        """Restart a query that failed; False if it was stopped, or fails without progress.

        Spark gives a query up after a few failures of one task, or when one of its processes is
        slow to start. Neither is a reason to leave the backlog where it is.
        """
        exc = self._query.exception()
        if exc is None:
            return False
        self._failures = 1 if self._try(self._has_forwarded) else self._failures + 1
        if self._problem:  # of the state directory: its lease decides how long to go on
            self._failures = min(self._failures, RESTARTS)
        if self._failures > RESTARTS:
            self.error = SyphonError(f"the query ended: {_cause(exc)}")
            return False
        wait = 2.0 ** (self._failures - 1)
        log.warning("the query failed and is restarted in %g s: %s", wait, _cause(exc))
        if self._stop_asked.wait(wait):
            return False
        try:
            self._query = deliver(self._messages, self._setup)
        except Exception as problem:  # its checkpoint may be on the share that fails
            if _is_java_gone(problem):
                raise
            log.warning("the query cannot be started: %s", first_line(problem))
        return True

    def _has_forwarded(self) -> bool:
        """Whether messages were forwarded since the last call."""
        before, self._forwarded = self._forwarded, self._state.progress().forwarded
        return self._forwarded != before


def _is_java_gone(exc: Exception) -> bool:
    """Whether Java does not answer; a Py4JJavaError is an answer."""
    name = type(exc).__name__
    return ("Py4J" in name and name != "Py4JJavaError") or isinstance(exc, ConnectionError)


def _cause(exc: Any) -> str:
    """Return the line of a Spark error that names the cause."""
    text = str(getattr(exc, "desc", None) or exc)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        if "Error: " in line and not line.startswith(("at ", "Caused by", "org.", "===")):
            return line[:300]
    return lines[0][:300] if lines else type(exc).__name__
