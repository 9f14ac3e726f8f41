"""Claims-based security: put a token on `$cbs` for each entity, and renew it in time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pairbus.amqp.errors import UNAUTHORIZED_ACCESS
from pairbus.amqp.types import Timestamp
from pairbus.client.auth import TokenProvider
from pairbus.client.errors import AuthenticationError, LeanError, OperationTimeoutError
from pairbus.client.links import text_of
from pairbus.client.requests import Pending, RequestLinks

if TYPE_CHECKING:
    from pairbus.client.connection import LeanConnection

_RENEW_AT = 0.9  # renew when this share of a token's life is over
_RETRY = 30.0  # seconds until a credential that failed is asked again
_NEVER = float("inf")


class _Grant:
    """The token of one entity."""

    __slots__ = ("audience", "error", "pending", "renew_at")

    def __init__(self, audience: str) -> None:
        self.audience = audience
        self.renew_at = 0.0  # by time.monotonic
        self.pending: Pending | None = None
        self.error: LeanError | None = None


class TokenKeeper:
    """Puts tokens and renews them; entities that are used together share the `$cbs` links."""

    def __init__(self, connection: LeanConnection, provider: TokenProvider) -> None:
        self._connection = connection
        self._provider = provider
        self._links: RequestLinks | None = None
        self._grants: dict[str, _Grant] = {}

    def ensure(self, entity: str, deadline: float) -> None:
        """Make sure that the peer holds a valid token for the entity.

        Raises:
            AuthenticationError: the peer refused it.
            OperationTimeoutError: it did not answer in time.
        """
        connection = self._connection
        now = time.monotonic()
        grant = self._grants.get(entity.lower())
        if grant is not None and grant.pending is not None and grant.pending.is_done:
            self._conclude(grant)  # a renewal that nobody has looked at yet
        if (
            grant is not None
            and grant.renew_at > now
            and grant.pending is None
            and grant.error is None
        ):
            return
        if self._links is None or self._links.is_detached:
            self._links = RequestLinks(connection, "$cbs", "$cbs")
            self._links.attach(deadline)
        if grant is None:
            grant = self._grants[entity.lower()] = _Grant(connection.endpoint.audience(entity))
        if grant.pending is None:
            self._put(grant)
        pending = grant.pending
        if pending is None or not connection.wait_until(lambda: pending.is_done, deadline):
            grant.pending = None
            grant.renew_at = 0.0
            raise OperationTimeoutError(f"authorizing for {entity}")
        self._conclude(grant)
        if grant.error is not None:
            error = grant.error
            self._grants.pop(entity.lower(), None)
            raise error

    def _put(self, grant: _Grant) -> None:
        token = self._provider.token(grant.audience)
        if self._links is None:
            return
        grant.pending = self._links.post(
            {
                "name": grant.audience,
                "operation": "put-token",
                "type": token.kind,
                "expiration": Timestamp(int(token.expires_on * 1000)),
            },
            token.text,
        )
        lifetime = max(0.0, token.expires_on - time.time())
        grant.renew_at = time.monotonic() + min(lifetime * _RENEW_AT, 365 * 86400.0)

    def _conclude(self, grant: _Grant) -> None:
        """Read the answer to a put-token."""
        pending, grant.pending = grant.pending, None
        if pending is None:
            return
        grant.error = pending.error
        if pending.message is not None:
            answer = pending.message.application_properties or {}
            status = answer.get("status-code", answer.get("statusCode", 500))
            if not isinstance(status, int) or not 200 <= status < 300:
                description = text_of(
                    answer.get("status-description", answer.get("statusDescription"))
                )
                grant.error = AuthenticationError(
                    UNAUTHORIZED_ACCESS, description, status if isinstance(status, int) else 500
                )
            else:
                grant.error = None

    def next_renewal(self) -> float:
        """When to call `renew_due` again."""
        if self._links is None or self._links.is_detached:
            return _NEVER
        return min(
            (
                grant.renew_at
                for grant in self._grants.values()
                if grant.pending is None and grant.error is None
            ),
            default=_NEVER,
        )

    def renew_due(self, now: float) -> None:
        """Ask for the renewal of what is due; the answer is read when it comes."""
        if self._links is None or self._links.is_detached:
            return
        for grant in self._grants.values():
            if grant.pending is not None and grant.pending.is_done:
                self._conclude(grant)
            if grant.renew_at <= now and grant.pending is None and grant.error is None:
                try:
                    self._put(grant)
                except Exception:  # noqa: BLE001 - whatever a credential raises; the old token still holds
                    grant.renew_at = now + _RETRY
