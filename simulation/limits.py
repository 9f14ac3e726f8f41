"""The maximum duration of a call, for the documentation, the tests and the simulation.

Every call has one budget, `send_timeout`, which all attempts, waits, turns and reopens on the
primary share. A redirected call has another one for the backlog, for all queues that it tries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pairbus.pairing._async.primary_route import TURN_GRACE

__all__ = ["LIMITS", "Limit"]


class Times(Protocol):
    """The options that the limits depend on, in seconds."""

    @property
    def send_timeout(self) -> float: ...

    @property
    def open_timeout(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Limit:
    """The longest duration of a call in one situation.

    Args:
        name: Its name in tests.
        situation: What happens, for the documentation.
        formula: The duration, in terms of the options.
        seconds: The same, as a function of them.
    """

    name: str
    situation: str
    formula: str
    seconds: Callable[[Times], float]


LIMITS = (
    Limit(
        "before_failover",
        "The primary does not answer, and the failover interval has not elapsed; retries included",
        "`send_timeout`",
        lambda t: t.send_timeout,
    ),
    Limit(
        "silent_on_opening",
        "`failover_interval=0`, the link must be opened, the primary is silent; then the backlog",
        "`open_timeout` + `send_timeout`",
        lambda t: t.open_timeout + t.send_timeout,
    ),
    Limit(
        "open_link_silent",
        "`failover_interval=0`, an open link goes silent, and so does the host; then the backlog",
        "2 × `open_timeout` + `send_timeout`",
        lambda t: 2 * t.open_timeout + t.send_timeout,
    ),
    Limit(
        "entity_silent",
        "`failover_interval=0`, the entity does not answer, but its host does; then the backlog",
        "2 × `send_timeout`",
        lambda t: 2 * t.send_timeout,
    ),
    Limit(
        "behind_a_silent_send",
        "The same for a send that waits for its turn behind that one",
        "2 × `send_timeout` + 1 second",
        lambda t: 2 * t.send_timeout + TURN_GRACE,
    ),
    Limit(
        "failed_over",
        "The entity is failed over, and the secondary does not answer; any number of threads",
        "`send_timeout`",
        lambda t: t.send_timeout,
    ),
)
