"""The size of a message's body, without the generators of the SDK."""

from __future__ import annotations

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpMessageBodyType

from pairbus.envelope.fields import RESERVED
from pairbus.pairing.sdk.contract import DATA_BODY


def body_size(message: ServiceBusMessage) -> int:
    """The size of the body, if the message can be sent as it is; otherwise 0."""
    raw = message.raw_amqp_message
    properties = raw.properties
    if properties is None or not properties.message_id:
        return 0
    try:
        parts = DATA_BODY.of(raw)
    except AttributeError:
        parts = raw.body if raw.body_type is AmqpMessageBodyType.DATA else None
    names = raw.application_properties
    if parts is None or (names and not RESERVED.isdisjoint(names)):
        return 0
    size = 0
    for part in parts:
        size += len(part)
    return size
