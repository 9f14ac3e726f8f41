"""Requests to the nodes `$cbs` and `$management`, as AMQP messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pairbus.amqp.message import Message, Properties


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
