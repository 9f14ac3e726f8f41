"""What the broker answers when it cannot do what was asked.

Each error owns the AMQP condition that goes on the wire, and the HTTP status of the
administration API.

    BrokerError                 amqp:internal-error                 500
    ├── ArgumentError           com.microsoft:argument-error        400
    ├── EntityNotFoundError     amqp:not-found                      404
    ├── EntityExistsError       com.microsoft:entity-already-exists 409
    └── UnauthorizedError       amqp:unauthorized-access            401
"""

from __future__ import annotations

from typing import ClassVar


class BrokerError(Exception):
    """Base of everything that the broker refuses; ``description`` is shown to the client."""

    condition: ClassVar[str] = "amqp:internal-error"
    http_status: ClassVar[int] = 500

    def __init__(self, description: str) -> None:
        super().__init__(description)
        self.description = description


class ArgumentError(BrokerError):
    """A value that the service does not take."""

    condition = "com.microsoft:argument-error"
    http_status = 400


class EntityNotFoundError(BrokerError):
    """The entity does not exist."""

    condition = "amqp:not-found"
    http_status = 404


class EntityExistsError(BrokerError):
    """An entity of that name exists already."""

    condition = "com.microsoft:entity-already-exists"
    http_status = 409


class UnauthorizedError(BrokerError):
    """The token does not allow it."""

    condition = "amqp:unauthorized-access"
    http_status = 401
