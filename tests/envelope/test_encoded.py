"""Messages are taken apart and put together at their sections, byte for byte."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.types import Decimal128, Described, Int, Symbol, Timestamp, UByte, UInt, ULong
from pairbus.envelope import aliases as envelope
from pairbus.envelope.encoded import (
    ALIAS_NAMES,
    _open_slowly,
    compose,
    join,
    open_message,
    sections,
    skip,
)


def section(code, value):
    return b"\x00\x53" + bytes([code]) + encode(value)


def delivered(*, application=None, annotations=None, header=None, properties=None):
    parts = [
        section(0x70, header or [True, UByte(7), None, False, UInt(2)]),
        section(0x71, {Symbol("x-opt-lock-token"): uuid.UUID(int=1)}),
        section(
            0x72,
            {
                Symbol("x-opt-sequence-number"): 4711,
                Symbol("x-opt-enqueued-time"): Timestamp(1_700_000_000_000),
                Symbol("x-opt-locked-until"): Timestamp(1_700_000_060_000),
                **(annotations or {}),
            },
        ),
        section(0x73, properties if properties is not None else ["id-1", b"user", "to"]),
    ]
    if application is not None:
        parts.append(section(0x74, application))
    parts.append(section(0x75, b"body"))
    parts.append(section(0x78, {Symbol("crc"): 1}))
    return b"".join(parts)


def test_the_names_of_the_aliases_are_those_of_the_envelope():
    assert [name.decode() for name in ALIAS_NAMES] == list(envelope.ALIASES)


def test_the_brokers_marks_are_read_and_taken_off():
    opened = open_message(delivered(annotations={Symbol("x-mine"): "kept"}))
    assert opened.sequence_number == 4711
    assert opened.enqueued_time == 1_700_000_000_000
    assert opened.locked_until == 1_700_000_060_000
    assert opened.delivery_count == 2
    found, body = sections(opened.message)
    assert 0x71 not in found
    assert decode(opened.message, found[0x72][0])[0] == {"x-mine": "kept"}
    assert decode(opened.message, found[0x70][0])[0] == [True, 7, None]
    assert opened.message[body:] == section(0x75, b"body") + section(0x78, {Symbol("crc"): 1})


def test_aliases_are_read_and_taken_out_and_the_rest_keeps_its_types():
    odd = {
        "decimal": Decimal128(b"\x01" * 16),
        "symbol": Symbol("s"),
        "ulong": ULong(5),
        "described": Described(ULong(9), "x"),
        "none": None,
        "long text": "x" * 300,
    }
    opened = open_message(
        delivered(
            application={
                **odd,
                "x-ms-path": "orders",
                "x-ms-sessionid": "s" * 128,
                "x-ms-timetolive": 60_000,
                "x-ms-scheduledenqueuetimeutc": Timestamp(1_800_000_000_000),
            }
        )
    )
    assert opened.path == "orders"
    assert opened.session_id == "s" * 128
    assert opened.time_to_live == 60_000
    assert opened.scheduled == 1_800_000_000_000
    assert opened.problem is None
    found, _ = sections(opened.message)
    start, end = found[0x74]
    assert opened.message[start:end] == encode(odd)


def test_application_properties_that_held_only_aliases_are_gone():
    opened = open_message(delivered(application={"x-ms-path": "orders"}))
    assert 0x74 not in sections(opened.message)[0]


@pytest.mark.parametrize(
    ("application", "problem"),
    [
        ({"x-ms-path": b"orders"}, "x-ms-path is of type bytes"),
        ({"x-ms-path": Symbol("orders")}, "x-ms-path is of type Symbol"),
        ({"x-ms-path": None}, "x-ms-path is null"),
        ({"x-ms-path": "a", "x-ms-timetolive": UInt(1)}, "x-ms-timetolive is of type UInt"),
        ({"x-ms-path": "a", "x-ms-timetolive": "1"}, "x-ms-timetolive is of type str"),
        (
            {"x-ms-path": "a", "x-ms-scheduledenqueuetimeutc": 5},
            "x-ms-scheduledenqueuetimeutc is of type int",
        ),
    ],
)
def test_an_alias_of_another_type_is_named(application, problem):
    assert open_message(delivered(application=application)).problem == problem


def test_without_asking_for_aliases_they_stay():
    application = {"x-ms-path": "orders"}
    opened = open_message(delivered(application=application), aliases=False)
    assert opened.path is None
    found, _ = sections(opened.message)
    assert decode(opened.message, found[0x74][0])[0] == application


def test_what_waited_in_aliases_is_put_back_where_it_belongs():
    plain = open_message(delivered(properties=["id"] + [None] * 8 + [Timestamp(1000)])).message
    message = compose(plain, session_id="s-1", time_to_live=5000, scheduled=99_000)
    found, body = sections(message)
    header = decode(message, found[0x70][0])[0]
    assert header == [True, 7, 5000]
    assert isinstance(header[2], UInt)
    annotations = decode(message, found[0x72][0])[0]
    assert annotations == {"x-opt-scheduled-enqueue-time": 99_000}
    assert isinstance(annotations["x-opt-scheduled-enqueue-time"], Timestamp)
    properties = decode(message, found[0x73][0])[0]
    assert properties[0] == "id"
    assert properties[8] == 6000
    assert properties[10] == "s-1"
    assert message[body:] == plain[sections(plain)[1] :]


def test_the_next_message_of_the_same_shape_has_its_own_marks():
    def number(sequence, state):
        marks = {
            Symbol("x-opt-sequence-number"): sequence,
            Symbol("x-opt-message-state"): Int(state),
        }
        opened = open_message(section(0x72, marks) + section(0x75, b"x"))
        return opened.sequence_number, opened.state, opened.message

    body = section(0x75, b"x")
    assert number(2**40, 2) == (2**40, 2, body)
    assert number(2**40 + 1, 2) == (2**40 + 1, 2, body)
    assert number(2**40 + 2, 0) == (2**40 + 2, 0, body)
    assert number(2**40 + 3, 2) == (2**40 + 3, 2, body)


def test_a_message_that_needs_nothing_is_the_same_bytes():
    assert compose(b"anything") == b"anything"


def test_a_session_id_needs_no_properties_to_begin_with():
    message = compose(section(0x77, "v"), session_id="s")
    found, _ = sections(message)
    assert decode(message, found[0x73][0])[0][10] == "s"


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**62), 2**62), st.text(), st.binary()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(values, st.binary(max_size=5))
def test_skip_ends_where_decode_ends(value, tail):
    data = encode(value) + tail
    assert skip(data, 0) == decode(data, 0)[1]


def test_a_batch_is_a_row_of_data_sections():
    messages = [b"a", b"b" * 300]
    assert join(messages) == section(0x75, b"a") + section(0x75, b"b" * 300)


numbers = st.one_of(st.integers(-128, 127), st.integers(-(2**63), 2**63 - 1))
fronts = st.fixed_dictionaries(
    {},
    optional={
        Symbol("x-opt-sequence-number"): numbers,
        Symbol("x-opt-enqueue-sequence-number"): numbers,
        Symbol("x-opt-enqueued-time"): numbers.map(Timestamp),
        Symbol("x-opt-locked-until"): numbers.map(Timestamp),
        Symbol("x-opt-message-state"): st.integers(0, 2).map(Int),
        Symbol("x-opt-deadletter-source"): st.text(max_size=3),
        Symbol("x-mine"): st.text(max_size=3),
    },
)


@given(
    st.lists(
        st.builds(
            delivered,
            application=st.sampled_from([None, {"x-ms-path": "a"}, {"k": 1}, {"x-ms-path": 1}]),
            annotations=fronts,
            header=st.sampled_from(
                [None, [], [False, UByte(4), None, None, UInt(0)], [None, None, UInt(5)]]
            ),
            properties=st.sampled_from([None, [], ["i" * 300], [ULong(3)]]),
        ),
        max_size=10,
    )
)
def test_a_message_is_the_same_whatever_was_seen_before_it(payloads):
    for payload in payloads:
        for aliases in (True, False):
            assert open_message(payload, aliases=aliases) == _open_slowly(payload, aliases)
