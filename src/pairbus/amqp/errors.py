"""AMQP errors, each with the condition that it has on the wire.

    AmqpError                 an AMQP error: .condition .description .info
    └── ProtocolError         the peer broke the protocol; the connection is over

Conditions are symbols; those of the specification are constants here (part 2, section 2.8.14 to
2.8.18), and those that Service Bus adds start with `com.microsoft:`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pairbus.amqp.events import Event

INTERNAL_ERROR = "amqp:internal-error"
NOT_FOUND = "amqp:not-found"
UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
DECODE_ERROR = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
NOT_ALLOWED = "amqp:not-allowed"
INVALID_FIELD = "amqp:invalid-field"
NOT_IMPLEMENTED = "amqp:not-implemented"
ILLEGAL_STATE = "amqp:illegal-state"
CONNECTION_FORCED = "amqp:connection:forced"
FRAMING_ERROR = "amqp:connection:framing-error"
HANDLE_IN_USE = "amqp:session:handle-in-use"
UNATTACHED_HANDLE = "amqp:session:unattached-handle"
DETACH_FORCED = "amqp:link:detach-forced"
TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"


class AmqpError(Exception):
    """An AMQP error; `condition` is the symbol that goes over the wire."""

    def __init__(
        self,
        condition: str,
        description: str | None = None,
        info: Mapping[Any, Any] | None = None,
    ) -> None:
        super().__init__(condition, description)
        self.condition = str(condition)
        self.description = description
        self.info: Mapping[Any, Any] = dict(info) if info else {}

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross processes (Spark workers), and constructors of subclasses differ.
        return _restore, (type(self), dict(self.__dict__))

    def __str__(self) -> str:
        return f"{self.condition}: {self.description}" if self.description else self.condition


def _restore(kind: type[AmqpError], state: dict[str, Any]) -> AmqpError:
    error = kind.__new__(kind)
    AmqpError.__init__(error, state["condition"], state["description"], state["info"])
    error.__dict__.update(state)
    return error


class ProtocolError(AmqpError):
    """The peer broke the protocol.

    `events` are the events of the same bytes before the violation, so that the result does not
    depend on how the network cut the stream into packets.
    """

    events: tuple[Event, ...] = ()


def decode_error(description: str) -> ProtocolError:
    """Return the error for bytes that are not valid AMQP."""
    return ProtocolError(DECODE_ERROR, description)
