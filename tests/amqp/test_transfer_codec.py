"""The special codec for transfers and dispositions agrees with the general one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.composite import compose, decode_composite
from pairbus.amqp.decoder import MALFORMED
from pairbus.amqp.disposition_codec import disposition_frame, read_disposition
from pairbus.amqp.errors import ProtocolError
from pairbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Disposition,
    Error,
    Modified,
    Rejected,
    Transfer,
)
from pairbus.amqp.transfer_codec import TransferWriter, read_transfer
from pairbus.amqp.types import Described, UByte, UInt, ULong

pytestmark = pytest.mark.slow

maybe_flag = st.sampled_from([None, True, False])
uints = st.one_of(st.just(0), st.integers(0, 255), st.integers(0, 2**32 - 1))
states = st.sampled_from([
    None, ACCEPTED, RELEASED, Modified(True, False), Rejected(Error("amqp:not-found", "x" * 300)),
])  # fmt: skip


def wide(fields):
    """The list in its four-byte form, whatever its size."""
    body = b"".join(value.encode() if hasattr(value, "CODE") else encode(value) for value in fields)
    return b"\xd0" + (len(body) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + body


def narrow(fields):
    raw = wide(fields)
    if len(raw) - 9 > 250:
        return raw
    return b"\xc0" + bytes((len(raw) - 8, len(fields))) + raw[9:]


def transfer_fields(transfer):
    return (
        transfer.handle, transfer.delivery_id, transfer.delivery_tag, transfer.message_format,
        transfer.settled, transfer.more, transfer.rcv_settle_mode, transfer.state, transfer.aborted,
    )  # fmt: skip


@given(st.tuples(
    uints.map(UInt), st.one_of(st.none(), uints.map(UInt)),
    st.one_of(st.none(), st.binary(max_size=300)), st.one_of(st.none(), uints.map(UInt)),
    maybe_flag, maybe_flag, st.one_of(st.none(), st.integers(0, 1).map(UByte)), states,
    maybe_flag, maybe_flag, maybe_flag, st.integers(1, 11), st.sampled_from([wide, narrow]),
    st.binary(max_size=20),
))  # fmt: skip
@settings(max_examples=300)
def test_transfers_are_read_as_the_general_decoder_reads_them(drawn):
    *fields, count, form, payload = drawn
    raw = form(fields[:count])
    body = b"\x00\x53\x14" + raw + payload
    expected, end = decode_composite(body)
    assert isinstance(expected, Transfer)
    got = read_transfer(body, 3)
    assert got[:-1] == transfer_fields(expected)
    assert got[-1] == end
    assert body[got[-1] :] == payload


@given(st.binary(max_size=60))
@settings(max_examples=300)
def test_noise_is_refused_by_both_readers_alike(noise):
    for lead in (b"\xc0", b"\xd0\x00\x00\x00", b"\xc0\x14\x0b", b""):
        body = b"\x00\x53\x14" + lead + noise
        try:
            general, _ = decode(body)
            expected = compose(general)
        except ProtocolError:
            expected = None
        if isinstance(expected, Transfer):
            assert read_transfer(body, 3)[:-1] == transfer_fields(expected)
        else:
            with pytest.raises((ProtocolError, *MALFORMED)):
                read_transfer(body, 3)


@given(st.booleans(), uints, uints, st.booleans(), states)
def test_dispositions_are_written_and_read_alike(role, first, last, settled, state):
    frame = disposition_frame(5, role, first, last, settled, state)
    assert int.from_bytes(frame[:4], "big") == len(frame)
    assert frame[6:8] == b"\x00\x05"
    general, end = decode_composite(frame[8:])
    assert end == len(frame) - 8
    assert general == Disposition(role, first, last, settled, state, False)
    fast = read_disposition(frame[8:], 3)
    if state in (ACCEPTED, RELEASED) or fast is not None:
        assert fast == (role, first, last, settled, state)


@given(st.tuples(
    st.booleans(), st.one_of(st.none(), uints.map(UInt)), st.one_of(st.none(), uints.map(UInt)),
    maybe_flag, states, maybe_flag, st.integers(2, 6), st.sampled_from([wide, narrow]),
))  # fmt: skip
@settings(max_examples=200)
def test_dispositions_of_others_are_read_or_left_to_the_general_reader(drawn):
    *fields, count, form = drawn
    body = b"\x00\x53\x15" + form(fields[:count])
    fast = read_disposition(body, 3)
    if fast is not None:
        general = compose(decode(body)[0])
        last = general.first if general.last is None else general.last
        assert fast == (general.role, general.first, last, general.settled, general.state)


@pytest.mark.parametrize("settled", [False, True])
def test_the_disposition_that_azure_servicebus_writes_is_read_the_short_way(settled):
    flag = b"\x56\x01" if settled else b"\x56\x00"
    body = b"\x00\x53\x15\xc0\x0d\x06\x56\x01\x52\x01\x40" + flag + b"\x00\x53\x24\x45\x40"
    assert read_disposition(body, 3) == (True, 1, 1, settled, ACCEPTED)


@given(uints, st.binary(max_size=300), uints, st.booleans(), st.booleans(), states, st.binary())
def test_transfer_frames_say_what_was_meant(number, tag, form, settled, more, state, payload):
    frame = TransferWriter(7, 300).frame(number, tag, form, settled, payload, more, state)
    assert int.from_bytes(frame[:4], "big") == len(frame)
    transfer, end = decode_composite(frame[8:])
    assert transfer == Transfer(300, number, tag, form, settled, more, None, state)
    assert frame[8 + end :] == payload


def test_further_frames_name_only_the_link():
    writer = TransferWriter(0, 1)
    transfer, _ = decode_composite(writer.next_frame(b"", True)[8:])
    assert transfer == Transfer(1, settled=False, more=True)


def test_unknown_states_are_kept_as_they_are():
    odd = Described(ULong(0x99), [1])
    body = b"\x00\x53\x14" + narrow(
        [UInt(1), UInt(2), b"t", UInt(0), False, False, None, odd, None]
    )
    assert read_transfer(body, 3)[7] == odd


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("c00705" + "5200" + "43" + "a000" + "43" + "a100", "settled has"),
        ("c00806" + "5200" + "43" + "a000" + "4342" + "a100", "more has"),
        ("c00907" + "5200" + "43" + "a000" + "434242" + "43", "rcv_settle_mode has"),
        ("c00b09" + "5200" + "43" + "a000" + "4342424040" + "43", "resume has"),
        ("c00806" + "5200" + "43" + "a000" + "434242" + "40", "disagree"),  # a field too many
        ("c00707" + "5200" + "43" + "a000" + "434242", "disagree"),  # a field too few
        ("c00908" + "5200" + "43" + "a000" + "434242" + "40", "disagree"),
    ],
)
def test_malformed_transfers_are_refused_as_by_the_general_decoder(raw, message):
    body = bytes.fromhex("005314" + raw)
    body = body[:4] + bytes((len(body) - 5,)) + body[5:] + b"payload"
    with pytest.raises(ProtocolError, match=message):
        read_transfer(body, 3)
    with pytest.raises(ProtocolError):
        decode_composite(body)


def test_flags_in_their_long_form_are_read():
    body = bytes.fromhex("005314c0" + "11" + "0b" + "5200" + "43" + "a000" + "43")
    body += b"\x56\x01\x56\x01\x50\x01\x40\x56\x00\x56\x01\x56\x00"
    body = body[:4] + bytes((len(body) - 5,)) + body[5:]
    fields = read_transfer(body, 3)
    assert fields[4:9] == (True, True, 1, None, True)
    assert fields[:9] == transfer_fields(decode_composite(body)[0])


def test_tag_with_a_wide_length_is_read():
    tag = b"\xb0\x00\x00\x00\x02ab"
    body = b"\x00\x53\x14\xc0" + bytes((5 + len(tag), 3)) + b"\x52\x01\x52\x02" + tag
    assert read_transfer(body, 3)[:3] == (1, 2, b"ab")
