"""Adds records up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from decimal import Decimal
from typing import Any, TypeVar

T = TypeVar("T")

ZEROS: dict[Any, Any] = {"int": 0, "Decimal": Decimal(0)}


def numbers(kind: Any) -> dict[str, Any]:
    """Return the numbers of a dataclass, by name, each with its zero.

    The module of the dataclass postpones the evaluation of annotations.
    """
    return {field.name: ZEROS[field.type] for field in fields(kind) if field.type in ZEROS}


def from_row(kind: type[T], row: Any, **values: Any) -> T:
    """Return a record with the numbers of a row, null as zero, and with these other values."""
    return kind(**values, **{name: row[name] or zero for name, zero in numbers(kind).items()})


def add_up(kind: type[T], records: Iterable[T], **values: Any) -> T:
    """Return a record with the sums of all numbers, and with these other values."""
    parts = list(records)
    sums = {
        name: sum((getattr(part, name) for part in parts), zero)
        for name, zero in numbers(kind).items()
    }
    return kind(**values, **sums)
