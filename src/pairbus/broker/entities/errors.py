"""The errors with which the broker refuses a request.

Each class owns its wire code: ``condition`` goes on an AMQP link or into a ``$management``
response, ``http_status`` into an answer of the administration API::

    BrokerError                        amqp:internal-error
    ├── EntityNotFoundError            amqp:not-found
    │   └── MessageNotFoundError       com.microsoft:message-not-found
    ├── EntityExistsError              com.microsoft:entity-already-exists
    ├── EntityDisabledError            com.microsoft:entity-disabled
    ├── MessageLockLostError           com.microsoft:message-lock-lost
    ├── SessionLockLostError           com.microsoft:session-lock-lost
    ├── SessionCannotBeLockedError     com.microsoft:session-cannot-be-locked
    ├── QuotaExceededError             amqp:resource-limit-exceeded
    ├── MessageSizeExceededError       amqp:link:message-size-exceeded
    ├── ArgumentError                  com.microsoft:argument-error
    │   └── NotAllowedError            amqp:not-allowed
    ├── PreconditionFailedError        com.microsoft:precondition-failed
    ├── UnauthorizedError              amqp:unauthorized-access
    ├── ServerBusyError                com.microsoft:server-busy
    ├── OperationTimeoutError          com.microsoft:timeout
    ├── NotImplementedByBrokerError    amqp:not-implemented
    └── StoreError                     amqp:internal-error
"""

from __future__ import annotations


class BrokerError(Exception):
    """The base of every refusal; ``str(error)`` is the description that the client sees."""

    condition: str = "amqp:internal-error"
    http_status: int = 500

    def __init__(
        self,
        description: str,
        *,
        condition: str | None = None,
        http_status: int | None = None,
    ) -> None:
        super().__init__(description)
        self.description = description
        if condition is not None:
            self.condition = condition
        if http_status is not None:
            self.http_status = http_status


class EntityNotFoundError(BrokerError):
    """There is no entity with this path."""

    condition = "amqp:not-found"
    http_status = 404


class MessageNotFoundError(EntityNotFoundError):
    """There is no message with this sequence number in the state that was asked for."""

    condition = "com.microsoft:message-not-found"


class EntityExistsError(BrokerError):
    """An entity with this path exists already."""

    condition = "com.microsoft:entity-already-exists"
    http_status = 409


class EntityDisabledError(BrokerError):
    """The status of the entity forbids the operation."""

    condition = "com.microsoft:entity-disabled"
    http_status = 403


class MessageLockLostError(BrokerError):
    """The lock of the message has expired, or the message was settled already."""

    condition = "com.microsoft:message-lock-lost"
    http_status = 410


class SessionLockLostError(BrokerError):
    """The lock of the session has expired, or was never held."""

    condition = "com.microsoft:session-lock-lost"
    http_status = 410


class SessionCannotBeLockedError(BrokerError):
    """Another receiver holds the session."""

    condition = "com.microsoft:session-cannot-be-locked"
    http_status = 409


class QuotaExceededError(BrokerError):
    """The entity is full."""

    condition = "amqp:resource-limit-exceeded"
    http_status = 403


class MessageSizeExceededError(BrokerError):
    """The message is larger than the entity accepts."""

    condition = "amqp:link:message-size-exceeded"
    http_status = 400


class ArgumentError(BrokerError):
    """The request is invalid; ``str(error)`` gives the reason."""

    condition = "com.microsoft:argument-error"
    http_status = 400


class NotAllowedError(ArgumentError):
    """The entity does not allow this, for example a receiver that names no session."""

    condition = "amqp:not-allowed"


class PreconditionFailedError(BrokerError):
    """The entity was changed: it does not match the caller's If-Match."""

    condition = "com.microsoft:precondition-failed"
    http_status = 412


class UnauthorizedError(BrokerError):
    """The token is missing, invalid or expired, or lacks the claim."""

    condition = "amqp:unauthorized-access"
    http_status = 401


class ServerBusyError(BrokerError):
    """The client must retry later."""

    condition = "com.microsoft:server-busy"
    http_status = 503


class OperationTimeoutError(BrokerError):
    """The operation did not complete in time, for example no session became available."""

    condition = "com.microsoft:timeout"
    http_status = 408


class NotImplementedByBrokerError(BrokerError):
    """The service supports the operation, and the embedded broker does not."""

    condition = "amqp:not-implemented"
    http_status = 501


class StoreError(BrokerError):
    """The store could not write the changes; the request had no effect."""
