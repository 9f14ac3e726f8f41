"""The errors of the bulk client; each carries its AMQP condition.

AmqpError
└── ClientError
    ├── ConnectionLostError      the connection is lost: open a new one
    ├── LinkDetachedError        the peer detached the link: open it again, or see the condition
    ├── OperationTimeoutError    no answer came in time; the outcome is unknown
    │   └── ConnectTimeoutError  no answer while connecting; nothing was sent
    ├── AuthenticationError      the token was refused: .status_code
    ├── RejectedError            the peer refused a message
    └── RequestFailedError       a management request was refused: .status_code
"""

from __future__ import annotations

from typing import Self

from pairbus.amqp.errors import AmqpError
from pairbus.amqp.performatives import Error

SOCKET_ERROR = "amqp:socket-error"
TIMEOUT = "com.microsoft:timeout"
SERVER_BUSY = "com.microsoft:server-busy"


class ClientError(AmqpError):
    """Base of the errors of the bulk client."""

    @classmethod
    def of(cls, error: Error | None, default: str, description: str) -> Self:
        """Return the peer's error, or one with the condition `default` if it gave none."""
        if error is None:
            return cls(default, description)
        return cls(error.condition, error.description or description, error.info)


class ConnectionLostError(ClientError):
    """The connection broke or was closed; nothing on it can be used any more."""


class LinkDetachedError(ClientError):
    """The peer detached the link, or refused to attach it."""


class OperationTimeoutError(ClientError):
    """No answer came in time; whether the operation took effect is unknown."""

    def __init__(self, description: str) -> None:
        super().__init__(TIMEOUT, description)


class ConnectTimeoutError(OperationTimeoutError):
    """The peer did not answer while the connection was being opened; nothing was sent."""


class RejectedError(ClientError):
    """The peer did not accept a message, or did not settle one."""


class RequestFailedError(ClientError):
    """A management request was refused."""

    def __init__(self, condition: str, description: str | None, status_code: int) -> None:
        super().__init__(condition, description)
        self.status_code = status_code


class AuthenticationError(RequestFailedError):
    """The peer refused the token."""
