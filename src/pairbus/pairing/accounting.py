"""Records the operations of a paired client in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pairbus.names import billable
from pairbus.pairing.outgoing import Outgoing
from pairbus.pairing.packing import Chunk

if TYPE_CHECKING:
    from pairbus.ledger.writer import LedgerWriter


class Accounts:
    """Records the operations of one pair; does nothing without a ledger."""

    def __init__(
        self, ledger: LedgerWriter | None, primary_namespace: str, secondary_host: str
    ) -> None:
        self.ledger = ledger
        self._primary = primary_namespace
        self._secondary = secondary_host

    def _count(
        self, namespace: str, entity: str, stage: str, operation: str, **amounts: int
    ) -> None:
        if self.ledger is not None:
            self.ledger.count(namespace, entity, stage, operation, **amounts)

    def sent(self, entity: str, outgoing: Outgoing, operation: str = "send") -> None:
        """Record messages that the primary accepted or scheduled."""
        self._count(
            self._primary,
            entity,
            "send_primary",
            operation,
            messages=outgoing.count,
            size=outgoing.size,
            billable=outgoing.billable,
        )

    def list_counter(
        self, entity: str, *, backlog: bool = False
    ) -> Callable[[Sequence[int]], None]:
        """A function that records a list of coalesced messages, by their sizes, as one call."""
        if backlog:
            return partial(self._count_list, self._secondary, entity, "send_backlog")
        return partial(self._count_list, self._primary, entity, "send_primary")

    def _count_list(self, namespace: str, entity: str, stage: str, sizes: Sequence[int]) -> None:
        charged = sum(map(billable, sizes))
        self._count(
            namespace,
            entity,
            stage,
            "send",
            messages=len(sizes),
            size=sum(sizes),
            billable=charged,
        )

    def cancelled(self, entity: str) -> None:
        """Record a call that cancelled scheduled messages: one operation without a message."""
        self._count(self._primary, entity, "send_primary", "cancel", messages=0, billable=1)

    def pinged(self, namespace: str, entity: str, *, taken: bool) -> None:
        """Record a ping. One that failed is recorded separately, as a call without a message.

        Whether the service charges such a call is a switch of the cost model.
        """
        if taken:
            self._count(namespace, entity, "ping", "send", messages=1, size=128)
        else:
            self._count(namespace, entity, "ping", "send-failed", messages=0, billable=0)

    def fenced(self, path: str) -> None:
        """Record a fence that a backlog queue accepted."""
        self._count(self._secondary, path, "management", "fence", messages=0, billable=1)

    def answered(self, path: str, number: int) -> None:
        """Record a receive from the reply queue: each answer is received and settled."""
        charged = max(1, 2 * number)
        self._count(self._secondary, path, "management", "answers", messages=0, billable=charged)

    def provided(self) -> None:
        """Record a management call that looked up or created a backlog queue."""
        self._count(self._secondary, self._primary, "management", "provision", messages=0)

    def backlogged(self, path: str, chunk: Chunk, *, is_counted: bool) -> None:
        """Record messages that a backlog queue took; `is_counted` if the call is counted."""
        if self.ledger is None:
            return
        if not is_counted:
            sizes = [size for _, _, size in chunk.notes]
            self._count_list(self._secondary, path, "send_backlog", sizes)
        self.ledger.backlogged(chunk.rows(path))
