"""The facts that the checks collect about a pair, as plain records."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import timedelta


class Kind(enum.Enum):
    """How a request to a namespace can fail: on the way, or by the answer of the namespace."""

    NAME = "name"  # the host name cannot be resolved
    CONNECTION = "connection"  # no connection, or it broke
    KEY = "key"  # the key or token is refused
    RIGHT = "right"  # the key is valid, but lacks a right
    MISSING = "missing"  # no such entity
    DISABLED = "disabled"
    FULL = "full"
    BUSY = "busy"  # throttled
    SESSIONS = "sessions"  # the entity requires sessions
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Problem:
    """A failed request: its kind, and its text in one line."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One namespace, as seen from here.

    Attributes:
        role: `primary` or `secondary`.
        host: Its host name.
        port: The AMQP port that was tried.
        reach: Why no connection could be made; None if one was.
        seconds: How long connecting took.
        is_web_open: Whether port 443 answers; None if it was not tried.
        administration: Why its entities could not be listed; None if they were.
        name: Its own name; None without administration.
        expired_at: When the shared access signature expired, in seconds since 1970; None if it
            did not, or there is none.
    """

    role: str
    host: str
    port: int
    reach: Problem | None = None
    seconds: float = 0.0
    is_web_open: bool | None = None
    administration: Problem | None = None
    name: str | None = None
    expired_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """The properties of a queue or topic; None where one is not known."""

    status: str = "Active"
    lock_duration: timedelta | None = None
    requires_session: bool = False
    max_delivery_count: int | None = None
    time_to_live: timedelta | None = None
    auto_delete: timedelta | None = None
    keeps_expired: bool = True
    forward_to: str | None = None
    duplicate_window: timedelta | None = None
    message_limit: int | None = None
    capacity: int | None = None
    size: int = 0
    messages: int = 0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A backlog queue of the secondary, or a destination in the primary.

    Attributes:
        path: Its name.
        is_named: A destination that the user named.
        send: Why a sender could not be attached; None if it was, or was not tried.
        listen: The same for a receiver.
        properties: None without administration.
    """

    path: str
    is_named: bool = False
    send: Problem | None = None
    listen: Problem | None = None
    properties: Properties | None = None

    @property
    def is_missing(self) -> bool:
        """Whether there is no such entity."""
        return any(p is not None and p.kind is Kind.MISSING for p in (self.send, self.listen))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts that the checks collected."""

    primary: Side
    secondary: Side
    primary_namespace: str
    backlog: tuple[Entity, ...] = ()
    destinations: tuple[Entity, ...] = ()
    leftovers: tuple[str, ...] = ()  # canary queues of former drills
