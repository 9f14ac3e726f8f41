"""A set that is iterated in the order of insertion, as the order of `set` depends on addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import TypeVar

T = TypeVar("T")


class OrderedSet(MutableSet[T]):
    """A set with an order."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = dict.fromkeys(items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: T) -> None:
        """Add an item, at the end if it is new."""
        self._items[value] = None

    def discard(self, value: T) -> None:
        """Remove an item; a missing one is fine."""
        self._items.pop(value, None)
