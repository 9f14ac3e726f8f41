"""SIGTERM and Ctrl-C during `pairbus syphon run`: finish the messages in flight, then end."""

import contextlib
import logging
import signal
import sys
from collections.abc import Iterator
from typing import Any


class StopSignals:
    """Records SIGTERM and Ctrl-C, so that the run ends between two batches."""

    def __init__(self) -> None:
        self.signal = 0

    def record(self, number: int, _frame: Any = None) -> None:
        """Record a signal; raise KeyboardInterrupt at the second Ctrl-C."""
        if self.signal == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt  # the second Ctrl-C ends it immediately
        self.signal = number
        logging.getLogger().addFilter(is_not_from_py4j)

    def install(self) -> None:
        """Record signals from now on."""
        signal.signal(signal.SIGTERM, self.record)
        signal.signal(signal.SIGINT, self.record)

    @contextlib.contextmanager
    def before_spark(self) -> Iterator[None]:
        """End the process on SIGTERM while Spark starts: there is nothing to finish."""

        def end(number: int, _frame: Any) -> None:
            self.record(number)
            sys.exit(128 + number)

        old = signal.signal(signal.SIGTERM, end)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, old)


def is_not_from_py4j(record: logging.LogRecord) -> bool:
    """Return False for a record of py4j.

    A signal to the whole process group ends Java, too. py4j then logs a traceback for each command
    that Java does not answer any more, through the root logger.
    """
    return "py4j" not in record.pathname
