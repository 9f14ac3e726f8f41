"""What the syphon decides when a destination answers: who is at fault, and how long to wait.

A refused batch says one thing about all of its messages. `judge` reads the AMQP condition and says
whose fault it is: one message's (split the batch until the offender stands alone), the
destination's that is gone (dead-letter), the destination's for now (back off from it alone), or the
whole primary's (back off from everything). Conditions that nobody knows are taken as the
destination's for now: waiting loses nothing.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["REASONS", "Backoff", "Fault", "Judgement", "LockBudget", "halves", "judge", "plan"]


class Fault(enum.Enum):
    """Whose fault a refusal is."""

    MESSAGE = "message"  # this message will never be taken: dead-letter it
    GONE = "gone"  # the destination does not exist: dead-letter what is for it
    DESTINATION = "destination"  # this destination cannot take messages now: wait for it alone
    PRIMARY = "primary"  # nothing can be sent now: wait for the whole primary


#: Reasons with which the syphon dead-letters, and what they mean.
REASONS = {
    "NoDestination": "the message carries no x-ms-path",
    "WrongAliasType": "an alias has another AMQP type than the envelope gives it",
    "DestinationNotFound": "the primary has no such queue or topic",
    "MessageTooLarge": "the destination refuses a message of this size",
    "ExpiredInBacklog": "its time to live ran out in the backlog (ttl policy: deduct)",
    "Rejected": "the destination refuses this message",
    "DroppedByTransform": "the transform dropped it and asked for the dead-letter queue",
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whose fault it is, the dead-letter reason if it is final, the shortest wait if it is not."""

    fault: Fault
    reason: str = ""
    wait: float = 0.0


_JUDGEMENTS = {
    "amqp:link:message-size-exceeded": Judgement(Fault.MESSAGE, "MessageTooLarge"),
    "com.microsoft:argument-error": Judgement(Fault.MESSAGE, "Rejected"),
    "com.microsoft:argument-out-of-range": Judgement(Fault.MESSAGE, "Rejected"),
    "amqp:not-allowed": Judgement(Fault.MESSAGE, "Rejected"),
    "amqp:decode-error": Judgement(Fault.MESSAGE, "Rejected"),
    "amqp:invalid-field": Judgement(Fault.MESSAGE, "Rejected"),
    "amqp:precondition-failed": Judgement(Fault.MESSAGE, "Rejected"),
    "amqp:not-implemented": Judgement(Fault.MESSAGE, "Rejected"),
    "amqp:frame-size-too-small": Judgement(Fault.MESSAGE, "MessageTooLarge"),
    "amqp:not-found": Judgement(Fault.GONE, "DestinationNotFound"),
    "amqp:resource-deleted": Judgement(Fault.GONE, "DestinationNotFound"),
    "com.microsoft:entity-disabled": Judgement(Fault.DESTINATION),
    "amqp:resource-limit-exceeded": Judgement(Fault.DESTINATION),
    "amqp:unauthorized-access": Judgement(Fault.DESTINATION),
    "com.microsoft:auth-failed": Judgement(Fault.DESTINATION),
    "amqp:internal-error": Judgement(Fault.DESTINATION),
    "com.microsoft:timeout": Judgement(Fault.DESTINATION),
    "com.microsoft:operation-cancelled": Judgement(Fault.DESTINATION),
    "com.microsoft:server-busy": Judgement(Fault.PRIMARY, wait=10.0),
    "com.microsoft:container-close": Judgement(Fault.PRIMARY),
    "amqp:connection:forced": Judgement(Fault.PRIMARY),
    "amqp:connection:framing-error": Judgement(Fault.PRIMARY),
    "amqp:socket-error": Judgement(Fault.PRIMARY),
}


def judge(condition: str) -> Judgement:
    """Say whose fault a refusal with this AMQP condition is."""
    return _JUDGEMENTS.get(str(condition), Judgement(Fault.DESTINATION))


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after the n-th failure in a row: doubling, between two bounds."""

    first: float = 10.0
    most: float = 300.0

    def delay(self, failures: int, *, at_least: float = 0.0) -> float:
        """Seconds to wait after `failures` failures in a row (1 is the first)."""
        doubled = self.first * 2.0 ** min(max(failures - 1, 0), 30)
        return max(at_least, min(self.most, doubled))


@dataclass(frozen=True, slots=True)
class LockBudget:
    """Says until when it is safe to send a message that is locked until then.

    What is sent when its lock is about to run out is delivered a second time, so nothing is sent
    when less than `reserve` of the lock is left.
    """

    reserve: float = 1 / 3

    def deadline(self, received_at: float, locked_until: float) -> float:
        """The last moment at which a message received then may still be sent."""
        return locked_until - max(0.0, locked_until - received_at) * self.reserve

    def allows(self, now: float, received_at: float, locked_until: float) -> bool:
        """Whether enough of the lock is left to send, write the receipt and settle."""
        return now < self.deadline(received_at, locked_until)


def plan(sizes: Sequence[int], *, max_bytes: int, max_messages: int = 4500) -> list[range]:
    """Cut messages of these sizes, in their order, into batches that fit.

    Each message costs a few bytes more in a batch (the data section around it). A message that
    does not fit at all gets a batch of its own: the destination says no, and that is its answer.
    """
    batches: list[range] = []
    start, total = 0, 0
    for index, size in enumerate(sizes):
        cost = size + 8
        if index > start and (total + cost > max_bytes or index - start >= max_messages):
            batches.append(range(start, index))
            start, total = index, 0
        total += cost
    if start < len(sizes):
        batches.append(range(start, len(sizes)))
    return batches


def halves(batch: range) -> tuple[range, range]:
    """Split a refused batch in two, in order; the second is empty when it held one message."""
    middle = batch.start + max(1, len(batch) // 2)
    return range(batch.start, min(middle, batch.stop)), range(min(middle, batch.stop), batch.stop)
