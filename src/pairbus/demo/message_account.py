"""The demo's own account: messages sent and received, and the verdict.

It is independent of the ledger, so that the two can be compared.
"""

import dataclasses
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass
class Sent:
    """One message that was sent without an error."""

    number: int  # the order of the send, within its sender
    entity: str
    session: str | None


class MessageAccount:
    """The messages that senders sent and readers received; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sent: dict[str, Sent] = {}
        self.backlogged: dict[str, str] = {}
        self.uncertain: set[str] = set()  # another copy may be elsewhere
        self.arrived: dict[tuple[str, str], list[int]] = defaultdict(list)  # (entity, id): numbers
        self.arrivals: dict[str, list[str]] = defaultdict(list)  # entity: ids, as they were read
        self.retries: Counter[str] = Counter()
        self.redelivered = 0

    def add_sent(self, message_id: str, entity: str, session: str | None, number: int) -> None:
        """Record a send call that returned without an error."""
        with self._lock:
            self.sent[message_id] = Sent(number, entity, session)

    def add_retry(self, entity: str) -> None:
        """Record a send call that raised; the sender tries again."""
        with self._lock:
            self.retries[entity] += 1

    def add_backlogged(
        self, message_ids: tuple[str, ...], queue: str, *, is_uncertain: bool = False
    ) -> None:
        """Record messages that went to a backlog queue, as the library's event reports them."""
        with self._lock:
            for message_id in message_ids:
                self.backlogged[message_id] = queue
            if is_uncertain:
                self.uncertain.update(message_ids)

    def add_received(self, entity: str, message_id: str, sequence_number: int) -> None:
        """Record a message that a reader received and settled."""
        with self._lock:
            numbers = self.arrived[entity, message_id]
            if not numbers:
                self.arrivals[entity].append(message_id)
            if sequence_number in numbers:
                self.redelivered += 1  # the same copy again: its settlement was lost in the crash
            else:
                numbers.append(sequence_number)

    def counts(self) -> dict[str, dict[str, int]]:
        """By entity: sent, through the backlog, arrived."""
        with self._lock:
            rows: dict[str, dict[str, int]] = defaultdict(
                lambda: {"sent": 0, "backlog": 0, "arrived": 0, "retries": 0}
            )
            for message_id, sent in self.sent.items():
                rows[sent.entity]["sent"] += 1
                rows[sent.entity]["backlog"] += message_id in self.backlogged
            for entity, ids in self.arrivals.items():
                rows[entity]["arrived"] = len(ids)
            for entity, number in self.retries.items():
                rows[entity]["retries"] = number
            return {entity: rows[entity] for entity in sorted(rows)}

    def missing(self) -> int:
        """How many sent messages have not arrived."""
        with self._lock:
            return sum((sent.entity, mid) not in self.arrived for mid, sent in self.sent.items())


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of the demo; `ok` decides the exit code."""

    ok: bool
    sent: int
    delivered: int
    through_backlog: int
    lost: int
    duplicates: int
    duplicates_where_detected: int
    redelivered: int
    order_kept: bool
    out_of_order: int
    retries: int
    books_balance: bool
    reconciliation: str
    cost: Mapping[str, Any]
    seconds: Mapping[str, float]
    problems: tuple[str, ...]


def out_of_order(account: MessageAccount) -> list[str]:
    """Messages that broke the promised order.

    Promised: per destination and session, the order in which messages entered one backlog queue.
    The demo gives each sender its own sessions, so a session's messages entered in the order of
    their numbers. Not promised: the order of a message of which another copy may be elsewhere,
    since the first that arrives may be the other one.

    The order is that of the destination's sequence numbers, not the order in which the readers got
    the messages: the SDK releases a message that comes between two calls of `receive_messages`
    (`enhanced_message_received`), and reads it again after newer ones.
    """
    newest: dict[tuple[str, str, str], int] = {}
    broken = []
    for entity, ids in account.arrivals.items():
        for message_id in sorted(ids, key=lambda name: min(account.arrived[entity, name])):
            sent = account.sent.get(message_id)
            queue = account.backlogged.get(message_id)
            if sent is None or queue is None or sent.session is None:
                continue
            if message_id in account.uncertain:
                continue
            key = (entity, sent.session, queue)
            if sent.number < newest.get(key, -1):
                broken.append(message_id)
            newest[key] = max(sent.number, newest.get(key, -1))
    return broken


def judge(
    account: MessageAccount,
    *,
    detecting: set[str],
    balanced: bool,
    reconciliation: str,
    cost: Mapping[str, Any],
    seconds: Mapping[str, float],
    problems: tuple[str, ...] = (),
) -> Verdict:
    """Return the verdict.

    Args:
        account: the demo's account.
        detecting: entities that detect duplicates: there every message must arrive once.
        balanced: whether the ledger's own reconciliation balances.
        reconciliation: its verdict in one line.
        cost: the bill.
        seconds: how long the acts took.
        problems: other problems.
    """
    lost = account.missing()
    copies = {key: len(n) - 1 for key, n in account.arrived.items() if len(n) > 1}
    bad_copies = sum(n for (entity, _), n in copies.items() if entity in detecting)
    broken = out_of_order(account)
    faults = {
        "nothing was sent": not account.sent,
        "nothing went through the backlog": not account.backlogged,
        f"{lost} lost": lost,
        f"{bad_copies} arrived twice where duplicates are detected": bad_copies,
        f"{len(broken)} out of order": broken,
        "the ledger does not balance": not balanced,
    }
    found = (*problems, *(text for text, is_so in faults.items() if is_so))
    return Verdict(
        ok=not found,
        sent=len(account.sent),
        delivered=sum((s.entity, mid) in account.arrived for mid, s in account.sent.items()),
        through_backlog=sum(mid in account.backlogged for mid in account.sent),
        lost=lost,
        duplicates=sum(copies.values()),
        duplicates_where_detected=bad_copies,
        redelivered=account.redelivered,
        order_kept=not broken,
        out_of_order=len(broken),
        retries=sum(account.retries.values()),
        books_balance=balanced,
        reconciliation=reconciliation,
        cost=cost,
        seconds=seconds,
        problems=found,
    )
