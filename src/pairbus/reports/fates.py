"""The rules of reconcile and cost for one message or row: pure, for Spark's columns and for ints.

For each message the ledger has some numbers of rows: b backlogged, f forwarded, d dead-lettered, e
of those expired, c completed unsent by a transform; the backlog queues hold w that wait and wd that
are dead-lettered. n messages are expected: b, or 1 if the sender died before it recorded any
(*unrecorded*, which is no loss). Of the n, first f are taken as delivered, then d as
dead-lettered, e as expired, c as completed, w as waiting; the rest is lost. f above n are copies:
delivered more than once.

`charged` computes the billable operations of a row. The jobs apply these functions to columns, on a
cluster. The simulation applies them to the ledger of a run, and compares the result with the actual
outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pairbus.pricing import Rules

OUTCOMES = ("b", "f", "d", "e", "c", "w", "wd")
"""What can have happened to a message: see above."""

COUNTS = (
    "expected", "once", "more_than_once", "copies", "dead_lettered", "expired", "completed",
    "waiting", "lost", "unrecorded", "unsettled",
)  # fmt: skip
"""The counts of each message."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The functions of the numbers that `fate` computes with.

    Args:
        least: the smaller of two.
        greatest: the greater of two.
        choose: the second argument where the first is true, else the third.
    """

    least: Callable[[Any, Any], Any]
    greatest: Callable[[Any, Any], Any]
    choose: Callable[[Any, Any, Any], Any]


PLAIN = Arithmetic(min, max, lambda condition, then, otherwise: then if condition else otherwise)
"""For ints."""


def fate(tally: Mapping[str, Any], using: Arithmetic = PLAIN) -> dict[str, Any]:
    """Return each of `COUNTS` for the tally of one message: b, f, d, e, c, w and wd."""
    b, f, d, e, c, w, wd = (tally[name] for name in OUTCOMES)
    least, greatest, choose = using.least, using.greatest, using.choose
    expected = greatest(b, 1)
    delivered = least(f, expected)
    copies = f - delivered
    rest = expected - delivered
    # a dead letter is in the ledger, or is seen in the dead-letter queue, or both
    dead = least(greatest(d, wd - e), rest)
    expired = least(e, rest - dead)
    completed = least(c, rest - dead - expired)
    waiting = least(w, rest - dead - expired - completed)
    return {
        "expected": expected,
        "once": choose(copies == 0, delivered, 0),
        "more_than_once": choose(copies > 0, delivered, 0),
        "copies": copies,
        "dead_lettered": dead,
        "expired": expired,
        "completed": completed,
        "waiting": waiting,
        "lost": rest - dead - expired - completed - waiting,
        "unrecorded": choose(b == 0, expected, 0),
        "unsettled": w - waiting,
    }


def charged(row: Mapping[str, Any], rules: Rules, using: Arithmetic = PLAIN) -> tuple[Any, Any]:
    """Return the billable operations of a row: by the rules, and by the cheapest rules.

    Args:
        row: `stage`, `billable`, `billable_batched`, and `tried` (the billable operations if calls
            that took no message are charged).
        rules: the switches of the cost model.
        using: the arithmetic of the values.
    """
    choose, stage = using.choose, row["stage"]
    is_send = (stage == "send_primary") | (stage == "send_backlog")
    is_poll = stage == "idle_poll"
    batched = using.least(row["billable"], row["billable_batched"])
    chosen = row["billable"]
    if rules.batches == "batch":
        chosen = choose(is_send, batched, chosen)
    if not rules.empty_polls:
        chosen = choose(is_poll, 0, chosen)
    if rules.failed_pings:
        chosen = choose(stage == "ping", row["tried"], chosen)
    low = choose(is_poll, 0, choose(is_send, batched, row["billable"]))
    return chosen, low
