"""Classifies failures: one table from the SDK's errors to a verdict, with a reason per row.

An *outage* is a timeout (ours included), a connection or communication failure, or an internal
error of the service. Everything else is an answer of a namespace that works; to store the message
in a backlog queue would only hide it. The first row that fits decides. An
application can put its own rule in front of the table with the option `classify`.

The SDK's class alone is not sufficient. A bare `ServiceBusError` is classified by its AMQP
condition, which is in its text; an authentication failure by the status code of the token service;
and an error that the SDK wrapped ("Handler failed: ...") by the error inside. The SDK reports a
link that was detached during a send as `unknown-error`; pairbus asks the link for the condition,
and if it has none, one reopen within the deadline decides.
"""

from __future__ import annotations

import enum
import logging
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from pairbus.exceptions import PairingError

__all__ = ["TABLE", "Row", "Verdict", "classify", "condition_of", "is_connection_failure"]

logger = logging.getLogger("pairbus.classify")


class Verdict(enum.Enum):
    """The meaning of a failed attempt for its entity."""

    OUTAGE = "outage"  # the namespace cannot be reached or does not work
    REOPEN = "reopen"  # a link was detached: open it once more, then decide
    BUSY = "busy"  # throttled: the service works, and accepts fewer requests
    FULL = "full"  # the entity has reached its quota
    MISSING = "missing"  # the entity does not exist, or is disabled
    REFUSED = "refused"  # authorisation, size, argument: the same everywhere and always


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: if `applies` returns True for a failure, it means `verdict`."""

    what: str
    verdict: Verdict
    reason: str
    applies: Callable[[BaseException], bool]


# Conditions of a bare ServiceBusError that mean that the service failed.
INTERNAL = frozenset(
    {
        "amqp:internal-error",
        "amqp:connection:forced",
        "amqp:connection:framing-error",
        "amqp:connection:redirect",
        "amqp:link:redirect",
        "amqp:link:stolen",
        "amqp:illegal-state",
        "amqp:session:window-violation",
        "amqp:session:errant-link",
        "amqp:session:handle-in-use",
        "amqp:session:unattached-handle",
        "amqp:socket-error",
        "amqp:client-error",
        "amqp:unknown-error",
        "amqp:vendor-error",
        "com.microsoft:container-close",
        "com.microsoft:operation-cancelled",
        "com.microsoft:partition-not-owned",
        "com.microsoft:store-lock-lost",
        "com.microsoft:timeout",
    }
)
DETACHED = frozenset({"amqp:unknown-error", "amqp:link:detach-forced"})


_CONDITION_TEXT = re.compile(r"Error condition: (?:ErrorCondition\.)?(\S+?)\.(?=\s|$)")


def condition_of(error: BaseException) -> str:
    """The AMQP condition of an SDK error, as text; empty if it has none.

    The SDK's public errors have the condition only in their text.
    """
    condition = getattr(error, "condition", None)
    value = getattr(condition, "value", condition)
    if isinstance(value, bytes):
        return value.decode("ascii", "replace")
    if value:
        return str(value)
    found = _CONDITION_TEXT.findall(str(error))
    return str(found[-1]) if found else ""


def _inner(error: BaseException) -> BaseException | None:
    return getattr(error, "inner_exception", None) or error.__cause__


def _token_status(error: BaseException) -> int | None:
    """The status of the token service's answer; 0 if it did not answer; None for other errors."""
    inner = _inner(error)
    for candidate in (inner, error):
        if type(candidate).__name__ == "TokenAuthFailure":
            status = getattr(candidate, "status_code", None)
            return status if isinstance(status, int) else 0
        if isinstance(candidate, ClientAuthenticationError | HttpResponseError):
            return candidate.status_code or 0
    return 0 if isinstance(error, ServiceBusAuthenticationError) else None


def _is(*classes: type[BaseException]) -> Callable[[BaseException], bool]:
    return lambda error: isinstance(error, classes)


def _answered(error: BaseException) -> bool:
    status = _token_status(error)
    return status is not None and 100 <= status < 500


def _unanswered(error: BaseException) -> bool:
    return _token_status(error) is not None


def _expired(error: BaseException) -> bool:
    return "CBS Authentication Expired" in str(error)


def _management_link_detached(error: BaseException) -> bool:
    # The SDK reports it as a bare ServiceBusError, and drops the condition.
    return type(error) is ServiceBusError and "Management Operation error" in str(error)


def _detached(error: BaseException) -> bool:
    return isinstance(error, ServiceBusConnectionError) and condition_of(error) in DETACHED


def _internal(error: BaseException) -> bool:
    return type(error) is ServiceBusError and condition_of(error) in INTERNAL


def _wraps_network(error: BaseException) -> bool:
    return (
        type(error) is ServiceBusError
        and not condition_of(error)
        and isinstance(
            _inner(error), OSError | EOFError | ServiceRequestError | ServiceResponseError
        )
    )


def is_connection_failure(error: BaseException) -> bool:
    """Whether a connection failed or broke: a failure of the host, not of one entity."""
    if isinstance(error, OperationTimeoutError | TimeoutError):
        return False
    broken = (
        ServiceBusConnectionError,
        ServiceBusCommunicationError,
        OSError,
        EOFError,
        ServiceRequestError,
        ServiceResponseError,
    )
    return isinstance(error, broken) or _wraps_network(error)


TABLE: tuple[Row, ...] = (
    Row(
        "a refusal by pairbus itself",
        Verdict.REFUSED,
        "says nothing about the namespace",
        _is(PairingError),
    ),
    Row(
        "an expired token",
        Verdict.REOPEN,
        "the link was idle while its token expired; a new link gets a new token",
        _expired,
    ),
    Row(
        "a detached management link",
        Verdict.REOPEN,
        "the link for scheduling and cancelling was idle and was detached: open it once more",
        _management_link_detached,
    ),
    Row(
        "MessageSizeExceededError",
        Verdict.REFUSED,
        "a retry cannot succeed",
        _is(MessageSizeExceededError),
    ),
    Row(
        "ServiceBusServerBusyError",
        Verdict.BUSY,
        "throttling is an answer of the service; the backlog would hide the load",
        _is(ServiceBusServerBusyError),
    ),
    Row(
        "ServiceBusQuotaExceededError",
        Verdict.FULL,
        "the entity is full; its consumers must see that",
        _is(ServiceBusQuotaExceededError),
    ),
    Row(
        "MessagingEntityNotFoundError",
        Verdict.MISSING,
        "the syphon could not forward the backlog of a missing entity",
        _is(MessagingEntityNotFoundError),
    ),
    Row(
        "MessagingEntityDisabledError",
        Verdict.MISSING,
        "an operator disabled the entity",
        _is(MessagingEntityDisabledError),
    ),
    Row(
        "ServiceBusAuthorizationError",
        Verdict.REFUSED,
        "the service is available; the client lacks the rights",
        _is(ServiceBusAuthorizationError),
    ),
    Row(
        "authentication answered with 1xx to 4xx",
        Verdict.REFUSED,
        "the token service is available and refuses",
        _answered,
    ),
    Row(
        "authentication answered with 5xx, or not at all",
        Verdict.OUTAGE,
        "the token service is part of the namespace's availability",
        _unanswered,
    ),
    Row(
        "OperationTimeoutError, TimeoutError",
        Verdict.OUTAGE,
        "the service did not answer in time",
        _is(OperationTimeoutError, TimeoutError),
    ),
    Row(
        "ServiceBusConnectionError with unknown-error or detach-forced",
        Verdict.REOPEN,
        "a detached link without a condition: open it once more, then decide",
        _detached,
    ),
    Row(
        "ServiceBusConnectionError, ServiceBusCommunicationError",
        Verdict.OUTAGE,
        "the service cannot be reached",
        _is(ServiceBusConnectionError, ServiceBusCommunicationError),
    ),
    Row(
        "ServiceBusError with an internal AMQP condition",
        Verdict.OUTAGE,
        "the service reports that it failed",
        _internal,
    ),
    Row(
        "ServiceBusError that wraps a network error",
        Verdict.OUTAGE,
        "the SDK wraps unknown errors, such as a failed name resolution",
        _wraps_network,
    ),
    Row(
        "any other ServiceBusError",
        Verdict.REFUSED,
        "not allowed, argument, precondition, not implemented: an answer",
        _is(ServiceBusError),
    ),
    Row(
        "ValueError, TypeError, struct.error",
        Verdict.REFUSED,
        "an argument that the SDK does not accept or cannot encode",
        _is(ValueError, TypeError, struct.error),
    ),
    Row(
        "OSError, EOFError, ServiceRequestError, ServiceResponseError",
        Verdict.OUTAGE,
        "the network, or a credential that could not reach its authority",
        _is(OSError, EOFError, ServiceRequestError, ServiceResponseError),
    ),
    Row(
        "anything else",
        Verdict.REFUSED,
        "a fault of the program is not an outage",
        lambda error: True,
    ),
)


def classify(
    error: BaseException, rule: Callable[[BaseException], Verdict | None] | None = None
) -> Verdict:
    """Return the verdict on `error`: that of `rule`, or the table's if `rule` returns None.

    If `rule` raises, or returns something else, this is logged and the table decides: a faulty
    rule must neither hide the error from the caller nor end the pings.
    """
    if rule is not None:
        try:
            verdict = rule(error)
            if verdict is not None:
                return Verdict(verdict)
        except Exception:
            logger.exception("the option classify=%r failed; the built-in table is used", rule)
    return next(row.verdict for row in TABLE if row.applies(error))
