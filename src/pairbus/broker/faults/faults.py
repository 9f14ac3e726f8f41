"""The injected faults of a namespace: which error, at which entity, how often and how long.

A fault is injected by a call (`faults.reject("amqp:internal-error", entity="orders", nth=3)`) or
over the control API (the same names as JSON). It stays active until it is cleared, was applied
`times` times, or has lasted for `lasts` seconds, and it counts its hits. This module only stores
faults; the listener and the links apply them.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from pairbus.broker.entities.errors import BrokerError

#: The kinds of fault. The first three concern whole connections, the others single operations.
KINDS = ("refuse", "reset", "silent", "hang", "delay", "reject", "throttle", "detach", "close")
CONNECTION_KINDS = frozenset({"refuse", "reset", "silent"})
REFUSALS = frozenset({"reject", "throttle"})
#: The kinds of operation that a fault can apply to.
POINTS = ("send", "settle", "management", "attach", "token")
SERVER_BUSY = "com.microsoft:server-busy"


@dataclass(slots=True)
class Fault:
    """One fault. Use it as a context manager to have it cleared at the end of a block.

    Attributes:
        kind: One of `KINDS`.
        entity: The queue or topic it is for (any case), or None for the whole namespace.
        on: The kind of operation that it applies to, one of `POINTS`; connection faults ignore it.
        condition: The AMQP error condition of `reject`, `detach` and `close`.
        description: The text that goes with it.
        status: The HTTP-like status that a refused token is answered with.
        delay: Seconds that a `delay` holds the answer back.
        take: Whether an operation that is never answered (`hang`) is still executed.
        nth: The first operation that it applies to, counted from the injection.
        times: How many operations it applies to from there on; None for all.
        lasts: Seconds after which it ends by itself; None for until it is cleared.
        seen: Operations that matched so far.
        hits: Operations that it was applied to so far.
    """

    kind: str
    entity: str | None = None
    on: str = "send"
    condition: str = "amqp:internal-error"
    description: str = "a fault was injected"
    status: int = 500
    delay: float = 0.0
    take: bool = True
    nth: int = 1
    times: int | None = None
    lasts: float | None = None
    id: int = 0
    seen: int = 0
    hits: int = 0
    ends_at: float | None = field(default=None, repr=False)
    owner: Faults | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault {self.kind!r}; use one of {', '.join(KINDS)}")
        if self.on not in POINTS:
            raise ValueError(f"a fault applies to one of {', '.join(POINTS)}, not to {self.on!r}")
        _check_types(str, "a string", condition=self.condition, description=self.description)
        _check_types(str | None, "a string", entity=self.entity)
        _check_types(int | float, "a number", delay=self.delay, nth=self.nth, status=self.status)
        _check_types(int | float | None, "a number", times=self.times, lasts=self.lasts)
        if self.kind in CONNECTION_KINDS and self.entity is not None:
            raise ValueError(f"the fault {self.kind!r} is for a namespace, not for one entity")
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise ValueError("nth and times count from 1")
        if not (0 <= self.delay < math.inf and (self.lasts is None or 0 < self.lasts < math.inf)):
            raise ValueError("delay and lasts are positive numbers of seconds")
        if self.entity is not None:
            self.entity = self.entity.strip("/").lower()

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        """End this fault; a second call does nothing."""
        if self.owner is not None:
            self.owner.clear(self.id)

    @property
    def answer_delay(self) -> float:
        """The seconds that the answer to an operation is held back."""
        return self.delay if self.kind == "delay" else 0.0

    def error(self) -> BrokerError:
        """Return the error that the fault is answered with."""
        return BrokerError(self.description, condition=self.condition, http_status=self.status)

    def as_dict(self) -> dict[str, Any]:
        """Return the fault as the control API shows it."""
        names = ("id", *sorted(SETTABLE), "seen", "hits")
        return {name: getattr(self, name) for name in names}


#: The fields that a caller of the control API may set.
SETTABLE = frozenset(
    f.name for f in fields(Fault) if f.name not in {"id", "seen", "hits", "ends_at", "owner"}
)


def _check_types(kind: Any, expected: str, **values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, kind):
            raise ValueError(f"{name} of a fault must be {expected}, got {value!r}")


NO_FAULT = Fault("delay")  # delays an answer by no time


def _direct(action: Callable[[], Any]) -> Any:
    return action()


class Faults:
    """The faults of one namespace. Its methods may be called from any thread.

    Args:
        call: Runs a function on the broker's loop and returns its result, so that a fault is in
            force (the listener closed, connections reset) when the method returns.
        now: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        call: Callable[[Callable[[], Any]], Any] = _direct,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._call = call
        self._now = now
        self._ids = itertools.count(1)
        self._faults: dict[int, Fault] = {}
        #: Called on the broker's loop after every change.
        self.on_change: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<Faults {[fault.kind for fault in self._faults.values()]}>"

    # -- for users ----------------------------------------------------------------------------

    def inject(self, kind: str, **settings: Any) -> Fault:
        """Activate a fault and return it; see `Fault` for the settings."""
        unknown = settings.keys() - SETTABLE
        if unknown:
            raise ValueError(f"unknown setting of a fault: {', '.join(sorted(unknown))}")
        fault = Fault(kind, **settings)
        if kind == "throttle" and "condition" not in settings:
            fault.condition = SERVER_BUSY
            fault.description = "The request was throttled; try again later."
        self._call(lambda: self._add(fault))
        return fault

    def refuse(self, *, lasts: float | None = None) -> Fault:
        """Close the listener and reset every open connection: the port refuses."""
        return self.inject("refuse", lasts=lasts)

    def reset(self, *, lasts: float | None = None) -> Fault:
        """Reset every open connection, and each new one at its first byte."""
        return self.inject("reset", lasts=lasts)

    def silent(self, *, lasts: float | None = None) -> Fault:
        """Accept connections and never answer, also on those that are open."""
        return self.inject("silent", lasts=lasts)

    def hang(self, entity: str | None = None, *, take: bool = True, **settings: Any) -> Fault:
        """Never answer a send; `take` decides whether the message is stored."""
        return self.inject("hang", entity=entity, take=take, **settings)

    def delay(self, seconds: float, entity: str | None = None, **settings: Any) -> Fault:
        """Answer each send after a delay of `seconds`."""
        return self.inject("delay", entity=entity, delay=seconds, **settings)

    def reject(
        self, condition: str = "amqp:internal-error", entity: str | None = None, **settings: Any
    ) -> Fault:
        """Answer sends with an error; `nth` and `times` choose which."""
        return self.inject("reject", entity=entity, condition=condition, **settings)

    def throttle(self, entity: str | None = None, **settings: Any) -> Fault:
        """Answer sends with server busy."""
        return self.inject("throttle", entity=entity, **settings)

    def detach(
        self, condition: str = "amqp:internal-error", entity: str | None = None, **settings: Any
    ) -> Fault:
        """Answer a send by detaching the link."""
        return self.inject("detach", entity=entity, condition=condition, **settings)

    def close(
        self, condition: str = "amqp:internal-error", entity: str | None = None, **settings: Any
    ) -> Fault:
        """Answer a send by closing the connection."""
        return self.inject("close", entity=entity, condition=condition, **settings)

    def clear(self, fault_id: int | None = None) -> None:
        """End one fault, or all."""
        self._call(lambda: self._remove(fault_id))

    @property
    def active(self) -> list[Fault]:
        """The active faults, oldest first."""
        found: list[Fault] = self._call(lambda: list(self._faults.values()))
        return found

    # -- for the broker, on its loop ---------------------------------------------------------

    @property
    def any(self) -> bool:
        """Whether any fault is active: a cheap check before `match`."""
        return bool(self._faults)

    def connection_fault(self) -> str | None:
        """Return the strongest fault that concerns whole connections, if any."""
        kinds = {fault.kind for fault in self._faults.values()}
        return next((kind for kind in ("refuse", "reset", "silent") if kind in kinds), None)

    def match(self, point: str, entity: str) -> Fault:
        """Count an operation at `point`; return the fault that applies to it, or `NO_FAULT`."""
        if not self._faults:
            return NO_FAULT
        path = entity.lower()
        for fault in list(self._faults.values()):
            if fault.kind in CONNECTION_KINDS or fault.on != point:
                continue
            if fault.entity is not None and fault.entity != path:
                continue
            fault.seen += 1
            if fault.seen < fault.nth:
                continue
            if fault.times is not None and fault.hits >= fault.times:
                continue
            fault.hits += 1
            return fault
        return NO_FAULT

    def next_end(self) -> float | None:
        """Return the seconds until the next fault ends by itself; None if none does."""
        ends = [f.ends_at for f in self._faults.values() if f.ends_at is not None]
        return max(0.0, min(ends) - self._now()) if ends else None

    def expire(self) -> None:
        """End the faults that have lasted for `lasts` seconds."""
        now = self._now()
        for fault in list(self._faults.values()):
            if fault.ends_at is not None and fault.ends_at <= now:
                self._remove(fault.id)

    def _add(self, fault: Fault) -> None:
        fault.id = next(self._ids)
        fault.owner = self
        if fault.lasts is not None:
            fault.ends_at = self._now() + fault.lasts
        self._faults[fault.id] = fault
        self.on_change()

    def _remove(self, fault_id: int | None) -> None:
        if fault_id is None:
            self._faults.clear()
        elif self._faults.pop(fault_id, None) is None:
            return
        self.on_change()
