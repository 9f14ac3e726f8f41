"""Messages: sections, edits, batches, rendering."""

import uuid

import pytest

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.errors import ProtocolError
from pairbus.amqp.message import (
    Header,
    Message,
    Properties,
    encode_entries,
    header_head,
    join_batch,
    raw_entries,
    render,
    split_batch,
)
from pairbus.amqp.types import Int, Symbol, Timestamp, UInt, ULong


def sample() -> Message:
    return Message.build(
        header=Header(durable=True, ttl=1000),
        message_annotations={"x-opt-a": 1},
        properties=Properties(message_id="id", subject="s", creation_time=5),
        application_properties={"i": Int(3), "s": "x"},
        data=b"body",
    )


def test_sections_are_read_back():
    message = Message.parse(sample().encode())
    assert message.header == Header(durable=True, ttl=1000)
    assert message.message_annotations == {"x-opt-a": 1}
    assert message.delivery_annotations is None
    assert message.properties.message_id == "id"
    assert type(message.properties.creation_time) is Timestamp
    assert message.application_properties == {"i": 3, "s": "x"}
    assert message.body == b"body"
    assert message.footer is None


def test_bare_message_is_the_very_bytes():
    payload = sample().encode()
    message = Message.parse(payload)
    assert payload.endswith(message.bare)
    assert message.bare.startswith(b"\x00\x53\x73")
    changed = message.replace(header=Header(delivery_count=4), message_annotations=None)
    assert changed.bare is message.bare
    assert Message.parse(changed.encode()).header.delivery_count == 4


def test_edit_keeps_the_bytes_of_values_that_stay():
    # Given application properties with a wide uint that an encoder of ours would write short
    wide = b"\xa1\x01a\x70\x00\x00\x00\x01" + b"\xa1\x01b\x80" + bytes(7) + b"\x05"
    section = b"\x00\x53\x74\xc1" + bytes((len(wide) + 1, 4)) + wide
    message = Message.parse(section + b"\x00\x53\x75\xa0\x01z")
    # When one is added
    values = dict(message.application_properties)
    assert values == {"a": UInt(1), "b": ULong(5)}
    values["c"] = "new"
    changed = message.replace(application_properties=values)
    # Then the others are as they were, byte for byte, and so is the body
    assert wide in changed.encode()
    assert changed.encode().endswith(b"\x00\x53\x75\xa0\x01z")
    assert Message.parse(changed.encode()).application_properties == {"a": 1, "b": 5, "c": "new"}


def test_sections_can_be_removed_and_added():
    message = sample().replace(application_properties=None, properties=None)
    assert message.bare == b"\x00\x53\x75\xa0\x04body"
    again = message.replace(properties=Properties(message_id=ULong(7)))
    assert Message.parse(again.encode()).properties.message_id == ULong(7)
    assert again.body == b"body"


@pytest.mark.parametrize(
    ("body", "expected"),
    [({"value": {"a": 1}}, {"a": 1}), ({"value": None}, None),
     ({"sequence": [[1], [2]]}, [[1], [2]]), ({"data": [b"a", b"b"]}, b"ab"), ({}, b"")],
)  # fmt: skip
def test_bodies_of_all_kinds(body, expected):
    message = Message.parse(Message.build(**body, footer={"f": 1}).encode())
    assert message.body == expected
    assert message.footer == {"f": 1}


def test_long_descriptors_are_understood():
    payload = b"\x00\x80" + (0x70).to_bytes(8, "big") + b"\xc0\x02\x01\x41"
    payload += b"\x00" + encode(Symbol("amqp:data:binary")) + b"\xa0\x01x"
    message = Message.parse(payload)
    assert message.header.durable is True
    assert message.body == b"x"


@pytest.mark.parametrize(
    "payload",
    [b"\x00", b"\x01\x02", b"\x00\x53\x75", b"\x00\x53\x75\xa0\x05x", b"\x00\x53\x99\x40",
     b"\x00\x53\x72\xc1\x01\x00\x00\x53\x70\x45", b"\x00\x53\x70\x45\x00\x53\x70\x45"],
)  # fmt: skip
def test_what_is_no_message_is_refused(payload):
    with pytest.raises(ProtocolError):
        _ = Message.parse(payload).body


@pytest.mark.parametrize(
    "bare",
    [b"\x00\x53\x75\xa0\x01x\x00\x53\x77\x40", b"\x00\x53\x75\xa0\x01x\x00\x53\x73\x45",
     b"\x00\x53\x77\x40\x00\x53\x77\x40"],
)  # fmt: skip
def test_sections_out_of_order_are_refused_when_read(bare):
    with pytest.raises(ProtocolError):
        _ = Message.parse(bare).body


def test_batch_comes_apart_as_it_was_joined():
    messages = [sample().encode(), b"", b"x" * 5000]
    assert split_batch(join_batch(messages)) == messages
    head = Message.build(properties=Properties(message_id="first")).raw_section(0x73)
    assert split_batch(join_batch(messages, head)) == messages
    short = b"".join(b"\x00\x53\x75" + encode(m) for m in messages)
    assert split_batch(short) == messages


@pytest.mark.parametrize("cut", range(1, 12))
def test_batch_that_is_cut_short_is_refused(cut):
    with pytest.raises(ProtocolError):
        split_batch(join_batch([b"hello"])[:-cut])


def test_rendered_message_reads_as_the_broker_meant_it():
    token = uuid.uuid4()
    entries, count = encode_entries({"x-opt-sequence-number": 5, "mine": "kept"})
    payload = render(
        header_head(Header(durable=True, priority=3, ttl=77)), 2, entries, count, sample().bare,
        lock_token=token.bytes, locked_until=1234,
    )  # fmt: skip
    message = Message.parse(payload)
    assert message.header == Header(True, 3, 77, None, 2)
    assert message.delivery_annotations == {"x-opt-lock-token": token}
    assert message.message_annotations == {
        "x-opt-sequence-number": 5, "mine": "kept", "x-opt-locked-until": Timestamp(1234)
    }  # fmt: skip
    assert all(type(k) is Symbol for k in message.message_annotations)
    assert message.bare == sample().bare
    assert Message.parse(render(header_head(None), 0, b"", 0, b"")).header.delivery_count == 0


def test_raw_entries_hold_the_bytes_of_each_pair():
    section = sample().raw_section(0x74)
    entries = raw_entries(section)
    assert set(entries) == {"i", "s"}
    key, after = decode(entries["i"])
    assert (key, decode(entries["i"], after)[0]) == ("i", 3)
