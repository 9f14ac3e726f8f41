"""Requests and answers of the nodes `$cbs` and `$management`, as AMQP messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pairbus.amqp.message import Message, Properties
from pairbus.amqp.types import Int, Symbol
from pairbus.broker.entities.errors import BrokerError


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and the address of its answer."""

    operation: str
    properties: Mapping[Any, Any]
    body: Any = field(repr=False)
    message_id: Any = None
    reply_to: Any = None


def read_request(payload: bytes) -> Request:
    """Parse a request.

    Raises:
        ProtocolError: It cannot be read.
    """
    message = Message.parse(payload)
    properties = message.properties or Properties()
    given = message.application_properties or {}
    return Request(
        operation=str(given.get("operation", "")),
        properties=given,
        body=message.body,
        message_id=properties.message_id,
        reply_to=properties.reply_to,
    )


class Answer:
    """Builds the answer to a request.

    Args:
        request: The request.
        status_name: The property with the status: `$cbs` and `$management` differ.
        description_name: The property with its description.
    """

    def __init__(
        self,
        request: Request,
        *,
        status_name: str = "statusCode",
        description_name: str = "statusDescription",
    ) -> None:
        self._request = request
        self._status_name = status_name
        self._description_name = description_name

    def ok(self, status: int = 200, description: str = "OK", body: Any = None) -> bytes:
        """Return the answer to a request that succeeded."""
        return self._build(status, description, {}, body)

    def failed(self, status: int, error: BrokerError) -> bytes:
        """Return the answer to a request that failed, with the reason."""
        condition = {"errorCondition": Symbol(error.condition)}
        return self._build(status, error.description, condition, None)

    def _build(self, status: int, description: str, more: dict[str, Any], body: Any) -> bytes:
        given = {self._status_name: Int(status), self._description_name: description, **more}
        return Message.build(
            properties=Properties(correlation_id=self._request.message_id),
            application_properties=given,
            value=body,
        ).encode()
