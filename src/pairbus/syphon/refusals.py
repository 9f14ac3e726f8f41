"""Classify the refusals of destinations: which messages are concerned, and whether to retry.

A destination answers a whole batch with one AMQP condition. `judge` maps the condition to the
cause: one message (split the batch until it is isolated), a destination that does not exist, a
destination that cannot accept messages now (back off from it alone), or the primary as a whole
(back off from everything). An unknown condition counts as temporary for that destination, because
waiting loses nothing.
"""

import enum
from dataclasses import dataclass

from pairbus.amqp.errors import AmqpError
from pairbus.envelope.fields import EXPIRED, NO_DESTINATION, WRONG_ALIAS_TYPE

__all__ = ["CREDENTIAL_FAILED", "REASONS", "Cause", "Judgement", "Outcome", "judge"]


#: Our own condition: the credential gave no token, so nothing was asked of the namespace.
CREDENTIAL_FAILED = "pairbus:credential-failed"


class Cause(enum.Enum):
    """The cause of a refusal."""

    MESSAGE = "message"  # this message will never be accepted: dead-letter it
    MISSING = "missing"  # the destination does not exist
    DESTINATION = "destination"  # this destination cannot accept messages now: wait for it alone
    PRIMARY = "primary"  # nothing can be sent now: wait for the whole primary
    BUSY = "busy"  # the primary is throttling: send the same batch again, more slowly


#: Reasons with which the syphon dead-letters, and what they mean.
REASONS = {
    NO_DESTINATION: "the message carries no x-ms-path",
    WRONG_ALIAS_TYPE: "an alias has a wrong AMQP type, or the message cannot be decoded",
    "DestinationNotFound": "the namespace that is written to has no such queue or topic",
    "MessageTooLarge": "the destination refuses a message of this size",
    EXPIRED: "its time to live expired in the backlog (`ttl_policy` is `deduct`)",
    "FenceNotAnswered": "the reply queue does not exist, refuses the answer, or grants no Send",
    "Rejected": "the destination refuses this message, or a transform set the verdict "
    "`dead-letter` without a reason",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A destination's answer to a batch: accepted, or refused with an AMQP condition."""

    condition: str | None = None
    description: str = ""

    @classmethod
    def of(cls, error: AmqpError) -> "Outcome":
        """Return the outcome of an operation that failed."""
        return cls(str(error.condition), error.description or "")

    @property
    def is_accepted(self) -> bool:
        """Whether the batch was accepted."""
        return self.condition is None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The cause of a refusal.

    Args:
        cause: whether a message, the destination or the primary is the cause.
        reason: the dead-letter reason, if the refusal is final.
    """

    cause: Cause
    reason: str = ""


_JUDGEMENTS = {
    "amqp:link:message-size-exceeded": Judgement(Cause.MESSAGE, "MessageTooLarge"),
    "com.microsoft:argument-error": Judgement(Cause.MESSAGE, "Rejected"),
    "com.microsoft:argument-out-of-range": Judgement(Cause.MESSAGE, "Rejected"),
    "amqp:not-allowed": Judgement(Cause.MESSAGE, "Rejected"),
    "amqp:decode-error": Judgement(Cause.MESSAGE, "Rejected"),
    "amqp:invalid-field": Judgement(Cause.MESSAGE, "Rejected"),
    "amqp:precondition-failed": Judgement(Cause.MESSAGE, "Rejected"),
    "amqp:not-implemented": Judgement(Cause.MESSAGE, "Rejected"),
    "amqp:frame-size-too-small": Judgement(Cause.MESSAGE, "MessageTooLarge"),
    "amqp:not-found": Judgement(Cause.MISSING, "DestinationNotFound"),
    "amqp:resource-deleted": Judgement(Cause.MISSING, "DestinationNotFound"),
    "com.microsoft:entity-disabled": Judgement(Cause.DESTINATION),
    "amqp:resource-limit-exceeded": Judgement(Cause.DESTINATION),
    "amqp:unauthorized-access": Judgement(Cause.DESTINATION),
    "com.microsoft:auth-failed": Judgement(Cause.DESTINATION),
    "amqp:internal-error": Judgement(Cause.DESTINATION),
    "com.microsoft:timeout": Judgement(Cause.DESTINATION),
    "com.microsoft:operation-cancelled": Judgement(Cause.DESTINATION),
    "com.microsoft:server-busy": Judgement(Cause.BUSY),
    "com.microsoft:container-close": Judgement(Cause.PRIMARY),
    "amqp:connection:forced": Judgement(Cause.PRIMARY),
    "amqp:connection:framing-error": Judgement(Cause.PRIMARY),
    "amqp:socket-error": Judgement(Cause.PRIMARY),
    CREDENTIAL_FAILED: Judgement(Cause.PRIMARY),
}


def judge(condition: str) -> Judgement:
    """Return the cause of a refusal with this AMQP condition."""
    return _JUDGEMENTS.get(str(condition), Judgement(Cause.DESTINATION))
