"""Requests and answers of the nodes `$cbs` and `$management`, as AMQP messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pairbus.amqp.message import Message, Properties
from pairbus.amqp.types import Int, Symbol


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


def encode_answer(
    request: Request,
    names: tuple[str, str],
    status: int,
    description: str,
    *,
    condition: str | None = None,
    body: Any = None,
) -> bytes:
    """Return the answer to a request.

    Args:
        request: The request.
        names: The properties with the status and its description: `$cbs` and `$management` differ.
        status: The status.
        description: Its description.
        condition: The reason for a failure.
        body: The result of a request that succeeded.
    """
    given: dict[str, Any] = {names[0]: Int(status), names[1]: description}
    if condition is not None:
        given["errorCondition"] = Symbol(condition)
    return Message.build(
        properties=Properties(correlation_id=request.message_id),
        application_properties=given,
        value=body,
    ).encode()
