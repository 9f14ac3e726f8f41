"""The JSON form of a record: one key for each field, most of them with the name of the field."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, Self, get_args, get_origin, get_type_hints

__all__ = ["Record", "Row"]

#: Keys that differ from the names of the fields, because earlier versions used other names.
KEYS = {
    "size": "bytes",
    "uncertain": "doubtful",
    "has_more": "more",
    "is_finished": "done",
    "lock_seconds": "lock",
    "has_ended": "ended",
    "is_started": "begun",
    "is_empty": "empty",
    "is_listening": "listening",
    "is_drained": "drained",
    "is_released": "released",
}


@dataclass(frozen=True, slots=True)
class Record:
    """A dataclass with a JSON form, whose fields are values of JSON, records, tuples and mappings.

    A subclass that overrides a method calls `super(Kind, self)`: a dataclass with slots is a new
    class, and `super()` without arguments refers to the one before.
    """

    def to_json(self) -> Any:
        """Return the JSON form."""
        names = [field.name for field in fields(self)]
        return {KEYS.get(name, name): _plain(getattr(self, name)) for name in names}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read the JSON form: a missing or null field has its default; unknown ones are ignored."""
        values: dict[str, Any] = {}
        readers = _readers(cls)  # type: ignore[arg-type]  # mypy: a type of Self is not hashable
        for field in fields(cls):
            key = KEYS.get(field.name, field.name)
            is_required = field.default is MISSING and field.default_factory is MISSING
            if key in data and (is_required or data[key] is not None):
                values[field.name] = readers[field.name](data[key])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Row(Record):
    """A record whose JSON form is the list of its values."""

    def to_json(self) -> list[Any]:
        """Return the fields in their order."""
        return [getattr(self, field.name) for field in fields(self)]

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read the fields in their order."""
        return cls(*data)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value.to_json() if isinstance(value, Record) else value


@cache
def _readers(kind: type[Record]) -> dict[str, Callable[[Any], Any]]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return the function that reads values of this type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is None:
        return hint.from_json if issubclass(hint, Record) else lambda value: value
    read = _reader(args[1 if origin is Mapping else 0])
    if type(None) in args:
        return lambda value: None if value is None else read(value)
    if origin is Mapping:
        return lambda found: {key: read(value) for key, value in found.items()}
    return (lambda values: tuple(map(read, values))) if args[-1] is ... else tuple
