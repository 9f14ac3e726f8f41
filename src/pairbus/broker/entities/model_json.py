"""Descriptions as JSON, for the store. A description that is written and read back is equal."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeAlias

from pairbus.broker.entities import model
from pairbus.broker.entities.model import EntityDescription, RuleDescription

Description: TypeAlias = EntityDescription | RuleDescription

_CLASSES: dict[str, Any] = {
    name: value for name in model.__all__ if isinstance(value := getattr(model, name), type)
}
"""The parts of descriptions by name, dataclasses and enums."""


def dump_description(description: Description) -> str:
    """The description as one JSON text, without fields that have their default."""
    return json.dumps(_pack(description), separators=(",", ":"))


def load_description(text: str) -> Any:
    """Read a description that :func:`dump_description` wrote; unknown fields are ignored."""
    return _unpack(json.loads(text))


def _pack(value: Any) -> Any:
    if isinstance(value, Enum):
        return {"": type(value).__name__, "v": value.value}
    if isinstance(value, timedelta):
        return {"": "timedelta", "v": [value.days, value.seconds, value.microseconds]}
    if isinstance(value, datetime):
        return {"": "datetime", "v": value.isoformat()}
    if isinstance(value, tuple):
        return [_pack(item) for item in value]
    if dataclasses.is_dataclass(value):
        fields = {
            f.name: _pack(content)
            for f in dataclasses.fields(value)
            if (content := getattr(value, f.name)) != f.default
        }
        return {"": type(value).__name__, **fields}
    return value


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_unpack(item) for item in value)
    if not isinstance(value, dict):
        return value
    name = value[""]
    if name == "timedelta":
        return timedelta(*value["v"])
    if name == "datetime":
        return datetime.fromisoformat(value["v"])
    cls = _CLASSES[name]
    if issubclass(cls, Enum):
        return cls(value["v"])
    known = {f.name for f in dataclasses.fields(cls)}
    return cls(**{key: _unpack(content) for key, content in value.items() if key in known})
