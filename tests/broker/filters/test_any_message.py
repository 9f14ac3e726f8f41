"""Whatever a message carries, a rule takes it, passes it over or says why not; nothing breaks."""

import uuid
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal64,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from pairbus.broker.entities.model import CorrelationFilter, SqlAction, SqlFilter, TypedValue
from pairbus.broker.filters.actions import compile_action
from pairbus.broker.filters.compiled import compile_filter
from pairbus.broker.filters.message_view import SYSTEM_PROPERTIES
from pairbus.broker.filters.values import FilterError


def sized(cls):
    return st.integers(cls.LOW, cls.HIGH).map(cls)


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.floats(width=32).map(Float),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.uuids(),
    st.sampled_from([Symbol("s"), Char("c"), Decimal64(b"12345678"), [1], {"a": 1}]),
    st.sampled_from([Array([UInt(1)])]),
    *(sized(cls) for cls in (UByte, UShort, UInt, ULong, Byte, Short, Int, Timestamp)),
)
described = st.builds(
    Described,
    st.sampled_from(
        [
            Symbol("com.microsoft:timespan"),
            Symbol("com.microsoft:datetime-offset"),
            Symbol("com.microsoft:uri"),
            ULong(5),
        ]
    ),
    plain,
)
values = plain | described
keys = st.sampled_from(["a", "B", Symbol("c"), 5, None, b"a", uuid.UUID(int=1)])
messages = st.dictionaries(keys, values, max_size=4)
systems = st.dictionaries(st.sampled_from(sorted(set(SYSTEM_PROPERTIES.values()))), values)

EXPRESSIONS = [
    "a = b",
    "a < b OR a > c",
    "a + b = c",
    "a - b < 5 OR a * b > 5",
    "a / b = c",
    "a % b = c",
    "-a = b",
    "a IN (b, 1, 'x', TRUE)",
    "a LIKE b",
    "a IS NULL AND NOT EXISTS(b)",
    "property(a) = 1",
    "a",
    " OR ".join(f"sys.{name} = a" for name in sorted(SYSTEM_PROPERTIES)),
    "sys.MessageId LIKE '%1'",
    "sys.EnqueuedTimeUtc + a > sys.ExpiresAtUtc - b",
]
ACTIONS = [
    "SET a = b",
    "SET a = a + b; SET c = a",
    "SET a = a * 1000000000000",
    "SET a = 18446744073709551615.0; SET b = b / 2",
    "SET a = -a; REMOVE B",
    "SET new = a + ''; REMOVE a; SET A = 'x'",
    "SET sys.Label = a; SET sys.MessageId = b; SET sys.SessionId = c",
    "SET sys.TimeToLive = a",
    "SET a = sys.EnqueuedTimeUtc; SET b = sys.Size; SET c = sys.TimeToLive",
    "SET a = newid(); SET b = TRUE; SET c = 1.5",
]


def view(properties, system):
    return SimpleNamespace(properties=properties, system=system.get)


@given(messages, systems, st.sampled_from(EXPRESSIONS))
def test_any_message_meets_any_filter(properties, system, expression):
    try:
        assert compile_filter(SqlFilter(expression))(view(properties, system)) in (True, False)
    except FilterError:
        pass


@given(messages, systems)
def test_any_message_meets_a_correlation_filter(properties, system):
    wanted = CorrelationFilter(
        label="s", message_id="1", properties=(("A", TypedValue("int", "1")),)
    )
    assert compile_filter(wanted)(view(properties, system)) in (True, False)


@given(messages, systems, st.sampled_from(ACTIONS))
def test_what_an_action_makes_can_be_encoded(properties, system, expression):
    before = dict(properties)
    try:
        changes = compile_action(SqlAction(expression))(view(properties, system))
    except FilterError:
        return
    assert properties.keys() == before.keys()
    if changes.properties is not None:
        encoded = encode(changes.properties)
        assert decode(encoded)[1] == len(encoded)
    for name, value in changes.system.items():
        assert value is None or name == "time_to_live" or isinstance(value, str)
