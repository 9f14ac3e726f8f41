"""The SDK's classes as a surface: every public name either works or raises a clear error.

A later version of the SDK may have methods that pairbus does not know. A paired class derives from
the SDK's, so such a method would run on an object that lacks the state it needs. `covers` replaces
every public name that a class does not define itself by an error that names it. `Guarded` is the
opposite: it forwards every name to the wrapped object, after a check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from pairbus.exceptions import PairingError

ClassT = TypeVar("ClassT", bound=type)


def _unsupported(owner: str, name: str) -> property:
    """A name of the SDK's class that a paired class does not support."""

    def refuse(_: object) -> NoReturn:
        raise PairingError(
            f"{owner} does not support {name!r} of this version of azure-servicebus. "
            "Use it on the client that was paired."
        )

    return property(refuse)


def covers(sdk_class: type) -> Callable[[ClassT], ClassT]:
    """A class decorator: public names of `sdk_class` that the class lacks raise an error."""

    def decorate(paired: ClassT) -> ClassT:
        own = {
            name for base in paired.__mro__ if base not in sdk_class.__mro__ for name in vars(base)
        }
        for name in dir(sdk_class):
            if not name.startswith("_") and name not in own:
                setattr(paired, name, _unsupported(paired.__name__, name))
        return paired

    return decorate


class Guarded:
    """Hands every attribute on to a wrapped object, after `check`, which raises if it is unusable.

    A subclass also derives from the class of the wrapped object, for `isinstance`. What it defines
    itself is not handed on; nor are the other names in `own_names`.
    """

    own_names = frozenset(
        {"__class__", "__dict__", "__repr__", "__weakref__", "_check", "own_names", "_wrapped"}
    )

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.own_names = cls.own_names | vars(cls).keys()

    def __init__(self, wrapped: Any, check: Callable[[], None]) -> None:
        object.__setattr__(self, "_wrapped", wrapped)
        object.__setattr__(self, "_check", check)

    def __getattribute__(self, name: str) -> Any:
        get = object.__getattribute__
        if name in get(self, "own_names"):
            return get(self, name)
        get(self, "_check")()
        return getattr(get(self, "_wrapped"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_wrapped"), name, value)

    def __repr__(self) -> str:
        return repr(object.__getattribute__(self, "_wrapped"))
