"""The one-pass summary says what the sections say, or refuses as they do."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.codec import encode
from pairbus.amqp.errors import ProtocolError
from pairbus.amqp.message import Header, Message, Properties
from pairbus.amqp.summary import find_entries, summarize
from pairbus.amqp.types import Symbol

from .strategies import SCALARS, values

optional = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=10))
headers = st.one_of(st.none(), st.builds(
    Header, st.one_of(st.none(), st.booleans()), st.one_of(st.none(), st.integers(0, 255)),
    st.one_of(st.none(), st.integers(0, 2**32 - 1))))  # fmt: skip
properties = st.one_of(st.none(), st.builds(
    Properties,
    message_id=st.one_of(st.none(), SCALARS["string"], SCALARS["uuid"], SCALARS["ulong"]),
    to=optional, subject=optional, content_type=st.one_of(st.none(), SCALARS["symbol"]),
    absolute_expiry_time=st.one_of(st.none(), SCALARS["timestamp"]),
    creation_time=st.one_of(st.none(), SCALARS["timestamp"]), group_id=optional,
    group_sequence=st.one_of(st.none(), st.integers(0, 2**32 - 1))))  # fmt: skip


@given(headers, properties, st.one_of(st.none(), st.dictionaries(SCALARS["symbol"], values)))
@settings(max_examples=100)
def test_summary_says_what_the_sections_say(header, props, annotations):
    message = Message.build(
        header=header, properties=props, message_annotations=annotations, data=b"x"
    )
    payload = message.encode()
    summary = summarize(payload)
    header, props = header or Header(), props or Properties()
    assert (summary.durable, summary.priority, summary.ttl) == (
        header.durable, header.priority, header.ttl
    )  # fmt: skip
    assert summary.message_id == props.message_id
    assert type(summary.message_id) is type(props.message_id)
    assert summary.content_type == props.content_type
    assert summary.absolute_expiry_time == props.absolute_expiry_time
    assert summary.creation_time == props.creation_time
    assert summary.group_id == props.group_id
    assert summary.bare == Message.parse(payload).bare
    assert summary.annotations == (b"" if annotations is None else encode(annotations))


@given(st.binary(max_size=100))
@settings(max_examples=200)
def test_noise_is_a_summary_or_a_protocol_error(noise):
    for prefix in (b"", b"\x00\x53\x70", b"\x00\x53\x73\xc0", b"\x00\x53\x72\xc1"):
        with contextlib.suppress(ProtocolError):
            summarize(prefix + noise)
        with contextlib.suppress(ProtocolError):
            find_entries(b"\xc1" + noise, 0, frozenset({b"a"}))


@pytest.mark.parametrize(
    "payload",
    [b"\x00\x53\x73\x40", b"\x00\x53\x70\x40", b"\x00\x53\x70\xc0\x02\x01\xa1",
     b"\x00\x53\x73" + encode([1]), b"\x00\x53\x73" + encode([None] * 14),
     b"\x00\x53\x70" + encode(["x"]), b"\x00\x53\x72\xc1\x01\x00\x00\x53\x70\x45",
     b"\x00\x53\x73" + encode([None] * 6 + ["not a symbol"]),
     b"\x00\x53\x73\xc0\x03\x01\x40\x40", b"\x00\x53\x70\xc0\x20\x01\x41"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(payload):
    with pytest.raises(ProtocolError):
        summarize(payload)


def test_entries_are_found_by_name_whatever_their_form():
    section = encode({Symbol("a"): 1, "b": "two", Symbol("c"): [3], 5: None})
    assert find_entries(section, 0, frozenset({b"a", b"b", b"x"})) == {b"a": 1, b"b": "two"}
    wide = encode({Symbol("a"): 1, Symbol("pad"): b"x" * 300})
    assert find_entries(wide, 0, frozenset({b"a"})) == {b"a": 1}
    with pytest.raises(ProtocolError):
        find_entries(encode([1]), 0, frozenset())


def test_empty_and_wide_properties_are_read():
    assert summarize(b"\x00\x53\x73\x45").message_id is None
    wide = Message.build(properties=Properties(message_id="i" * 300, group_id="g")).encode()
    summary = summarize(wide)
    assert (summary.message_id, summary.group_id) == ("i" * 300, "g")


def test_delivery_annotations_are_skipped():
    message = Message.build(
        delivery_annotations={"x": 1}, properties=Properties(message_id="m"), data=b"x"
    )
    summary = summarize(message.encode())
    assert summary.message_id == "m"
    assert summary.annotations == b""


def test_headers_beyond_the_cache_are_read_too():
    for ttl in range(1000, 1400):
        payload = Message.build(header=Header(ttl=ttl)).encode()
        assert summarize(payload).ttl == summarize(payload).ttl == ttl


def test_entries_with_bytes_after_the_last_are_refused():
    with pytest.raises(ProtocolError, match="disagree"):
        find_entries(b"\xc1\x02\x00\x40", 0, frozenset())


def test_header_with_a_field_of_a_wrong_type_is_refused():
    header = b"\x00\x53\x70" + encode([None, None, None, None, b"x" * 100_000])
    with pytest.raises(ProtocolError, match="delivery_count"):
        summarize(header + Message.build(data=b"x").encode())
