"""The JSON form of a record: one key for each field, most of them with the name of the field."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

__all__ = ["from_json", "to_json"]

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


def to_json(record: "DataclassInstance") -> dict[str, Any]:
    """Return the JSON form of a record."""
    names = [field.name for field in fields(record)]
    return {KEYS.get(name, name): _plain(getattr(record, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value.to_json() if hasattr(value, "to_json") else value


def from_json(kind: "type[T]", data: Mapping[str, Any], **readers: Callable[[Any], Any]) -> "T":
    """Read the JSON form: a missing or null field has its default; unknown ones are ignored.

    Args:
        kind: the class of the record.
        data: the JSON form.
        readers: convert the values of some fields; by default a list becomes a tuple.
    """
    found = {field.name: KEYS.get(field.name, field.name) for field in fields(kind)}
    values = {name: data[key] for name, key in found.items() if data.get(key) is not None}
    return kind(**{name: readers.get(name, _value)(value) for name, value in values.items()})


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
