"""Token credentials for a broker, to test code that takes one from azure-identity."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pairbus.broker.auth.jwt import OWNER, RECEIVER, SENDER, make_jwt
from pairbus.names import parse_connection_string

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken

__all__ = ["OWNER", "RECEIVER", "SENDER", "AioBrokerCredential", "BrokerCredential"]


class BrokerCredential:
    """A token credential that an embedded broker accepts.

    Pass it where the application would pass ``DefaultAzureCredential()``.

    Args:
        connection_string: of the broker; its key signs the tokens.
        roles: of the tokens: `OWNER`, `SENDER`, `RECEIVER`.
        lifetime: seconds that a token is valid.
    """

    def __init__(self, connection_string: str, *roles: str, lifetime: float = 3600.0) -> None:
        key = parse_connection_string(connection_string).key
        if key is None:
            raise ValueError("connection string: SharedAccessKey is missing")
        self._key = key
        self.roles = roles or (OWNER,)
        self.lifetime = lifetime
        self.calls = 0
        """How many tokens it has issued."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self.roles)}>"

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return a token, as azure-identity's credentials do."""
        from azure.core.credentials import AccessToken

        self.calls += 1
        expires_at = time.time() + self.lifetime
        token = make_jwt(self._key, roles=self.roles, expires_at=expires_at)
        return AccessToken(token, int(expires_at))

    def close(self) -> None:
        """Nothing to close."""

    def __enter__(self) -> BrokerCredential:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AioBrokerCredential:
    """A `BrokerCredential` for the asynchronous clients."""

    def __init__(self, connection_string: str, *roles: str, lifetime: float = 3600.0) -> None:
        self._credential = BrokerCredential(connection_string, *roles, lifetime=lifetime)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._credential.roles)}>"

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return a token, as azure-identity's asynchronous credentials do."""
        return self._credential.get_token(*scopes)

    async def close(self) -> None:
        """Nothing to close."""

    async def __aenter__(self) -> AioBrokerCredential:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
