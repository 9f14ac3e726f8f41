"""The type system: byte-exact cases, round trips, hostile input."""

import contextlib
import copy
import pickle
import tracemalloc
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.codec import MAX_DEPTH, decode, encode, skip
from pairbus.amqp.errors import ProtocolError
from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Described,
    Float,
    Int,
    Pairs,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Uuids,
)

from .strategies import SCALARS, alike, values

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (None, "40"), (True, "41"), (False, "42"),
        (UByte(255), "50ff"), (Byte(-1), "51ff"), (UShort(258), "600102"), (Short(-2), "61fffe"),
        (UInt(0), "43"), (UInt(1), "5201"), (UInt(255), "52ff"), (UInt(256), "7000000100"),
        (ULong(0), "44"), (ULong(9), "5309"), (ULong(2**64 - 1), "80ffffffffffffffff"),
        (Int(-128), "5480"), (Int(128), "7100000080"), (0, "5500"), (-1, "55ff"),
        (128, "810000000000000080"), (-(2**63), "818000000000000000"),
        (Float(1.5), "723fc00000"), (1.5, "823ff8000000000000"), (Char("A"), "7300000041"),
        (Timestamp(-1), "83ffffffffffffffff"), (Decimal32(b"abcd"), "7461626364"),
        (UUID, "9800112233445566778899aabbccddeeff"), (b"", "a000"), (b"\x01", "a00101"),
        (b"x" * 256, "b000000100" + "78" * 256), ("é", "a102c3a9"), (Symbol("a"), "a30161"),
        ("x" * 256, "b100000100" + "78" * 256), ([], "45"), ([None], "c0020140"),
        ({}, "c10100"), ({"a": True}, "c10502a1016141"),
        (Described(ULong(0x24), []), "00532445"), (Array([UInt(1)]), "e006017000000001"),
        (Array([True, False]), "e00402560100"), (Array([Symbol("a")]), "e00701b30000000161"),
    ],
)  # fmt: skip
def test_value_has_exactly_this_encoding(value, encoded):
    assert encode(value).hex() == encoded
    again, end = decode(bytes.fromhex(encoded))
    assert alike(again, value)
    assert end == len(encoded) // 2 == skip(bytes.fromhex(encoded))


@pytest.mark.parametrize(
    ("encoded", "value"),
    [("5600", False), ("5601", True), ("7000000001", UInt(1)), ("800000000000000001", ULong(1)),
     ("7100000001", Int(1)), ("810000000000000001", 1), ("b000000000", b""), ("b100000000", ""),
     ("b300000000", Symbol("")), ("c00100", []), ("d00000000400000000", []),
     ("d10000000400000000", {}), ("f0000000060000000256" + "01", None)],
)  # fmt: skip
def test_wider_forms_are_read_too(encoded, value):
    if value is None:
        with pytest.raises(ProtocolError):  # two elements are claimed, one is there
            decode(bytes.fromhex(encoded))
    else:
        assert alike(decode(bytes.fromhex(encoded))[0], value)


@pytest.mark.slow
@given(values)
def test_every_value_comes_back_with_its_type(value):
    encoded = encode(value)
    again, end = decode(encoded)
    assert end == len(encoded)
    assert skip(encoded) == end
    assert alike(again, value)
    assert encode(again) == encoded


@pytest.mark.parametrize("name", SCALARS)
def test_every_scalar_comes_back_from_an_array(name):
    @given(st.lists(SCALARS[name], max_size=5))
    @settings(max_examples=20)
    def check(items):
        encoded = encode(Array(items))
        again, end = decode(encoded)
        assert end == len(encoded)
        assert alike(again, Array(items))
        assert encode(again) == encoded

    check()


@pytest.mark.slow
@given(values, st.binary(max_size=4), st.binary(max_size=4))
def test_position_in_the_buffer_does_not_matter(value, before, after):
    encoded = encode(value)
    again, end = decode(before + encoded + after, len(before))
    assert end == len(before) + len(encoded)
    assert alike(again, value)


@pytest.mark.slow
@given(values, st.data())
def test_truncated_value_is_a_protocol_error(value, data):
    encoded = encode(value)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ProtocolError) as caught:
        decode(encoded[:cut])
    assert caught.value.condition == "amqp:decode-error"


@pytest.mark.slow
@given(st.binary(max_size=200))
@settings(max_examples=500)
def test_noise_yields_a_value_or_a_protocol_error_and_nothing_else(noise):
    for read in (decode, skip):
        with contextlib.suppress(ProtocolError):
            read(noise)


@pytest.mark.slow
@given(values, st.data())
@settings(max_examples=300)
def test_flipped_byte_yields_a_value_or_a_protocol_error(value, data):
    encoded = bytearray(encode(value))
    index = data.draw(st.integers(0, len(encoded) - 1))
    encoded[index] = data.draw(st.integers(0, 255))
    try:
        again, _ = decode(bytes(encoded))
    except ProtocolError:
        return
    encode(again)  # whatever was read can be written


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        (b"\xd0\x00\x00\x00\x00\x00\x00\x00\x01", b""),
        (b"\x00\x53\x01", b"\x40"),
        (b"\x00" * 3, b""),
    ],
)
def test_deep_nesting_is_refused(opening, closing):
    with pytest.raises(ProtocolError):
        decode(opening * 5000 + closing)


def nested(depth):
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_is_allowed_up_to_the_limit():
    assert decode(encode(nested(MAX_DEPTH - 1)))[0] == nested(MAX_DEPTH - 1)
    with pytest.raises(ProtocolError, match="nested deeper"):
        decode(encode(nested(MAX_DEPTH + 1)))


@pytest.mark.parametrize(
    "hostile",
    [
        bytes.fromhex("d0ffffffffffffffff"), bytes.fromhex("d00000000cffffffff4040404040404040"),
        bytes.fromhex("d1000000057fffffff40"), bytes.fromhex("f000000005ffffffff41"),
        bytes.fromhex("f000000005ffffffff40"), bytes.fromhex("b0ffffffff00"),
        bytes.fromhex("f00000000cffffffff7000000000000000"), bytes.fromhex("f000000005ffffffff45"),
        b"\xf0" + (3 * 20000 + 5).to_bytes(4, "big") + (20000).to_bytes(4, "big") + b"\xe0"
        + b"\x02\xff\x41" * 20000,
    ],
)  # fmt: skip
def test_hostile_sizes_take_no_memory(hostile):
    tracemalloc.start()
    try:
        decode(hostile)
    except ProtocolError:
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


def array_of(count, body):
    return b"\xf0" + (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body


def test_nested_arrays_are_not_copied_at_each_level():
    innermost = b"x" * 1_000_000
    encoded = array_of(1, b"\xb0" + len(innermost).to_bytes(4, "big") + innermost)
    for _ in range(MAX_DEPTH - 2):
        encoded = array_of(1, encoded)
    tracemalloc.start()
    try:
        value, _ = decode(encoded)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(innermost)
    assert encode(value) == encoded
    assert encode(value[0][0]) == b"\xf0" + encoded[19:]


@pytest.mark.parametrize(
    "array",
    [
        array_of(20_000, b"\x00\x43" * (MAX_DEPTH - 2) + b"\x50" + bytes(20_000)),
        b"\xd0\x00\x00\x75\x34\x00\x00\x13\x88" + b"\xe0\x04\xff\x00\x43\x41" * 5000,
    ],
    ids=["nested descriptors", "elements without bytes"],
)
def test_descriptors_of_array_elements_do_not_multiply_the_memory(array):
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="more elements than bytes"):
            decode(array)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(array)


def test_decoded_arrays_can_be_pickled_and_copied():
    for original in (Array([Array([], 0xA3)]), Array([uuid.UUID(int=1)])):
        value, _ = decode(encode(original))
        assert encode(pickle.loads(pickle.dumps(value))) == encode(original)
        assert encode(copy.deepcopy(value)) == encode(original)


def test_maps_that_a_dict_cannot_hold_survive():
    for encoded in (
        "c10804" + "5201" + "40" + "5301" + "41",  # uint 1 and ulong 1 as keys
        "c10302" + "45" + "40",  # a list as a key
    ):
        raw = bytes.fromhex(encoded)
        raw = raw[:1] + bytes((len(raw) - 2,)) + raw[2:]
        value, end = decode(raw)
        assert isinstance(value, Pairs)
        assert end == len(raw)
        assert encode(value) == raw


def test_map_with_a_key_without_value_is_refused():
    with pytest.raises(ProtocolError):
        decode(bytes.fromhex("c1020140"))


@pytest.mark.parametrize(
    "raw", ["5602", "7300110000", "730000d800", "a101ff", "a30180", "01", "c0014040", "e0020156"]
)
def test_malformed_values_are_refused(raw):
    with pytest.raises(ProtocolError):
        decode(bytes.fromhex(raw))


@pytest.mark.parametrize(
    ("kind", "value"), [(UByte, 256), (UByte, -1), (Int, 2**31), (Char, "ab"), (Decimal32, b"abc")]
)
def test_types_refuse_what_does_not_fit(kind, value):
    with pytest.raises(ValueError, match=r"range|exactly|takes"):
        kind(value)


def test_unknown_python_types_are_refused():
    with pytest.raises(TypeError, match="object has no AMQP type"):
        encode(object())


def test_subclasses_are_written_as_their_base():
    class Name(str):
        __slots__ = ()

    assert encode(Name("a")) == encode("a")
    assert decode(encode((1, 2)))[0] == [1, 2]
    assert decode(encode(bytearray(b"x")))[0] == decode(encode(memoryview(b"x")))[0] == b"x"


def test_wrappers_show_their_type():
    assert repr([UInt(3), Symbol("a"), Char("x"), Float(1.5), Decimal32(b"abcd")]) == (
        "[UInt(3), Symbol('a'), Char('x'), Float(1.5), Decimal32(b'abcd')]"
    )
    assert repr(Described(ULong(1), Array([1]))) == "Described(ULong(1), Array([1]))"
    assert Array([1]) == Array([1])
    assert Array([1])[0] == 1
    assert Array([1]) != [1]
    assert Described(1, 2) != 3
    assert {Described(1, 2): 1, Array([1]): 2}


@given(st.uuids())
def test_decoded_uuids_are_whole(value):
    again, _ = decode(encode(value))
    assert again == value
    assert hash(again) == hash(value)
    assert (str(again), again.bytes_le, again.is_safe) == (
        str(value),
        value.bytes_le,
        value.is_safe,
    )
    assert pickle.loads(pickle.dumps(again)) == value
    assert copy.deepcopy(again) == value


@pytest.mark.parametrize(
    "raw",
    [
        "e0ff017000000001",  # an array longer than its buffer
        "e00202" + "98",  # two uuids, no bytes
        "e00501" + "7000000001" + "00",  # one uint, a byte too many
        "e0020130",  # an unassigned element type
        "00" * 70,  # descriptors within descriptors
    ],
)
def test_malformed_arrays_and_descriptors_are_refused(raw):
    with pytest.raises(ProtocolError) as caught:
        decode(bytes.fromhex(raw))
    assert caught.value.condition == "amqp:decode-error"


def test_array_of_deeply_described_elements_is_refused():
    body = b"\x00\x43" * (MAX_DEPTH + 1) + b"\x40"
    with pytest.raises(ProtocolError, match="nested deeper"):
        decode(b"\xe0" + bytes((len(body) + 1, 1)) + body)


def test_value_behind_many_descriptors_cannot_be_skipped():
    with pytest.raises(ProtocolError, match="nested deeper"):
        skip(b"\x00\x43" * (MAX_DEPTH + 1) + b"\x40")


@pytest.mark.parametrize(
    "raw",
    [
        "e00701" + "c0" + "0401" + "a10161",  # lists with one-byte sizes
        "e00801" + "c1" + "0502" + "a1016141",  # maps
        "e00601" + "e0" + "03015005",  # arrays
        "e00501" + "a1" + "026162",  # strings
        "e00501" + "a3" + "026162",  # symbols
        "e00501" + "a0" + "026162",  # binaries
    ],
)
def test_arrays_of_short_elements_keep_their_encoding(raw):
    encoded = bytes.fromhex(raw)
    encoded = encoded[:1] + bytes((len(encoded) - 2,)) + encoded[2:]
    value, end = decode(encoded)
    assert end == len(encoded)
    assert encode(value) == encoded


def test_little_endian_uuids_have_whole_elements():
    with pytest.raises(ValueError, match="16 bytes"):
        Uuids.from_little_endian([b"short"])
