"""A short way through the SDK for a message with nothing unusual: the same, in a few steps.

Before the SDK writes a message it turns it into tuples of its own, field by field and through a
property for each, which takes longer than all that pairing adds to a send. Most values are handed
on as they are, so they can be taken from where they lie. A message that needs more goes the SDK's
own way. So does every message if a few samples, which are tried both ways when the first sender
opens, do not come out alike: then the SDK is other than we know it.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from azure.servicebus.amqp import AmqpAnnotatedMessage

logger = logging.getLogger("pairbus.sdk")

# In the order in which the SDK keeps them.
_of_header: Final = attrgetter(
    "durable", "priority", "time_to_live", "first_acquirer", "delivery_count"
)
_of_properties: Final = attrgetter(
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)
_EXPIRY, _CREATION = 8, 9
_NO_HEADER: Final = (None,) * 5
# Annotations that the SDK writes as they are; those that a receiver finds it turns into numbers.
_HANDED_ON: Final = frozenset((b"x-opt-scheduled-enqueue-time", b"x-opt-partition-key"))
_MAX_DURATION: Final = 922337203685477
_MAX_EXPIRY: Final = 253402243199000  # the last day of the year 9999, as the SDK has it


def shorten(sender: Any) -> None:
    """Let `sender`, which is new, take the short way where it can."""
    transport = getattr(sender, "_amqp_transport", None)
    if isinstance(transport, type):
        sender._amqp_transport = _shortened(transport)  # noqa: SLF001


@functools.cache
def _shortened(transport: Any) -> Any:
    """The SDK's transport with a short way; itself if the two ways differ."""
    try:
        from azure.servicebus._pyamqp.message import Header, Message, Properties

        long_way = transport.to_outgoing_amqp_message
        short_way = _short_way(long_way, Message, Header, Properties)
        is_alike = all(_is_alike(short_way, long_way, sample) for sample in _samples())
    except Exception as error:  # noqa: BLE001  # whatever it is: the SDK's own way is always right
        logger.debug("no short way: %r", error)
        return transport
    if not is_alike:
        logger.debug("no short way: the SDK makes something else of a message")
        return transport
    return type(
        transport.__name__, (transport,), {"to_outgoing_amqp_message": staticmethod(short_way)}
    )


def _short_way(
    long_way: Callable[[Any], Any], message: Any, header: Any, properties: Any
) -> Callable[[Any], Any]:
    """`long_way`, from an annotated message to the SDK's tuples, with a short way for most."""
    make = tuple.__new__  # as the `_make` of named tuples does

    def to_outgoing_amqp_message(annotated_message: Any) -> Any:
        fields = annotated_message.__dict__
        try:
            if (
                annotated_message.__class__ is not AmqpAnnotatedMessage
                or fields["_delivery_annotations"]
                or fields["_footer"]
            ):
                return long_way(annotated_message)
            notes = fields["_annotations"] or None
            if notes is not None:
                if not _HANDED_ON.issuperset(notes):
                    return long_way(annotated_message)
                notes = dict(notes)
            top = fields["_header"]
            values = _of_properties(fields["_properties"])
            ttl = None
            if top is not None:
                top = _of_header(top)
                ttl = top[2]
                top = make(header, top) if top != _NO_HEADER else None
            if ttl and ttl != _MAX_DURATION:
                now = _now()
                expiry = int(min(_MAX_EXPIRY, now + ttl))
                values = (*values[:_EXPIRY], expiry, now, *values[_CREATION + 1 :])
            elif values[_CREATION] is not None or values[_EXPIRY] is not None:
                return long_way(annotated_message)
            names = fields["_application_properties"]
            if values[0] is None or (names and _has_bytes(names)):
                return long_way(annotated_message)
            data, sequence, value = (
                fields["_data_body"],
                fields["_sequence_body"],
                fields["_value_body"],
            )
        except (AttributeError, KeyError):
            return long_way(annotated_message)
        rest = make(properties, values)
        return make(message, (top, None, notes, rest, names, data, sequence, value, None))

    return to_outgoing_amqp_message


def _has_bytes(names: dict[Any, Any]) -> bool:
    """Whether there are bytes among the values, which the SDK turns into text."""
    for value in names.values():  # noqa: SIM110  # a generator costs more than the loop
        if isinstance(value, bytes):
            return True
    return False


def _now() -> int:
    """The moment at which the SDK says that a message was made: UTC, taken for local time."""
    return int(time.mktime((*time.gmtime()[:8], -1)) * 1000)


def _is_alike(short: Callable[[Any], Any], long: Callable[[Any], Any], sample: Any) -> bool:
    for _ in range(3):  # in case that a second has just passed between the two
        one, other = short(sample), long(sample)
        if one == other and [*map(type, one)] == [*map(type, other)]:
            return True
    return False


def _samples() -> list[AmqpAnnotatedMessage]:
    some = {
        "message_id": "id",
        "user_id": b"user",
        "to": "to",
        "subject": "subject",
        "reply_to": "back",
        "correlation_id": "other id",
        "content_type": "text",
        "content_encoding": "zip",
        "group_id": "group",
        "group_sequence": 7,
        "reply_to_group_id": "other group",
    }
    header = {"time_to_live": 1000, "durable": True, "priority": 3, "delivery_count": 2}
    names = {"a": "b", "c": 1}
    only_id = {"message_id": "id"}
    notes: Any = dict.fromkeys(_HANDED_ON, 5)
    return [
        AmqpAnnotatedMessage(data_body=b"data", properties=only_id),
        AmqpAnnotatedMessage(
            data_body=[b"a", b"b"], header=header, properties=some, application_properties=names
        ),
        AmqpAnnotatedMessage(
            value_body="value", header={"time_to_live": _MAX_DURATION}, properties=only_id
        ),
        AmqpAnnotatedMessage(
            sequence_body=[1],
            header={"first_acquirer": True},
            properties=only_id,
            annotations=notes,
        ),
        AmqpAnnotatedMessage(
            data_body=b"",
            header={"time_to_live": _MAX_EXPIRY},
            properties={"message_id": "id", "creation_time": 5, "absolute_expiry_time": 6},
        ),
    ]
