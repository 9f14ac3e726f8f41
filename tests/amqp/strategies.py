"""Hypothesis strategies for AMQP values, and equality that minds their types."""

import struct
import uuid

from hypothesis import strategies as st

from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
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
)


def sized(kind):
    return st.integers(kind.LOW, kind.HIGH).map(kind)


SCALARS = {
    "null": st.none(),
    "boolean": st.booleans(),
    "ubyte": sized(UByte),
    "byte": sized(Byte),
    "ushort": sized(UShort),
    "short": sized(Short),
    "uint": sized(UInt),
    "int": sized(Int),
    "ulong": sized(ULong),
    "long": st.integers(-(2**63), 2**63 - 1),
    "timestamp": sized(Timestamp),
    "float": st.floats(width=32).map(Float),
    "double": st.floats(),
    "char": st.characters(exclude_categories=["Cs"]).map(Char),
    "decimal32": st.binary(min_size=4, max_size=4).map(Decimal32),
    "decimal64": st.binary(min_size=8, max_size=8).map(Decimal64),
    "decimal128": st.binary(min_size=16, max_size=16).map(Decimal128),
    "uuid": st.uuids(),
    "binary": st.binary(max_size=300),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=100),
    "symbol": st.text(st.characters(max_codepoint=127), max_size=100).map(Symbol),
}

scalars = st.one_of(*SCALARS.values())


def arrays(children):
    same = st.one_of(
        *[st.lists(one, max_size=5) for name, one in SCALARS.items() if name != "null"]
    )
    nested = st.one_of(
        st.lists(st.lists(children, max_size=3), max_size=3),
        st.lists(st.dictionaries(SCALARS["symbol"], children, max_size=3), max_size=3),
        st.lists(same.map(Array), max_size=3),
    )
    described = st.lists(st.binary(max_size=5), max_size=3).map(
        lambda items: Array([Described(Symbol("d"), item) for item in items])
    )
    return st.one_of(same.map(Array), nested.map(Array), described)


values = st.recursive(
    scalars,
    lambda children: st.one_of(
        st.lists(children, max_size=6),
        st.dictionaries(
            st.one_of(SCALARS["string"], SCALARS["symbol"], SCALARS["ulong"]), children, max_size=5
        ),
        st.builds(Described, st.one_of(SCALARS["ulong"], SCALARS["symbol"]), children),
        arrays(children),
    ),
    max_leaves=20,
)


def alike(a, b) -> bool:
    """Equal in type and value, all the way down; the sign of zero and NaN count."""
    if isinstance(a, Array) and isinstance(b, Array):
        return len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b, strict=True))
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack(">d", a) == struct.pack(">d", b) or (a != a and b != b)
    if isinstance(a, list | tuple) and not isinstance(a, Pairs):
        return len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return alike(list(a.items()), list(b.items()))
    if isinstance(a, Described):
        return alike(a.descriptor, b.descriptor) and alike(a.value, b.value)
    if isinstance(a, uuid.UUID):
        return a.bytes == b.bytes
    return bool(a == b)
