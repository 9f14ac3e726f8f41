"""Stored messages as the broker delivers them."""

import uuid

import pytest

from pairbus.amqp.encoder import encode
from pairbus.amqp.message import Header, Message, Properties
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.broker.entities.messages import LOCKED, Delivery, StoredMessage
from pairbus.broker.server.outgoing import render_delivery, render_locked

SAMPLE = Message.build(
    properties=Properties(message_id="id", subject="s"),
    application_properties={"s": "x"},
    data=b"body",
)


def stored(annotations=None, **fields):
    message = StoredMessage()
    notes = (
        encode({Symbol(key): value for key, value in annotations.items()}) if annotations else b""
    )
    values = {
        "annotations": notes, "bare": SAMPLE.bare, "dead_letter_source": None, "delivery_count": 2,
        "durable": True, "enqueued_sequence_number": 7, "enqueued_time": 99, "priority": 3,
        "sequence_number": 5, "state": LOCKED, "ttl": 77, **fields,
    }  # fmt: skip
    for name, value in values.items():
        setattr(message, name, value)
    return message


def test_rendered_message_reads_as_the_broker_meant_it():
    token = uuid.uuid4()
    delivery = Delivery(token.bytes_le, 1234, stored({"mine": "kept"}))
    message = Message.parse(render_delivery(delivery))
    assert message.header == Header(True, 3, 77, None, 2)
    assert message.delivery_annotations == {"x-opt-lock-token": token}
    assert message.message_annotations == {
        "mine": "kept", "x-opt-sequence-number": 5, "x-opt-enqueued-time": Timestamp(99),
        "x-opt-enqueue-sequence-number": 7, "x-opt-locked-until": Timestamp(1234),
    }  # fmt: skip
    assert all(type(key) is Symbol for key in message.message_annotations)
    assert message.bare == SAMPLE.bare


def test_message_without_a_lock_names_none():
    message = Message.parse(render_delivery(Delivery(b"", 0, stored(delivery_count=0))))
    assert message.header.delivery_count == 0
    assert message.delivery_annotations is None
    assert "x-opt-locked-until" not in message.message_annotations


@pytest.mark.parametrize("ttl", [None, 0, 77, 2**40])
@pytest.mark.parametrize("durable", [True, False])
def test_header_says_what_is_stored(durable, ttl):
    delivery = Delivery(uuid.uuid4().bytes_le, 1234, stored(durable=durable, ttl=ttl))
    expected = Header(durable, 3, None if ttl is None else min(ttl, 2**32 - 1), None, 2)
    assert Message.parse(render_delivery(delivery)).header == expected
    assert b"".join(render_locked(delivery)) == render_delivery(delivery)


def test_many_annotations_are_rendered_in_a_wide_map():
    annotations = {f"x-opt-{n}": n for n in range(200)}
    message = Message.parse(render_delivery(Delivery(b"", 0, stored(annotations))))
    found = message.message_annotations
    assert {key: found[key] for key in annotations} == annotations
    assert found["x-opt-sequence-number"] == 5
