"""Which simulated process a callback belongs to: the one in whose context it was scheduled."""

from __future__ import annotations

import contextvars
from typing import Protocol


class Owner(Protocol):
    """A process, as the loop sees it."""

    is_alive: bool

    def count_step(self) -> None:
        """The loop has run one of its callbacks."""


_owner: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("owner", default=None)


def owner_of(context: contextvars.Context) -> Owner | None:
    """The process that a context belongs to; None for the run itself."""
    return context.get(_owner)


def context_of(owner: Owner) -> contextvars.Context:
    """A new context that belongs to a process."""
    context = contextvars.copy_context()
    context.run(_owner.set, owner)
    return context
