"""What an operation counts as, and what it costs: pure arithmetic over dated prices.

The service charges operations, and size in steps of 64 KB. Prices change and so they are data: a
price list is a mapping read from a dated file (see `pairbus.ledger.prices`) and checked here.
Money is `Decimal` and is never rounded before it is shown.
"""

from __future__ import annotations

STEP = 65536
"""Bytes that one billable operation carries: 96 KB are two operations."""

STAGES = (
    "send_primary",
    "send_backlog",
    "receive_backlog",
    "receive_primary",
    "settle",
    "ping",
    "idle_poll",
    "management",
)
"""The stages of a message's way, and what else is charged, in the order in which they are shown."""


def billable(size: int) -> int:
    """Return how many operations one message of `size` bytes counts as: one for each 64 KB."""
    return max(1, -(-size // STEP))
