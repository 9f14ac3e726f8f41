"""Runs the store's slow work on a worker, and calls back on the owner's thread."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from pairbus.runtime import Worker

Work = Callable[[], None]
Done = Callable[[Exception | None], None]

_log = logging.getLogger("pairbus.broker.store")


class Writer:
    """Runs work in the order of the calls.

    Args:
        worker: runs the work; a thread in production.

    Attributes:
        notify: schedules a call on the owner's thread (an event loop's ``call_soon_threadsafe``);
            without it results are reported in `wait` only.
        outstanding: the number of calls of `run` whose *done* was not called yet.
    """

    def __init__(self, worker: Worker) -> None:
        self.notify: Callable[[Callable[[], None]], object] | None = None
        self._worker = worker
        self._results: deque[tuple[Done, Exception | None]] = deque()
        self.outstanding = 0

    def run(self, work: Work, done: Done) -> None:
        """Run *work* on the worker, then call *done* with None or its exception."""
        self.outstanding += 1
        self._worker.submit(self._work, work, done)

    def wait(self) -> None:
        """Block until all work has run, and report the results."""
        if self.outstanding:
            self._worker.call(lambda: None)
            self._report()

    def close(self) -> None:
        """Finish the outstanding work and release the worker."""
        self.wait()
        self._worker.close()

    def _work(self, work: Work, done: Done) -> None:
        error: Exception | None = None
        try:
            work()
        except Exception as problem:  # noqa: BLE001 - any error goes to the caller
            error = problem
        self._results.append((done, error))
        notify = self.notify
        if notify is not None:
            try:
                notify(self._report)
            except RuntimeError:
                _log.debug("the event loop ended before a commit was reported")

    def _report(self) -> None:
        while self._results:
            done, error = self._results.popleft()
            self.outstanding -= 1
            done(error)
