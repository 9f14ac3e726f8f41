"""Reads the session that a client requests when it attaches a receiver, and answers it."""

from __future__ import annotations

import math
from typing import Any

from pairbus.amqp.link import Link
from pairbus.amqp.performatives import Source
from pairbus.amqp.types import Described, Symbol
from pairbus.broker.entities.session_store import Session

SESSION_FILTER = "com.microsoft:session-filter"
SESSION_WAIT = 65.0  # seconds that the service waits for a session by default
_TICKS_AT_EPOCH = 621355968000000000


def requested_session(link: Link) -> tuple[bool, str | None]:
    """Return whether a session is requested, and its id: None for the next available one."""
    source = link.attach.source if link.attach is not None else None
    filters = source.filter if isinstance(source, Source) else None
    if not filters or SESSION_FILTER not in filters:
        return False, None
    wanted = filters[SESSION_FILTER]
    if isinstance(wanted, Described):
        wanted = wanted.value
    return True, None if wanted is None else str(wanted)


def session_timeout(link: Link) -> float:
    """Return the seconds that the client waits for a session."""
    properties = (link.attach.properties if link.attach is not None else None) or {}
    wanted = properties.get("com.microsoft:timeout")
    if isinstance(wanted, int | float) and math.isfinite(wanted):  # NaN breaks the order of timers
        return wanted / 1000
    return SESSION_WAIT


def session_answer(link: Link, session: Session) -> dict[str, Any]:
    """Return the fields of the attach that name the session and the end of its lock."""
    source = link.source
    assert isinstance(source, Source)  # a receiver's attach has one
    source.filter = {**(source.filter or {}), Symbol(SESSION_FILTER): session.session_id}
    until = session.locked_until * 10_000 + _TICKS_AT_EPOCH
    return {"source": source, "properties": {"com.microsoft:locked-until-utc": until}}
