"""The body of a message, without the properties and generators of the SDK."""

from __future__ import annotations

from collections.abc import Iterable

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from pairbus.envelope.fields import RESERVED
from pairbus.pairing.sdk.contract import DATA_BODY, PROPERTIES, RAW_MESSAGE


def body_parts(raw: AmqpAnnotatedMessage) -> Iterable[bytes] | None:
    """The sections of a body that is data; None for another body."""
    try:
        parts: Iterable[bytes] | None = DATA_BODY.of(raw)
    except AttributeError:
        parts = raw.body if raw.body_type is AmqpMessageBodyType.DATA else None
    return parts


def body_size(message: ServiceBusMessage) -> int:
    """The size of the body, if the message can be sent as it is; otherwise 0."""
    try:
        raw = RAW_MESSAGE.of(message)
        properties = PROPERTIES.of(raw)
        parts = DATA_BODY.of(raw)
    except AttributeError:
        raw = message.raw_amqp_message
        properties = raw.properties
        parts = raw.body if raw.body_type is AmqpMessageBodyType.DATA else None
    names = raw.application_properties
    if (
        properties is None
        or not properties.message_id
        or parts is None
        or (names and not RESERVED.isdisjoint(names))
    ):
        return 0
    size = 0
    for part in parts:
        size += len(part)
    return size
