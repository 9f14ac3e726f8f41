"""Throttles the clients of a namespace by its credits, as the Standard tier does."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from pairbus.broker.entities.credits import CreditBalance
from pairbus.broker.entities.errors import ServerBusyError

_log = logging.getLogger("pairbus.broker")


class Throttle:
    """Refuses operations while the namespace has no credits.

    Args:
        namespace: The namespace's name.
        balance: Its credits.
        now: The time in milliseconds.

    Attributes:
        refused: Refused operations by ``(entity path, operation)``.
    """

    def __init__(self, namespace: str, balance: CreditBalance, now: Callable[[], int]) -> None:
        self.is_on = balance.per_second > 0
        self.refused: Counter[tuple[str, str]] = Counter()
        self._namespace = namespace
        self._balance = balance
        self._now = now
        self._has_warned = False

    def __repr__(self) -> str:
        return f"<Throttle {self._namespace} {self._balance!r}>"

    def would_serve(self, count: int, cost: int = 1) -> bool:
        """Whether *count* operations of *cost* credits each, one by one, would all be served."""
        return not self.is_on or self._balance.at(self._now()) > (count - 1) * cost

    def check(self, path: str, operation: str) -> None:
        """Refuse an operation if no credits are left.

        Raises:
            ServerBusyError: no credits are left; the text is the service's.
        """
        if not self.is_on or not self._balance.refuses(self._now()):
            return
        self.refused[path, operation] += 1
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "THROTTLING: the namespace %s has used up its %d credits of this second, and "
                "refuses operations with server-busy until the next, as a Standard namespace "
                "does. Switch this off with --credits-per-second 0 "
                "(broker.run(credits_per_second=0)) or --tier premium. This is logged once; "
                "GET /$control/limits counts refused operations.",
                self._namespace,
                self._balance.per_second,
            )
        raise ServerBusyError(
            f"The request was terminated because the namespace {self._namespace} is being "
            "throttled. Error code : 50009. Please wait 2 seconds and try again."
        )

    def next_second(self) -> int:
        """When the namespace gets credits again, in milliseconds."""
        return (self._now() // 1000 + 1) * 1000

    def charge(self, credits: int) -> None:
        """Take the credits of an operation that was served."""
        if self.is_on:
            self._balance.charge(self._now(), credits)
