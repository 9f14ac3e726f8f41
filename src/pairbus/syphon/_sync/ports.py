# generated from src/pairbus/syphon/_async/ports.py by tools/gen_unasync.py; edit that one
"""The interfaces between the parts of the syphon, so that each part can be tested alone."""

from collections.abc import Collection, Sequence
from typing import Protocol

from pairbus.client.received import Received
from pairbus.envelope.fence import Fence
from pairbus.syphon.orphaned_locks import Inspection
from pairbus.syphon.records import OperationCount
from pairbus.syphon.refusals import Outcome
from pairbus.syphon.status_records import LedgerState

__all__ = [
    "Answering",
    "Backlog",
    "Bell",
    "Operations",
    "Sending",
    "Settling",
]


class Sending(Protocol):
    """The primary, as the deliverer sees it."""

    def limit(self, destination: str) -> int:
        """Most bytes of one batch."""

    def send(self, jobs: Sequence[tuple[str, Sequence[bytes]]]) -> list[Outcome]:
        """Send one batch to each of several destinations concurrently; return their outcomes."""


class Settling(Protocol):
    """The secondary, as the deliverer sees it."""

    def settle(
        self,
        queue: str,
        tokens: Sequence[bytes],
        how: str,
        reason: str = "",
        description: str = "",
    ) -> int:
        """Settle by lock token; return how many of the locks were lost."""


class Answering(Protocol):
    """The reply queue, as the deliverer sees it."""

    def answer(self, queue: str, fences: Sequence[Fence]) -> list[Outcome]:
        """Answer fences of one backlog queue; return the outcome of each answer."""


class Backlog(Protocol):
    """The secondary, as the coordinator sees it."""

    def abandon(self, queue: str, tokens: Sequence[bytes]) -> int | None:
        """Abandon messages, in this order.

        Returns how many were still locked; None if the queue could not be reached.
        """

    def defer(self, queue: str, tokens: Sequence[bytes]) -> bool:
        """Defer messages by lock token; False if some of them may still be locked."""

    def browse(self, queue: str, first: int) -> list[Received] | None:
        """Messages from a sequence number on; None if the queue cannot be asked."""

    def renew(self, queue: str, tokens: Sequence[bytes]) -> dict[bytes, float | None]:
        """Renew locks: when each expires now; None if it was lost, left out if unknown."""

    def is_empty(self, queue: str) -> bool | None:
        """Whether there is no message, locked ones included; None if that is not known."""

    def inspect(self, queue: str, after: int, known: Collection[int]) -> Inspection | None:
        """Check for unknown locked messages; None if the queue could not be reached."""


class Bell(Protocol):
    """The doorbell, as the coordinator sees it."""

    @property
    def problem(self) -> str | None:
        """Why the secondary cannot be reached, in one line."""

    def listen(self, queues: Sequence[str]) -> None:
        """Hold one long poll on each of these queues, and on no other."""

    def rung(self) -> set[str]:
        """Queues where a message arrived since the last call."""

    def armed(self) -> set[str]:
        """Queues where a poll is under way: it may hold a message for a moment."""

    def freeze(self) -> set[str]:
        """Start no poll until `listen`; return the queues where one is under way."""

    def polls(self) -> dict[str, int]:
        """Receives that began since the last call, by queue."""

    def rings(self) -> list[tuple[str, int]]:
        """Messages that ended a poll since the last call: queue and bytes."""

    def broken(self) -> set[str]:
        """Queues where a poll broke off since the last call: a message may be locked."""

    def close(self) -> None:
        """Stop listening."""


class Operations(Protocol):
    """The ledger, as the coordinator sees it."""

    def add(self, *counts: OperationCount) -> None:
        """Count operations."""

    def flush(self) -> object:
        """Make the counts durable."""

    def probe(self) -> str | None:
        """Why no receipt could be written now, in one line; None if one could."""

    def state(self) -> LedgerState:
        """Whether the counts reach the ledger; does not wait."""
