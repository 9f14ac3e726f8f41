"""Delivers events: to the log first, then to the observers, in order."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from pairbus import events
from pairbus.events import Event

logger = logging.getLogger("pairbus.events")

# WARNING where a human may need to act, INFO for phase changes, DEBUG per message.
_LEVELS: dict[type[Event], int] = {
    events.PrimarySuspected: logging.WARNING,
    events.FailedOver: logging.WARNING,
    events.Draining: logging.INFO,
    events.FenceOverdue: logging.WARNING,
    events.OrderNotKept: logging.WARNING,
    events.Restored: logging.INFO,
    events.PrimaryRefused: logging.WARNING,
    events.BacklogQueueRemoved: logging.WARNING,
    events.BacklogQueueRestored: logging.INFO,
    events.PairUnavailable: logging.ERROR,
    events.OversizeMessage: logging.WARNING,
    events.Unprotected: logging.WARNING,
    events.Protected: logging.INFO,
    events.RoutingForced: logging.INFO,
    events.RoutingReleased: logging.INFO,
    events.ClientClosed: logging.INFO,
    events.ClientFaulted: logging.ERROR,
}


# Events that every failing send makes: one line, then one a minute with a count.
_THROTTLED = frozenset({events.PairUnavailable, events.OversizeMessage})
LOG_INTERVAL = 60.0
KEPT = 50  # the latest events, for the status

# Events that an outage repeats. They are kept apart, so that they do not push out its beginning.
_REPEATED = _THROTTLED | {events.PingSent}


class EventBus:
    """The events of one pair."""

    def __init__(self, pair: str, observers: Sequence[Callable[[Event], None]]) -> None:
        self.pair = pair
        self.observers = tuple(observers)
        self._recent: deque[Event] = deque(maxlen=KEPT)
        self._repeated = {kind: deque[Event](maxlen=KEPT) for kind in _REPEATED}
        self.on_transition: Callable[[], None] | None = None
        self._logged: dict[tuple[type[Event], str], tuple[float, int]] = {}

    @property
    def recent(self) -> list[Event]:
        """The latest events, oldest first, without those that every message makes."""
        kept = list(self._recent)  # copies in one step: other threads append
        for found in self._repeated.values():
            kept += list(found)
        return sorted(kept, key=lambda event: event.at)

    def wants(self, kind: type[Event]) -> bool:
        """Whether anybody would see an event of this kind; if not, it need not be made."""
        return bool(self.observers) or logger.isEnabledFor(_LEVELS.get(kind, logging.DEBUG))

    def emit(self, kind: type[Event], entity: str = "", **data: Any) -> None:
        """Make an event and deliver it. An observer that raises does not affect the caller."""
        event = kind(at=datetime.now(UTC), pair=self.pair, entity=entity, **data)
        self._log(event, data)
        if kind is not events.MessageBacklogged:  # one per message would push the others out
            self._repeated.get(kind, self._recent).append(event)
        for observer in self.observers:
            try:
                observer(event)
            except BaseException as error:
                is_main = threading.current_thread() is threading.main_thread()
                if isinstance(error, KeyboardInterrupt) and is_main:
                    raise  # Ctrl-C while the observer ran; signals reach the main thread alone
                logger.exception("observer %r failed; the message is not affected", observer)
        if kind in _LEVELS and self.on_transition is not None:
            self.on_transition()

    def _log(self, event: Event, data: dict[str, Any]) -> None:
        kind = type(event)
        level = _LEVELS.get(kind, logging.DEBUG)
        if not logger.isEnabledFor(level):
            return
        more = ""
        if kind in _THROTTLED:
            key, now = (kind, event.entity), monotonic()
            last, count = self._logged.get(key, (-LOG_INTERVAL, 0))
            if now - last < LOG_INTERVAL:
                self._logged[key] = (last, count + 1)
                return
            self._logged[key] = (now, 0)
            if count:
                more = f" ({count} more since the last line)"
        where = f"{event.entity} in {self.pair}" if event.entity else self.pair
        shown = ", ".join(f"{k}={v}" for k, v in data.items() if k != "message_ids")
        detail = f": {shown}" if shown else ""
        logger.log(level, "%s %s%s%s", event.name, where, detail, more)
