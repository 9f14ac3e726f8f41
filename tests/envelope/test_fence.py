"""Fences and their answers: what one side writes the other reads, and nothing else is a fence."""

import pytest

from pairbus.amqp.codec import encode
from pairbus.amqp.message import Message
from pairbus.amqp.types import Symbol
from pairbus.envelope.fence import (
    ANSWER_CONTENT_TYPE,
    FENCE_CONTENT_TYPE,
    Fence,
    encode_answer,
    read_fence,
)


def fence_bytes(message_id="f1", to="orders", kind=FENCE_CONTENT_TYPE, session="client-1"):
    fields = [message_id, None, to, None, None, None, Symbol(kind), *[None] * 5, session]
    return b"\x00\x53\x73" + encode(fields) + b"\x00\x53\x75" + encode(b"")


def test_a_fence_names_its_destination_and_the_session_of_its_client():
    assert read_fence(fence_bytes()) == Fence("f1", "orders", "client-1")


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "text/plain"},
        {"kind": ANSWER_CONTENT_TYPE},
        {"to": None},
        {"session": ""},
        {"message_id": b"bytes"},
    ],
    ids=str,
)
def test_other_messages_are_no_fences(changes):
    assert read_fence(fence_bytes(**changes)) is None


def test_a_body_that_mentions_a_fence_is_no_fence():
    body = b"\x00\x53\x75" + encode(FENCE_CONTENT_TYPE.encode())
    assert read_fence(body) is None
    assert read_fence(b"\x00\x53\x73" + encode(["m1"]) + body) is None


@pytest.mark.parametrize("properties", [b"\xc0\xff\xff", b"\x3f", b"\xc0", b"\x71\0\0\0\1"])
def test_a_message_that_cannot_be_read_is_no_fence(properties):
    body = b"\x00\x53\x75" + encode(FENCE_CONTENT_TYPE.encode())
    assert read_fence(b"\x00\x53\x73" + properties + body) is None


def test_an_answer_goes_to_the_session_of_the_client_and_expires():
    fence = Fence("f1", "orders", "client-1")

    answer = Message.parse(encode_answer(fence, message_id="a1", syphon="syphon-7"))

    found = answer.properties
    assert (found.message_id, found.correlation_id, found.to) == ("a1", "f1", "orders")
    assert (found.group_id, found.subject) == ("client-1", "syphon-7")
    assert found.content_type == ANSWER_CONTENT_TYPE
    assert answer.header.ttl == 86_400_000
