"""Where the store's slow work runs: on one thread, or in a simulation on the caller's own.

Work runs in the order of the calls. The result is always reported on the owner's thread: by
`notify` (an event loop's ``call_soon_threadsafe``) or inside `wait`.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Protocol

Work = Callable[[], None]
Done = Callable[[Exception | None], None]

_log = logging.getLogger("pairbus.broker.store")


class Writer(Protocol):
    """Runs work in order and reports each result on the owner's thread."""

    notify: Callable[[Callable[[], None]], object] | None

    @property
    def is_idle(self) -> bool:
        """Whether all work has run and its results were reported."""

    def run(self, work: Work, done: Done) -> None:
        """Run *work*, then report None or its exception to *done*."""

    def wait(self) -> None:
        """Block until all work has run, and report its results."""

    def close(self) -> None:
        """Finish the work in hand; nothing may be run afterwards."""


class InlineWriter:
    """Runs work within the call: for a simulation, which has no threads."""

    is_idle = True

    def __init__(self) -> None:
        self.notify: Callable[[Callable[[], None]], object] | None = None

    def run(self, work: Work, done: Done) -> None:
        """Run *work* now and report its result."""
        done(_outcome(work))

    def wait(self) -> None:
        """Nothing is ever outstanding."""

    def close(self) -> None:
        """Nothing to release."""


class WriterThread:
    """Runs work on a thread, which starts with the first piece of work."""

    def __init__(self) -> None:
        self.notify: Callable[[Callable[[], None]], object] | None = None
        self._work: queue.SimpleQueue[tuple[Work, Done] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[Done, Exception | None]] = queue.SimpleQueue()
        self._outstanding = 0
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether all work has run and its results were reported."""
        return self._outstanding == 0

    def run(self, work: Work, done: Done) -> None:
        """Queue *work* for the thread; *done* is called on the owner's thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="pairbus-store", daemon=True)
            self._thread.start()
        self._outstanding += 1
        self._work.put((work, done))

    def wait(self) -> None:
        """Block until all work has run, and report its results."""
        while self._outstanding:
            self._report(*self._results.get())

    def close(self) -> None:
        """Finish the work in hand and end the thread."""
        self.wait()
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            self._results.put((done, _outcome(work)))
            notify = self.notify
            if notify is not None:
                try:
                    notify(self._report_all)
                except RuntimeError:
                    _log.debug("the event loop ended before a commit was reported")

    def _report_all(self) -> None:
        while not self._results.empty():
            self._report(*self._results.get())

    def _report(self, done: Done, error: Exception | None) -> None:
        self._outstanding -= 1
        done(error)


def _outcome(work: Work) -> Exception | None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whatever failed, the caller must learn of it
        return error
    return None
