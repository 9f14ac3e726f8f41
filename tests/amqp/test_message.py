"""Messages: sections, edits, batches, rendering."""

import pytest

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.errors import ProtocolError
from pairbus.amqp.message import (
    Header,
    Message,
    Properties,
    join_batch,
    raw_entries,
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


def test_raw_entries_hold_the_bytes_of_each_pair():
    section = sample().raw_section(0x74)
    entries = raw_entries(section)
    assert set(entries) == {"i", "s"}
    key, after = decode(entries["i"])
    assert (key, decode(entries["i"], after)[0]) == ("i", 3)


def test_annotations_that_the_sdk_writes_last_are_moved_to_their_place():
    late = b"\x00\x53\x71" + encode({Symbol("x"): 1})
    for body in (b"\x00\x53\x75\xa0\x01z", b"\x00\x53\x75\xa0\x01z\x00\x53\x78\xc1\x01\x00"):
        message = Message.parse(body + late)
        assert message.body == b"z"
        assert message.delivery_annotations == {"x": 1}
        assert message.encode() == late + body


def test_message_without_a_body_has_none():
    message = Message.parse(b"\x00\x53\x73\x45")
    assert message.body is None
    assert message.body_kind is None
    assert message.properties == Properties()
    assert repr(message) == "<Message of 4 bytes>"


@pytest.mark.parametrize(
    ("payload", "section"),
    [(b"\x00\x53\x74\x45", "application_properties"), (b"\x00\x53\x72\x45", "message_annotations"),
     (b"\x00\x53\x75\xa1\x01x", "body"), (b"\x00\x53\x77\xc0\x03\x01\x40\x40", "body")],
)  # fmt: skip
def test_section_of_a_wrong_type_is_refused_when_read(payload, section):
    with pytest.raises(ProtocolError) as caught:
        getattr(Message.parse(payload), section)
    assert caught.value.condition == "amqp:decode-error"


def test_batch_with_unusual_encodings_comes_apart():
    symbol = b"\x00" + encode(Symbol("amqp:data:binary"))
    assert split_batch(symbol + b"\xa0\x03one" + b"\x00\x53\x75\xa0\x03two") == [b"one", b"two"]


@pytest.mark.parametrize(
    "payload",
    [b"\x00\x53\x77\x40", b"\x00\x53\x76\x45", b"\x00\x53\x75\xa1\x01x", b"\x00\x53\x75\xa0\x01",
     b"\x00\x53\x75\xb0\x00"],
)  # fmt: skip
def test_batch_of_anything_but_data_is_refused(payload):
    with pytest.raises(ProtocolError) as caught:
        split_batch(payload)
    assert caught.value.condition == "amqp:decode-error"


@pytest.mark.parametrize(
    "section",
    [b"\x00\x53\x74\x45", b"\x00\x53\x74\xc1\x05\x04\xa1\x01a\x41",
     b"\x00\x53\x74\xc1\x03\x02\x45\x41", b"\x00\x53\x74\xc1\x02\x00\x40"],
)  # fmt: skip
def test_raw_entries_refuse_what_is_not_a_map_with_hashable_keys(section):
    with pytest.raises(ProtocolError):
        raw_entries(section)


def test_raw_entries_of_a_wide_map():
    section = b"\x00\x53\x74" + encode({"a": "x" * 300})
    assert raw_entries(section) == {"a": encode("a") + encode("x" * 300)}
