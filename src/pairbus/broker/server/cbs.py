"""`$cbs`: clients present tokens, one per entity, and renew them."""

from __future__ import annotations

from collections.abc import Callable

from pairbus.broker.auth.jwt import verify_token
from pairbus.broker.auth.sas import Claims, KeyRing, missing_claim, verify_key
from pairbus.broker.entities.errors import BrokerError, UnauthorizedError
from pairbus.broker.entities.model import AccessRight
from pairbus.broker.server.link_end import LinkEnd
from pairbus.broker.server.request_link import Reply
from pairbus.broker.server.requests import Request

MAX_TOKENS = 1000


class Tokens:
    """The claims that one connection has presented.

    Args:
        keys: The namespace's keys.
        now: The time in seconds since the epoch.

    Attributes:
        claims: By the audience of the token; empty until one was accepted.
    """

    def __init__(self, keys: KeyRing, now: Callable[[], float]) -> None:
        self._keys = keys
        self._now = now
        self.claims: dict[str, Claims] = {}

    def __repr__(self) -> str:
        return f"<Tokens {len(self.claims)}>"

    def put(self, audience: str, token: str) -> Claims:
        """Verify a token and store its claims.

        Raises:
            UnauthorizedError: The token is not valid for the audience.
        """
        claims = verify_token(token, audience, self._keys, self._now())
        if audience not in self.claims and len(self.claims) >= MAX_TOKENS:
            raise UnauthorizedError("The connection has put too many tokens.")
        self.claims[audience] = claims
        return claims

    def put_key(self, key_name: str, key: str) -> None:
        """Store the claims of a key for the lifetime of the connection.

        Raises:
            UnauthorizedError: Neither the namespace nor an entity has such a key.
        """
        self.claims.update(
            {claims.scope: claims for claims in verify_key(key_name, key, self._keys)}
        )

    def allows(self, right: AccessRight, path: str) -> bool:
        """Whether a token that has not expired grants this right."""
        now = self._now()
        return any(
            claims.expires_at > now and claims.allows(right, path)
            for claims in self.claims.values()
        )

    def require(self, right: AccessRight, path: str) -> None:
        """Raise UnauthorizedError unless a token grants this right."""
        if not self.allows(right, path):
            raise missing_claim(f"'{right.value}'", path)

    def next_expiry(self) -> float:
        """Return when the first token expires; in the far future if there is none."""
        return min((claims.expires_at for claims in self.claims.values()), default=1e12)

    def prune(self) -> bool:
        """Forget expired tokens; return whether any are left."""
        now = self._now()
        self.claims = {a: c for a, c in self.claims.items() if c.expires_at > now}
        return bool(self.claims)


class CbsNode:
    """Handles `put-token` requests. The token type is ignored: the SDK always sends `jwt`."""

    max_request = 64 * 1024
    status_names = ("status-code", "status-description")

    def __init__(self, end: LinkEnd) -> None:
        self._connection = end.connection
        self._faults = end.faults

    def is_authorized(self) -> bool:
        """Anyone may present a token."""
        return True

    def handle(self, request: Request, reply: Reply) -> None:
        """Verify a token; answer 202, or the reason for the refusal."""
        name = str(request.properties.get("name", ""))
        fault = self._faults.match("token", name)
        reply.delay = fault.answer_delay
        if fault.kind == "hang":
            return
        try:
            if request.operation != "put-token":
                raise BrokerError("only put-token is known here", http_status=400)
            if fault.kind != "delay":
                raise fault.error()
            token = request.body
            token = token.decode(errors="replace") if isinstance(token, bytes) else str(token)
            self._connection.tokens.put(name, token)
            self._connection.authorized()
            reply.ok(202, "Accepted")
        except BrokerError as error:
            reply.failed(error)
