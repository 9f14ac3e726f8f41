# generated from src/pairbus/client/_async/tokens.py by tools/gen_unasync.py; edit that one
"""Claims-based security: put a token on `$cbs` for each entity, and renew it in time.

Tokens signed with a key are made where they are needed. A token credential may take seconds, so it
is called by a task of its own: meanwhile the connection's condition is free, and other callers
receive, send and settle on their links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pairbus.amqp.errors import UNAUTHORIZED_ACCESS
from pairbus.amqp.types import Timestamp
from pairbus.client._sync.multiplexer import NEVER
from pairbus.client._sync.requests import Pending, RequestLinks
from pairbus.client.auth import AAD_SCOPE, Signer, Token, TokenCredential
from pairbus.client.errors import (
    AuthenticationError,
    ClientError,
    LinkDetachedError,
    OperationTimeoutError,
)

if TYPE_CHECKING:
    from pairbus.client._sync.connection import BulkConnection

_RENEW_AT = 0.9  # renew when this share of a token's life is over
_LEAST = 1.0  # seconds between two renewals: the peer may accept a token that we think has expired
_RETRY_LINK = 1.0  # seconds until a token is put again after its link was detached
_RETRY = 30.0  # seconds until a credential that failed is called again


class _Grant:
    """The token of one entity."""

    __slots__ = ("audience", "error", "expires_on", "is_put", "pending", "renew_at")

    def __init__(self, audience: str) -> None:
        self.audience = audience
        self.is_put = False  # a token was put at least once, so it is to be renewed
        self.renew_at = 0.0  # by the monotonic clock
        self.expires_on = 0.0  # seconds since 1970
        self.pending: Pending | None = None
        self.error: ClientError | None = None

    @property
    def is_held(self) -> bool:
        """The peer has accepted a token, which may have expired."""
        return self.is_put and self.pending is None and self.error is None


class _TokenRequest:
    """A pending call of the token credential."""

    __slots__ = ("error", "token")

    def __init__(self) -> None:
        self.token: Token | None = None
        self.error: Exception | None = None


class CbsTokens:
    """Puts tokens and renews them; all entities share the `$cbs` links.

    The caller of each method but `_request_token` and `_renew` holds the connection's condition.
    """

    def __init__(self, connection: BulkConnection, provider: Signer | TokenCredential) -> None:
        self._connection = connection
        self._mux = connection.mux
        self._runtime = connection.mux.runtime
        self._provider = provider
        self._links: RequestLinks | None = None
        self._grants: dict[str, _Grant] = {}
        self._request: _TokenRequest | None = None
        self._is_renewing = False

    def ensure(self, entity: str, deadline: float) -> None:
        """Make sure that the peer holds a valid token for the entity.

        Raises:
            AuthenticationError: the peer refused it.
            OperationTimeoutError: the peer or the credential did not answer in time.
        """
        self._mux.poll()  # the service detaches idle links, `$cbs` too
        key = entity.lower()
        grant = self._grants.get(key)
        if grant is None:
            grant = self._grants[key] = _Grant(self._connection.endpoint.audience(entity))
        self._conclude(grant)  # the answer to a renewal may have arrived
        # By both clocks: the monotonic one stops while a machine is suspended.
        is_valid = (
            grant.renew_at > self._runtime.monotonic() and grant.expires_on > self._runtime.time()
        )
        if grant.is_held and is_valid:
            return
        if grant.pending is None:
            token = self._token(grant, deadline)
            if grant.pending is None:  # no other caller has put one meanwhile
                self._put(grant, token)
        pending = grant.pending
        if pending is None or not self._mux.wait_until(lambda: pending.is_done, deadline):
            grant.pending = None
            grant.is_put = False
            raise OperationTimeoutError(f"authorizing for {entity}")
        self._conclude(grant)
        error = grant.error or pending.error
        if error is not None:
            if self._grants.get(key) is grant:
                del self._grants[key]
            raise error

    def forget(self, entity: str) -> None:
        """Drop the token of an entity, because the peer reported that it is no longer valid."""
        self._grants.pop(entity.lower(), None)

    def _token(self, grant: _Grant, deadline: float) -> Token:
        provider = self._provider
        if isinstance(provider, TokenCredential):
            return self._credential_token(provider, deadline)
        return provider.token(grant.audience, self._runtime.time())

    def _credential_token(self, provider: TokenCredential, deadline: float) -> Token:
        """Return the credential's token; concurrent callers share one request."""
        request = self._request
        if request is None:
            request = self._request = _TokenRequest()
            self._runtime.spawn(self._request_token, request, provider, name="pairbus token")
        while request.token is None:
            if request.error is not None:
                raise request.error
            left = deadline - self._runtime.monotonic()
            if left <= 0:
                if self._request is request:
                    self._request = None  # it may never return: the next caller begins a new one
                raise OperationTimeoutError("getting a token from the credential")
            self._mux.check()
            self._mux.condition.wait(left)
        return request.token

    def _request_token(self, request: _TokenRequest, provider: TokenCredential) -> None:
        token, failure = None, None
        try:
            access = provider.credential.get_token(AAD_SCOPE)
            token = Token(access.token, "jwt", float(access.expires_on))
        except Exception as exc:  # noqa: BLE001 - any error of the credential goes to the callers
            failure = exc
        with self._mux.condition:
            request.token, request.error = token, failure
            if self._request is request:
                self._request = None
            self._mux.condition.notify_all()

    def _put(self, grant: _Grant, token: Token) -> None:
        links = self._links
        if links is None or links.is_detached:
            links = self._links = RequestLinks(self._connection, "$cbs", "$cbs")
            links.begin_attach()  # the request is sent when credit arrives
        grant.pending = links.post(
            {
                "name": grant.audience,
                "operation": "put-token",
                "type": token.kind,
                "expiration": Timestamp(int(token.expires_on * 1000)),
            },
            token.text,
        )
        grant.is_put = True
        grant.expires_on = token.expires_on
        lifetime = token.expires_on - self._runtime.time()
        wait = min(max(_LEAST, lifetime * _RENEW_AT), 365 * 86400.0)
        grant.renew_at = self._runtime.monotonic() + wait

    def _conclude(self, grant: _Grant) -> None:
        """Read the answer to a put-token, if it has arrived."""
        pending = grant.pending
        if pending is None or not pending.is_done:
            return
        grant.pending = None
        if isinstance(pending.error, LinkDetachedError):  # no answer: the old token is still valid
            grant.renew_at = self._runtime.monotonic() + _RETRY_LINK
            return
        grant.error = pending.error
        status, _, description = pending.status()
        if grant.error is None and not 200 <= status < 300:
            grant.error = AuthenticationError(UNAUTHORIZED_ACCESS, description, status)

    # -- renewal: called by the multiplexer

    def next_due(self) -> float:
        """When to call `run_due` next."""
        if self._is_renewing:
            return NEVER
        return min(
            (grant.renew_at for grant in self._grants.values() if grant.is_held),
            default=NEVER,
        )

    def run_due(self, now: float) -> None:
        """Begin to renew the tokens that are due; the answers are read when they arrive."""
        if self._is_renewing:
            return
        for grant in self._grants.values():
            self._conclude(grant)
        due = [grant for grant in self._grants.values() if grant.is_held and grant.renew_at <= now]
        if not due:
            return
        provider = self._provider
        if isinstance(provider, TokenCredential):
            self._is_renewing = True
            self._runtime.spawn(self._renew, provider, due, name="pairbus token renewal")
            return
        for grant in due:
            try:
                self._put(grant, provider.token(grant.audience, self._runtime.time()))
            except Exception:  # noqa: BLE001 - any error; the old token is still valid
                grant.renew_at = now + _RETRY

    def _renew(self, provider: TokenCredential, due: list[_Grant]) -> None:
        with self._mux.condition:
            try:
                token = self._credential_token(provider, self._connection.deadline())
                for grant in due:
                    self._put(grant, token)
                self._mux.flush()
            except Exception:  # noqa: BLE001 - any error; the old token is still valid
                for grant in due:
                    grant.renew_at = self._runtime.monotonic() + _RETRY
            finally:
                self._is_renewing = False
