"""Detaches idle links and closes connections without links, as the service does.

The time is that of the broker's clock, so that a test can advance it by ten minutes. Heartbeats do
not count as use of a link.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pairbus.amqp.errors import DETACH_FORCED
from pairbus.broker.entities.errors import BrokerError
from pairbus.broker.entities.messages import NEVER
from pairbus.broker.server.link_end import LinkEnd

if TYPE_CHECKING:
    from pairbus.broker.server.connection import AmqpConnection

_log = logging.getLogger("pairbus.broker.amqp")


class IdleWatch:
    """Watches the links of one connection.

    Args:
        connection: The connection.
        link_timeout: Seconds until an idle link is detached; 0: never.
        connection_timeout: Seconds until a connection without links is closed; 0: never.
    """

    outlives_entities = True

    def __init__(
        self, connection: AmqpConnection, link_timeout: float, connection_timeout: float
    ) -> None:
        self._connection = connection
        self._link_timeout = round(link_timeout * 1000)
        self._connection_timeout = round(connection_timeout * 1000)
        self._ends: dict[LinkEnd, None] = {}
        self._linkless_since = NEVER
        self.next_due = NEVER

    def start(self, now: int) -> None:
        """Watch the connection, because the client is authorized now."""
        if self._linkless_since == NEVER and not self._ends:
            self._linkless_since = now
            self._arm()

    def add(self, end: LinkEnd, now: int) -> None:
        """Watch a link. A link whose `used_at` is NEVER is not detached, but counts as a link."""
        self._ends[end] = None
        self._linkless_since = NEVER
        if self._link_timeout:
            self._arm_at(now + self._link_timeout)

    def remove(self, end: LinkEnd, now: int) -> None:
        """Stop watching a link that is gone."""
        if end not in self._ends:
            return
        del self._ends[end]
        if not self._ends:
            self._linkless_since = now
            self._arm()

    def stop(self) -> None:
        """Stop watching: the connection is gone."""
        self._ends.clear()
        self.next_due = NEVER

    def tick(self, now: int) -> None:
        """Detach the links that are idle for too long, or close the connection."""
        self.next_due = NEVER
        connection = self._connection
        if self._ends and self._link_timeout:
            for end in list(self._ends):
                if end.used_at + self._link_timeout <= now:
                    self._detach(end)
        linkless_until = self._linkless_since + self._connection_timeout
        if not self._ends and self._connection_timeout and linkless_until <= now:
            connection.broker.idle_connections += 1
            connection.close(
                "amqp:connection:forced",
                f"The connection was closed by container '{connection.container_id}' "
                "because it did not have any active links in the past "
                f"{self._connection_timeout} milliseconds.",
            )
            return
        self._arm()

    def _detach(self, end: LinkEnd) -> None:
        # The client's receiver is the link on which we send.
        role, kind = ("consumer", "Consumer") if end.link.is_sender else ("publisher", "Publisher")
        seconds = self._link_timeout // 1000
        end.broker.idle_links += 1
        _log.info("a link of '%s' was idle and is detached", end.path)
        self._connection.links.detach(
            end.link,
            BrokerError(
                f"The link '{end.link.name}' is force detached. Code: {role}(link{end.link.handle})"
                f". Details: AmqpMessage{kind}.IdleTimerExpired: Idle timeout: "
                f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.",
                condition=DETACH_FORCED,
            ),
        )

    def _arm(self) -> None:
        due = NEVER
        if self._ends:
            if self._link_timeout:
                due = min(end.used_at for end in self._ends) + self._link_timeout
        elif self._connection_timeout and self._linkless_since != NEVER:
            due = self._linkless_since + self._connection_timeout
        self._arm_at(due)

    def _arm_at(self, due: int) -> None:
        if due < self.next_due:
            self.next_due = due
            self._connection.namespace.arm(due, self)
