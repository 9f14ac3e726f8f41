"""Decides whether a failed attempt on the primary is repeated, and after how long.

A link that was open and then detached or broke is opened once more before it counts as evidence of
an outage. Beyond that, there are as many retries as the application configured in the SDK, but with
shorter waits: those of the SDK (1.6, 3.2, 6.4 s at its defaults) suit a client without a secondary.
"""

from __future__ import annotations

from dataclasses import dataclass

from pairbus.classify import Verdict

QUICK_BACKOFF = 0.4  # seconds before a retry after an outage, at most


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """The retries that the application configured.

    Args:
        total: How many retries, at most.
        factor: The wait before the first retry, in seconds; it doubles, unless it `is_fixed`.
        maximum: The longest wait, in seconds.
        is_fixed: Whether every wait is `factor`.
        reopen: Whether a link that was open and broke is opened once more, beyond the retries.
        is_immediate: Whether a send fails over immediately, so that a refused connection is retried
            only once, and without a wait.
    """

    total: int
    factor: float
    maximum: float
    is_fixed: bool
    reopen: bool = True
    is_immediate: bool = False


@dataclass(slots=True)
class Retries:
    """The retries of one call.

    Args:
        settings: The retries that the application configured.
        was_open: Whether the link was open when the call began.
    """

    settings: RetrySettings
    was_open: bool
    made: int = 0
    has_reopened: bool = False

    def wait(self, verdict: Verdict, *, is_broken: bool, is_silent: bool) -> float | None:
        """How long to wait before the next attempt, in seconds; None if there is none.

        Args:
            verdict: What the failure means: `OUTAGE`, `REOPEN` or `BUSY`.
            is_broken: Whether the connection broke or was refused.
            is_silent: Whether the host was silent while a link was being opened.
        """
        settings = self.settings
        is_free = verdict is Verdict.REOPEN or (is_broken and self.was_open and settings.reopen)
        if is_free and not self.has_reopened:
            self.has_reopened = True
            return 0.0
        if is_silent:
            return None  # a host that is silent while a link opens is not asked again
        total = settings.total
        wait = settings.factor if settings.is_fixed else settings.factor * 2 ** (self.made + 1)
        wait = min(wait, settings.maximum)
        if is_broken and settings.is_immediate:
            total, wait = min(total, 1), 0.0  # after that the send goes to the backlog
        elif verdict is not Verdict.BUSY:
            wait = min(wait, QUICK_BACKOFF)
        if self.made >= total:
            return None
        self.made += 1
        return wait
