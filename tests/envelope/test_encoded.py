"""Messages are taken apart and put together at their sections, byte for byte."""

import subprocess
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.types import Decimal128, Described, Int, Symbol, Timestamp, UByte, UInt, ULong
from pairbus.envelope import encoded
from pairbus.envelope.cutting import sections, skip
from pairbus.envelope.encoded import open_message, restore
from pairbus.envelope.prefix import Prefixes
from tests.amqp import strategies

NOW = 2_000_000_000_000


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


def test_the_annotations_of_the_broker_are_read_and_removed():
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


@pytest.mark.parametrize("text", [b"\xa1\x02\xff\xfe", b"\xb1\x00\x00\x00\x02\xff\xfe"])
def test_an_alias_that_cannot_be_decoded_is_named(text):
    entries = encode("x-ms-path") + text
    properties = b"\x00\x53\x74\xc1" + bytes((len(entries) + 1, 2)) + entries
    opened = open_message(properties + section(0x75, b"x"))
    assert opened.problem == "x-ms-path cannot be decoded"
    assert opened.message == section(0x75, b"x")


def test_without_asking_for_aliases_they_stay():
    application = {"x-ms-path": "orders"}
    opened = open_message(delivered(application=application), aliases=False)
    assert opened.path is None
    found, _ = sections(opened.message)
    assert decode(opened.message, found[0x74][0])[0] == application


def test_values_of_aliases_are_put_back_into_their_fields():
    plain = open_message(delivered(properties=["id"] + [None] * 8 + [Timestamp(1000)])).message
    message = restore(plain, session_id="s-1", time_to_live=5000, scheduled=99_000, now=NOW)
    found, body = sections(message)
    header = decode(message, found[0x70][0])[0]
    assert header == [True, 7, 5000]
    assert isinstance(header[2], UInt)
    annotations = decode(message, found[0x72][0])[0]
    assert annotations == {"x-opt-scheduled-enqueue-time": 99_000}
    assert isinstance(annotations["x-opt-scheduled-enqueue-time"], Timestamp)
    properties = decode(message, found[0x73][0])[0]
    assert properties[0] == "id"
    assert properties[8] == NOW + 5000
    assert properties[9] == 1000
    assert properties[10] == "s-1"
    assert message[body:] == plain[sections(plain)[1] :]


def test_original_expiry_is_restored_where_the_time_in_the_backlog_is_deducted():
    message = restore(section(0x75, b"x"), time_to_live=700, now=NOW, expires_at=NOW + 650)
    found, _ = sections(message)
    assert decode(message, found[0x70][0])[0] == [None, None, 700]
    assert decode(message, found[0x73][0])[0][8] == NOW + 650


def test_scheduled_time_replaces_one_that_is_there_and_keeps_other_annotations():
    annotations = {Symbol("x-mine"): UByte(3), Symbol("x-opt-scheduled-enqueue-time"): "?"}
    message = restore(section(0x72, annotations) + section(0x75, b"x"), scheduled=7, now=NOW)
    found, _ = sections(message)
    assert decode(message, found[0x72][0])[0] == {"x-mine": 3, "x-opt-scheduled-enqueue-time": 7}


def test_the_next_message_of_the_same_layout_has_its_own_annotations():
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


def test_message_without_values_to_restore_is_the_same_bytes():
    assert restore(b"anything", now=NOW) == b"anything"


def test_session_id_needs_no_properties_to_begin_with():
    message = restore(section(0x77, "v"), session_id="s", now=NOW)
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
def test_message_is_opened_alike_whatever_was_received_before(payloads):
    encoded._prefixes = Prefixes()  # noqa: SLF001 - as in a new process
    fresh = []
    for payload in payloads:
        for aliases in (True, False):
            encoded._prefixes = Prefixes()  # noqa: SLF001 - as in a new process
            fresh.append(open_message(payload, aliases=aliases))
    encoded._prefixes = Prefixes()  # noqa: SLF001 - as in a new process
    assert fresh == [open_message(p, aliases=a) for p in payloads for a in (True, False)]


# -- every AMQP type in every section, byte for byte --------------------------------------------

keys = st.text(st.characters(max_codepoint=127), min_size=1, max_size=12)
ids = st.one_of(
    [strategies.SCALARS[name] for name in ("null", "string", "ulong", "uuid", "binary")]
)
text = strategies.SCALARS["string"]


@st.composite
def originals(draw):
    """The sections of a message, as a sender may write them, and the fields that are moved."""
    ttl = draw(st.none() | st.integers(1, 2**32 - 1))
    expiry = Timestamp(NOW + ttl) if ttl else draw(st.none() | strategies.SCALARS["timestamp"])
    properties = [
        draw(ids), draw(st.none() | st.binary(max_size=9)), draw(st.none() | text),
        draw(st.none() | text), draw(st.none() | text), draw(ids),
        draw(st.none() | strategies.SCALARS["symbol"]),
        draw(st.none() | strategies.SCALARS["symbol"]), expiry,
        draw(st.none() | strategies.SCALARS["timestamp"]), draw(st.none() | text),
        draw(st.none() | strategies.SCALARS["uint"]), draw(st.none() | text),
    ]  # fmt: skip
    annotations = draw(
        st.dictionaries(keys.map(lambda key: Symbol("x-" + key)), strategies.values, max_size=3)
    )
    scheduled = draw(st.none() | strategies.SCALARS["timestamp"])
    application = draw(st.dictionaries(keys, strategies.values, max_size=4))
    body = draw(
        st.lists(st.binary(max_size=300), min_size=1, max_size=3).map(
            lambda parts: b"".join(section(0x75, part) for part in parts)
        )
        | st.lists(st.lists(strategies.values, max_size=3), min_size=1, max_size=2).map(
            lambda parts: b"".join(section(0x76, part) for part in parts)
        )
        | strategies.values.map(lambda value: section(0x77, value))
    )
    if draw(st.booleans()):
        footer = draw(st.dictionaries(keys.map(Symbol), strategies.values, max_size=2))
        body += section(0x78, footer)
    durable = draw(st.none() | st.booleans())
    priority = draw(st.none() | st.integers(0, 9).map(UByte))
    return [durable, priority, ttl], annotations, scheduled, properties, application, body


def written(header, annotations, properties, application, body, extra=b""):
    parts = [section(0x70, header)] if header[:3] != [None] * 3 or len(header) > 3 else []
    parts.append(extra)
    parts += [section(0x72, annotations)] if annotations else []
    parts.append(section(0x73, properties))
    parts += [section(0x74, application)] if application else []
    return b"".join([*parts, body])


@given(originals(), text.filter(bool))
def test_restored_message_has_the_bytes_of_the_original(original, path):
    (durable, priority, ttl), annotations, scheduled, properties, application, body = original
    delayed = {Symbol("x-opt-scheduled-enqueue-time"): scheduled} if scheduled is not None else {}
    header = [durable, priority, None if ttl is None else UInt(ttl)]
    direct = written(header, {**annotations, **delayed}, properties, application, body)

    # Given: the message as a broker delivers it from a backlog queue
    aliases = {"x-ms-path": path}
    waiting = list(properties)
    if properties[10] is not None:
        aliases["x-ms-sessionid"], waiting[10] = properties[10], None
    if ttl is not None:
        aliases["x-ms-timetolive"], waiting[8] = ttl, None
    if scheduled is not None:
        aliases["x-ms-scheduledenqueuetimeutc"] = scheduled
    marks = {Symbol("x-opt-sequence-number"): 1, Symbol("x-opt-locked-until"): Timestamp(NOW)}
    backlog = written(
        [durable, priority, None, False, UInt(3)], {**marks, **annotations}, waiting,
        {**application, **aliases}, body,
        extra=section(0x71, {Symbol("x-opt-lock-token"): uuid.UUID(int=7)}),
    )  # fmt: skip

    # When: it is opened and restored
    opened = open_message(backlog)
    home = restore(
        opened.message,
        session_id=opened.session_id,
        time_to_live=opened.time_to_live,
        scheduled=opened.scheduled,
        now=NOW,
    )

    # Then
    assert opened.path == path
    assert opened.problem is None
    assert home == direct


def test_message_of_the_old_net_client_is_restored_byte_by_byte():
    delivered_bytes = (
        b"\x00\x53\x70\xc0\x07\x05\x41\x50\x04\x40\x42\x43"  # durable, priority 4, count 0
        b"\x00\x53\x72\xc1\x21\x02\xa3\x15x-opt-sequence-number\x81\0\0\0\0\0\0\0\x05"
        b"\x00\x53\x73\xc0\x07\x03\xa1\x02id\x40\x40"  # message-id, user-id, to
        b"\x00\x53\x74\xd1\x00\x00\x00\x66\x00\x00\x00\x08"
        b"\xa1\x09x-ms-path\xa1\x06orders"
        b"\xa1\x0ex-ms-sessionid\xa1\x01s"
        # 60 seconds as a timespan of 600,000,000 ticks
        b"\xa1\x0fx-ms-timetolive\x00\xa3\x16com.microsoft:timespan"
        b"\x81\x00\x00\x00\x00\x23\xc3\x46\x00"
        b"\xa1\x05count\x54\x07"
        b"\x00\x53\x75\xa0\x04body"
    )
    opened = open_message(delivered_bytes)
    assert (opened.sequence_number, opened.path, opened.session_id) == (5, "orders", "s")
    assert opened.time_to_live == 60_000
    assert opened.problem is None
    home = restore(
        opened.message, session_id=opened.session_id, time_to_live=opened.time_to_live, now=NOW
    )
    assert (
        home
        == (
            b"\x00\x53\x70\xc0\x09\x03\x41\x50\x04\x70\x00\x00\xea\x60"  # ttl 60,000 ms
            b"\x00\x53\x73\xc0\x19\x0b\xa1\x02id\x40\x40\x40\x40\x40\x40\x40"
            b"\x83" + (NOW + 60_000).to_bytes(8, "big") + b"\x40\xa1\x01s"
            b"\x00\x53\x74\xc1\x0a\x02\xa1\x05count\x54\x07"
            b"\x00\x53\x75\xa0\x04body"
        )
    )


def test_sections_are_found_whether_described_by_number_or_by_name():
    named = b"\x00" + encode(Symbol("amqp:application-properties:map")) + encode({"x-ms-path": "q"})
    long = b"\x00" + encode(ULong(0x7400000000)) + encode("no section of a message")
    opened = open_message(named + section(0x75, b"x"))
    assert (opened.path, opened.message) == ("q", section(0x75, b"x"))
    assert sections(long) == ({}, 0)


BAD_MAP = b"\x00\x53\x74\xc1\x09\x02\xa1\x05x-ms-\x3f" + section(0x75, b"x")


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        (b"no section", "a section is a described value"),
        (b"\x00\x53\x73\x3f" + section(0x75, b"x"), "no AMQP value begins with 0x3f"),
        (BAD_MAP, "no AMQP value begins with 0x3f"),
        (b"\x00\x53\x74\xc1\x09\x02\xa1\x05x-ms-", "index out of range"),
        (b"\x00\x53\x74" + bytes(10_000), "index out of range"),  # a descriptor of a descriptor
        (section(0x73, None) + section(0x74, None) + b"\x00\xff", "0xff"),
    ],
)
# The first messages of a queue are opened section by section.
@pytest.mark.parametrize("times", [1, 5])
def test_message_that_was_encoded_wrongly_keeps_its_number_and_has_a_problem(rest, problem, times):
    start = delivered()
    payload = start[: start.index(b"\x00\x53\x73")] + rest
    for _ in range(times):
        open_message(delivered())
        opened = open_message(payload)
    assert opened.sequence_number == 4711
    assert opened.locked_until == 1_700_000_060_000
    assert opened.path is None
    assert opened.message == rest
    assert opened.problem.startswith("The message cannot be read: ")
    assert problem in opened.problem


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"no section", "a section is a described value"),
        (section(0x72, None) + section(0x75, b"x"), "not a map"),
        (BAD_MAP, "0x3f"),
    ],
)
def test_bytes_that_no_broker_delivered_are_an_error(payload, problem):
    with pytest.raises(ValueError, match=problem):
        open_message(payload)


def test_caches_stay_small_however_many_different_messages_there_are():
    for number in range(2_100):
        message = delivered(
            application={"x-ms-path": f"q{number}"},
            header=[True, UByte(1), None, False, UInt(number)],
            annotations={Symbol("x-mine"): 1},
        )
        opened = open_message(message)
        assert (opened.path, opened.delivery_count) == (f"q{number}", number)
    assert len(encoded._alias_cache) <= 1_001  # noqa: SLF001 - a cache shows in memory only
    assert len(encoded._header_cache) <= 1_002  # noqa: SLF001 - a cache shows in memory only


def test_adapters_for_encoded_messages_load_without_the_sdk():
    code = (
        "import sys, pairbus.envelope.encoded, pairbus.envelope.encoded_wrap, "
        "pairbus.envelope.fence; assert 'azure.servicebus' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
