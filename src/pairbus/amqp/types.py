"""Python values that keep their AMQP type (part 1, section 1.6).

Some Python types *are* AMQP types: `None`, `bool`, `str` (string), `bytes` (binary), `float`
(double), `int` (long), `uuid.UUID`, `list` and `dict` (map). The others have a class here, each a
subclass of the Python type that it behaves as, so that `UInt(3) == 3` and `Symbol("a") == "a"`,
and a decoded value is encoded as the same type again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar


class _Sized(int):
    """An integer of one AMQP width; values outside it are refused."""

    __slots__ = ()
    LOW: ClassVar[int]
    HIGH: ClassVar[int]

    def __new__(cls, value: int = 0) -> _Sized:
        self = int.__new__(cls, value)
        if not cls.LOW <= self <= cls.HIGH:
            raise ValueError(f"{int(self)} is out of range for {cls.__name__}")
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"


class UByte(_Sized):
    """0 to 255."""

    __slots__ = ()
    LOW, HIGH = 0, 0xFF


class UShort(_Sized):
    """0 to 2**16 - 1."""

    __slots__ = ()
    LOW, HIGH = 0, 0xFFFF


class UInt(_Sized):
    """0 to 2**32 - 1."""

    __slots__ = ()
    LOW, HIGH = 0, 0xFFFFFFFF


class ULong(_Sized):
    """0 to 2**64 - 1."""

    __slots__ = ()
    LOW, HIGH = 0, 0xFFFFFFFFFFFFFFFF


class Byte(_Sized):
    """-128 to 127."""

    __slots__ = ()
    LOW, HIGH = -0x80, 0x7F


class Short(_Sized):
    """-(2**15) to 2**15 - 1."""

    __slots__ = ()
    LOW, HIGH = -0x8000, 0x7FFF


class Int(_Sized):
    """-(2**31) to 2**31 - 1."""

    __slots__ = ()
    LOW, HIGH = -0x80000000, 0x7FFFFFFF


class Long(_Sized):
    """-(2**63) to 2**63 - 1; a plain `int` is a long too, and decoding returns one."""

    __slots__ = ()
    LOW, HIGH = -0x8000000000000000, 0x7FFFFFFFFFFFFFFF


class Timestamp(_Sized):
    """Milliseconds since 1970-01-01 UTC."""

    __slots__ = ()
    LOW, HIGH = -0x8000000000000000, 0x7FFFFFFFFFFFFFFF


class Float(float):
    """A 32-bit float; a plain Python float is a double."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Float({float(self)})"


class Char(str):
    """One Unicode character."""

    __slots__ = ()

    def __new__(cls, value: str) -> Char:  # noqa: D102
        if len(value) != 1 or "\ud800" <= value <= "\udfff":
            raise ValueError("a char is exactly one Unicode character")
        return str.__new__(cls, value)

    def __repr__(self) -> str:
        return f"Char({str.__repr__(self)})"


class Symbol(str):
    """A symbolic value from a constrained domain; ASCII."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Symbol({str.__repr__(self)})"


class _Decimal(bytes):
    """An IEEE 754 decimal as its bytes: it is stored and compared, but there is no arithmetic."""

    __slots__ = ()
    WIDTH: ClassVar[int]

    def __new__(cls, value: bytes) -> _Decimal:
        if len(value) != cls.WIDTH:
            raise ValueError(f"{cls.__name__} takes {cls.WIDTH} bytes, got {len(value)}")
        return bytes.__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({bytes.__repr__(self)})"


class Decimal32(_Decimal):
    """A decimal of 4 bytes."""

    __slots__ = ()
    WIDTH = 4


class Decimal64(_Decimal):
    """A decimal of 8 bytes."""

    __slots__ = ()
    WIDTH = 8


class Decimal128(_Decimal):
    """A decimal of 16 bytes."""

    __slots__ = ()
    WIDTH = 16


@dataclass(slots=True, unsafe_hash=True)
class Described:
    """A value with a descriptor, which defines the meaning of the value."""

    descriptor: Any
    value: Any

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


class Array:
    """Values of one and the same AMQP type.

    The type of the elements on the wire follows from the first one; `code` is the format code of an
    array that has none. `source` are a buffer, start and end: the encoded type and elements of an
    array that was decoded, which is encoded as it was. They are not copied, because arrays nest.
    """

    __slots__ = ("_source", "code", "items")

    def __init__(
        self,
        items: Iterable[Any] = (),
        code: int = 0x40,
        *,
        source: tuple[bytes, int, int] | None = None,
    ) -> None:
        self.items = items if isinstance(items, tuple) else tuple(items)
        self.code = code
        self._source = source

    @property
    def raw(self) -> bytes | None:
        """The encoded type and elements, copied on each access; None if it was not decoded."""
        if self._source is None:
            return None
        buf, start, end = self._source
        return buf[start:end]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return self.items == other.items

    def __hash__(self) -> int:
        return hash(self.items)

    def __repr__(self) -> str:
        return f"Array({list(self.items)!r})"


class Uuids(Array):
    """An array of uuid kept as bytes, because a request may settle a thousand of them."""

    __slots__ = ("raw",)

    def __init__(self, elements: bytes) -> None:
        """Set up from the concatenated elements, 16 bytes each in network byte order."""
        self.code = 0x98
        self.raw: bytes = b"\x98" + elements

    def __reduce__(self) -> tuple[type[Uuids], tuple[bytes]]:
        return Uuids, (self.raw[1:],)

    @classmethod
    def from_little_endian(cls, tokens: Iterable[bytes]) -> Uuids:
        """Return the array of lock tokens in the byte order of `UUID.bytes_le` (delivery tags)."""
        return cls(_swapped(b"".join(tokens)))

    def little_endian(self) -> list[bytes]:
        """Return each element in the byte order of `UUID.bytes_le`."""
        raw = _swapped(self.raw[1:])
        return [raw[i : i + 16] for i in range(0, len(raw), 16)]

    @property
    def items(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The elements, created on each access."""
        raw = self.raw
        return tuple([uuid.UUID(bytes=raw[i : i + 16]) for i in range(1, len(raw), 16)])

    def __len__(self) -> int:
        return len(self.raw) // 16


def _swapped(raw: bytes) -> bytes:
    """Convert concatenated UUIDs from little-endian to network byte order, or back."""
    if len(raw) % 16:
        raise ValueError("a uuid has 16 bytes")
    swapped = bytearray(raw)
    for to, source in enumerate((3, 2, 1, 0, 5, 4, 7, 6)):
        swapped[to::16] = raw[source::16]
    return bytes(swapped)


class Pairs(list[tuple[Any, Any]]):
    """A map that a Python dict cannot hold: keys that are lists or maps, or equal only in Python.

    Decoding returns a `dict` if it can represent the map, otherwise this. Both encode to a map.
    """

    __slots__ = ()
